"""A node on a file system of the test's, whose unforeseen failures (tracebacks in its log) are broken promises."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from pyclient.broker_embedded.broker import BrokerNode
from pyclient.broker_embedded.config.broker_config import BrokerConfig
from pyclient.broker_embedded.log.filesystem import FileSystem
from pyclient.net.loop_thread import LoopThread
from tests.torture.oracle import PromiseBroken

SECONDS: Final = 60.0
SETTINGS: Final = {
    "log.flush.interval.messages": "1",
    "internal.log.segment.bytes": "600",
    "log.index.interval.bytes": "100",
    "log.segment.delete.delay.ms": "0",
    "log.retention.ms": "-1",
    "offsets.topic.num.partitions": "2",
}


class TracebackHandler(logging.Handler):
    """Keeps the first record that has a traceback."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.first: logging.LogRecord | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None and self.first is None:
            self.first = record

    def check(self) -> None:
        """Raise `PromiseBroken` if there was one."""
        if self.first is not None:
            error = self.first.exc_info[1] if self.first.exc_info else None
            raise PromiseBroken(f"a traceback in the broker's log: {self.first.getMessage()}: {error!r}") from error


class Node:
    """Starts at once; raises what the start raises. `stop` and `kill` end it."""

    def __init__(self, data_dir: str, fs: FileSystem) -> None:
        self.tracebacks = TracebackHandler()
        logging.getLogger("pyclient.broker_embedded").addHandler(self.tracebacks)
        self._thread = LoopThread("torture-node")
        self._thread.start()
        self._thread.run(self._watch_loop, timeout=SECONDS)
        config = BrokerConfig.build(SETTINGS, data_dir=data_dir, host="127.0.0.1", port=0, profile="test")
        try:
            self.node: BrokerNode = self.on_loop(lambda: BrokerNode(config, loop=self._thread.loop, fs=fs))
            self._thread.run(self.node.start, timeout=SECONDS)
        except BaseException:
            self._end_thread()
            raise
        self.bootstrap = f"127.0.0.1:{self.node.port}"

    async def _watch_loop(self) -> None:
        def unhandled(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            error = context.get("exception")
            record = logging.LogRecord("loop", logging.ERROR, "", 0, context["message"], None, None)
            record.exc_info = (type(error), error, None) if isinstance(error, Exception) else None
            self.tracebacks.emit(record)

        asyncio.get_running_loop().set_exception_handler(unhandled)

    def on_loop(self, function: Callable[[], Any]) -> Any:
        """Return the result of the function, called on the loop."""

        async def call() -> Any:
            return function()

        return self._thread.run(call, timeout=SECONDS)

    def stop(self, *, clean: bool = True) -> None:
        """End it, in order or as if its process was killed."""
        try:
            self._thread.run(self.node.stop, clean, timeout=SECONDS)
        finally:
            self._end_thread()
        self.tracebacks.check()

    def _end_thread(self) -> None:
        self._thread.stop(SECONDS)
        logging.getLogger("pyclient.broker_embedded").removeHandler(self.tracebacks)
