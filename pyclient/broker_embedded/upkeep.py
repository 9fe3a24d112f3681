"""What a node does from time to time: retention, checkpoints, flushes that are due, closing idle connections."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.settings import LONG_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyclient.broker_embedded.broker import BrokerNode
    from pyclient.broker_embedded.timers import Timer

log = logging.getLogger("pyclient.broker_embedded")

_FLUSH_SECONDS: Final = 1.0
_IDLE_CHECKS: Final = 4  # looks at a connection's age per connections.max.idle.ms


class Upkeep:
    """The node's periodic work. It runs on the node's loop, so long work is cut into steps."""

    def __init__(self, node: BrokerNode) -> None:
        self._node = node
        self._timers: dict[str, Timer] = {}
        self._running = True
        config = node.config
        self._every("retention", config.seconds("log.retention.check.interval.ms"), self.apply_retention)
        checkpoints = config.seconds("log.flush.offset.checkpoint.interval.ms")
        self._every("checkpoints", checkpoints, node.logs.flush_checkpoints)
        self._every("flush", _FLUSH_SECONDS, self._flush_due)
        idle = config.seconds("connections.max.idle.ms")
        if idle > 0:
            self._every("idle connections", idle / _IDLE_CHECKS, lambda: self._close_idle(idle))

    def close(self) -> None:
        """End it."""
        self._running = False
        for timer in self._timers.values():
            timer.cancel()

    def apply_retention(self) -> None:
        """Remove what is too old or too much, one log a step; the steps follow on the loop."""
        self.remove_deleted()
        self._step(self._node.logs.retention_steps(self._node.clock.time_ms()))

    def remove_deleted(self) -> None:
        """Remove the files of deleted topics whose time has come."""
        self._node.logs.remove_doomed(self._node.clock.time_ms())

    def topic_deleted(self) -> None:
        """A topic's files wait for their time: see to it then."""
        self._node.schedule(self._node.logs.defaults.file_delete_delay_ms / 1000, self.remove_deleted)

    def _every(self, name: str, seconds: float, work: Callable[[], object]) -> None:
        def run() -> None:
            self._timers[name] = self._node.schedule(seconds, run)
            try:
                work()
            except Exception:
                log.exception("%s failed; it is tried again in %g s", name, seconds)

        self._timers[name] = self._node.schedule(seconds, run)

    def _step(self, steps: Iterator[object]) -> None:
        """One piece of work, then whatever else the loop has to do, then the next."""
        if self._running and next(steps, None) is not None:
            self._node.loop.call_soon(self._step, steps)

    def _flush_due(self) -> None:
        node = self._node
        if node.logs.defaults.flush_ms < LONG_MAX or any("flush.ms" in own for own in node.image.configs.values()):
            node.logs.flush_due(node.clock.time_ms())

    def _close_idle(self, seconds: float) -> None:
        oldest = self._node.loop.time() - seconds
        for connection in list(self._node.connections.values()):
            if connection.last_active < oldest:
                log.info("%r is closed: nothing came for %g s (connections.max.idle.ms)", connection, seconds)
                connection.close()
