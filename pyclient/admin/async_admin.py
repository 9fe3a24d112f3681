"""The asyncio admin client."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from pyclient.admin.config import AdminConfig, AdminOptions
from pyclient.admin.core import AdminCore
from pyclient.config import resolve
from pyclient.config.reference import document


class AsyncAdmin(AdminCore):
    """Creates, lists, describes, grows and deletes topics; lists, describes and deletes groups.

    >>> async with AsyncAdmin("localhost:9092") as admin:  # doctest: +SKIP
    ...     await admin.create_topics([NewTopic("orders", partitions=6)])

    Options are keyword arguments (`AdminConfig`); `config` takes a Kafka-style dictionary as well. Every `timeout`
    is in seconds, `default_api_timeout_ms` by default; after it `KafkaTimeout` is raised with the last failure. If a
    call on several topics fails for some, the first one's error is raised, and its `results` has each topic's error.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        **options: Unpack[AdminOptions],
    ) -> None:
        super().__init__(resolve(AdminConfig, {"bootstrap_servers": bootstrap_servers, **options}, config))

    async def __aenter__(self) -> Self:
        self._check_open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        if getattr(self, "_started", False) and not self._closed and self._pid == os.getpid():
            text = f"{self!r} was not closed: use it in `async with`, or await close()"
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self)
            self._cluster.abandon()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        if self._pid != os.getpid():
            state = "of another process"
        return f"<AsyncAdmin {','.join(self._config.bootstrap_servers)} {state}>"


document(AsyncAdmin, AdminConfig)
