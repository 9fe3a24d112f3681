"""Mistakes that are built into a broker on purpose, to see that the fuzzer finds them."""

from __future__ import annotations

import asyncio
import copy
import os
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from pyclient.broker_embedded import handlers
from pyclient.broker_embedded.request_context import RequestContext
from pyclient.broker_embedded.served_apis import SERVED
from tests.fuzz.good_client import TOPIC

_kept: Final[list[Any]] = []


def _raise(request: Any, context: RequestContext) -> None:
    if any(each.timestamp == -5 for topic in request.topics for each in topic.partitions):
        raise KeyError("planted")


def _spin(request: Any, context: RequestContext) -> None:
    if request.endpoint_type == 2:
        until = time.thread_time() + 0.6
        while time.thread_time() < until:
            pass


def _keep(request: Any, context: RequestContext) -> None:
    _kept.extend(copy.copy(request) for _ in range(2000))


def _log_of_the_good_client(context: RequestContext) -> Any:
    return context.services.partitions.leader(TOPIC, 0, -1)[0]


def _lose(request: Any, context: RequestContext) -> None:
    log = _log_of_the_good_client(context)
    log.delete_records_before(log.high_watermark)


def _damage(request: Any, context: RequestContext) -> None:
    files = sorted((Path(context.services.configs.current.data_dir) / f"{TOPIC}-0").glob("*.log"))
    if _kept or not files or files[0].stat().st_size < 100:
        return
    with files[0].open("r+b") as file:
        file.seek(70)
        file.write(b"\xa5\x5a")
    _kept.append(files[0])


def _end(request: Any, context: RequestContext) -> None:
    if request.types_filter == ["other"]:
        os._exit(3)


def _never_answer(request: Any, context: RequestContext) -> Any:
    return asyncio.get_running_loop().create_future() if request.topics is None else None


DEFECTS: Final[dict[str, tuple[str, str, Callable[[Any, RequestContext], Any]]]] = {
    "error": ("ListOffsets", "planted", _raise),
    "slow": ("DescribeCluster", "a request took", _spin),
    "leak": ("Heartbeat", "HeartbeatRequest", _keep),
    "lost records": ("OffsetDelete", "not consumed", _lose),
    "damage": ("ListPartitionReassignments", TOPIC, _damage),
    "ended": ("ListGroups", "the broker ended", _end),
    "no answer": ("DescribeLogDirs", "DescribeLogDirs", _never_answer),
}
"""By the kind of finding that they lead to: the API whose handler has the mistake, a part of the finding's text, and
what the handler does first."""


def plant(name: str) -> None:
    """Build one of `DEFECTS` into this process's broker, before it has served a request."""
    api, _text, mistake = DEFECTS[name]
    module: Any = import_module(f"{handlers.__name__}.{SERVED[api].module}")
    handler = module.handle

    def handle(request: Any, context: RequestContext) -> Any:
        answer = mistake(request, context)
        return handler(request, context) if answer is None else answer

    module.handle = handle
