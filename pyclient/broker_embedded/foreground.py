"""A broker in the foreground of its own process: serves until a signal, or until its parent is gone."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
import tempfile
from typing import TYPE_CHECKING

from pyclient.broker_embedded.broker import BrokerNode
from pyclient.broker_embedded.config import BrokerConfig
from pyclient.errors import KafkaError
from pyclient.net.loop_thread import new_event_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

log = logging.getLogger("pyclient.broker_embedded")


def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 9092,
    data_dir: str | None = None,
    profile: str = "kafka",
    settings: Mapping[str, str] | None = None,
    with_parent: bool = False,
) -> int:
    """Run a broker until SIGTERM or Ctrl-C; the exit status.

    When it serves, the first line on stdout is `bootstrap.servers=HOST:PORT`; everything else goes to stderr. Without
    `data_dir` the data is in a temporary directory that goes with the broker. `with_parent` ends it when stdin closes.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    with contextlib.ExitStack() as stack:
        try:
            if data_dir is None:
                data_dir = stack.enter_context(tempfile.TemporaryDirectory(prefix="pyclient-broker-"))
            config = BrokerConfig.build(settings, data_dir=data_dir, host=host, port=port, profile=profile)
            return serve_forever(config, with_parent=with_parent)
        except (KafkaError, OSError) as error:
            print(f"pyclient broker: {error}", file=sys.stderr)  # noqa: T201 - a command's answer to its user
            return 1


def serve_forever(
    config: BrokerConfig, *, on_ready: Callable[[str], None] | None = None, with_parent: bool = False
) -> int:
    """Run one node until SIGTERM or Ctrl-C, on a loop of its own in this thread; 0 after a clean end.

    `on_ready` gets `host:port`; without it the line `bootstrap.servers=host:port` is printed.
    """
    loop = new_event_loop()
    try:
        return loop.run_until_complete(_serve(config, loop, on_ready or _announce, with_parent))
    finally:
        loop.close()


async def _serve(
    config: BrokerConfig, loop: asyncio.AbstractEventLoop, on_ready: Callable[[str], None], with_parent: bool
) -> int:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    node = BrokerNode(config, loop=loop)
    await node.start()
    gc.freeze()  # what start-up made stays: later collections need not look at it
    if with_parent:
        loop.add_reader(sys.stdin.fileno(), _on_stdin, loop, stopping)
    on_ready(address(config, node))
    await stopping.wait()
    log.info("stopping")
    await node.stop()
    return 0


def address(config: BrokerConfig, node: BrokerNode) -> str:
    """What a client on this machine uses as bootstrap.servers."""
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.host, config.host)
    return f"[{host}]:{node.port}" if ":" in host else f"{host}:{node.port}"


def _on_stdin(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        loop.remove_reader(sys.stdin.fileno())
        stopping.set()


def _announce(bootstrap: str) -> None:
    print(f"bootstrap.servers={bootstrap}", flush=True)  # noqa: T201 - what the starter waits for
