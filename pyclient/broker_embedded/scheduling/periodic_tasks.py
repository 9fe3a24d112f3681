"""Periodic tasks of a node: retention, compaction, checkpoints, due flushes, idle connections, expired tokens."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.scheduling.background_tasks import BackgroundTasks
from pyclient.config.options import LONG_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.scheduling.timers import Timer
    from pyclient.broker_embedded.services import BrokerServices

log = logging.getLogger("pyclient.broker_embedded")

_FLUSH_SECONDS: Final = 1.0
_SESSION_SECONDS: Final = 60.0  # between two searches for unused fetch sessions
_RECOVERY_PAUSE: Final = 0.05
"""Seconds between two logs that no request waits for (docs/measurements.md, "Opening and recovery of logs")."""
_SHORTEST_BACKOFF: Final = 0.01  # seconds between two searches for logs to compact
_IDLE_CHECKS: Final = 4  # checks per connections.max.idle.ms
_PARTIAL_CHECKS: Final = 4  # checks per internal.partial.frame.timeout.ms


class PeriodicTasks:
    """The node's periodic tasks. They run on the node's loop, so long ones are split into steps."""

    def __init__(self, services: BrokerServices, is_paused: Callable[[], bool]) -> None:
        self._services = services
        self._is_paused = is_paused
        self._timers: dict[str, Timer] = {}
        self._background = BackgroundTasks(services.loop, services.logs.disk_thread)
        queue = services.logs.recovery_queue
        queue.wake = lambda: self._background.run("opening logs", queue.steps())
        queue.pause = self._pause_recovery
        if not services.logs.was_clean:
            queue.request_all()
        relocation = services.relocation
        relocation.wake = lambda: self._background.run("moving logs", relocation.steps())
        for partition, target in services.logs.interrupted_moves:
            relocation.begin(partition, target)
        services.logs.interrupted_moves.clear()
        config = services.configs.current
        self._every("retention", config.seconds("log.retention.check.interval.ms"), self.apply_retention)
        checkpoints = config.seconds("log.flush.offset.checkpoint.interval.ms")
        self._every("checkpoints", checkpoints, self._write_checkpoints)
        if config.boolean("log.cleaner.enable"):
            self._every("compaction", self._cleaner_backoff, self.compact)
        self._every("flush", _FLUSH_SECONDS, self._flush_due)
        self._every(
            "fetch sessions", _SESSION_SECONDS, lambda: services.fetch_sessions.expire(services.clock.monotonic())
        )
        check = config.seconds("internal.replica.check.interval.ms")
        if services.quorum is not None and check > 0:
            self._every("check of replicas", check, self._check_replicas)
        if config.text("delegation.token.secret.key"):
            seconds = config.seconds("delegation.token.expiry.check.interval.ms")
            self._every("expired delegation tokens", seconds, self.remove_expired_tokens)
        idle = config.seconds("connections.max.idle.ms")
        if idle > 0:
            self._every("idle connections", idle / _IDLE_CHECKS, lambda: self._close_idle(idle))
        partial = config.seconds("internal.partial.frame.timeout.ms")
        self._every("unfinished requests", partial / _PARTIAL_CHECKS, lambda: self._close_unfinished(partial))

    def close(self) -> None:
        """Cancel all tasks."""
        self._background.close()
        for timer in self._timers.values():
            timer.cancel()

    def run(self, name: str, steps: IncrementalTask[object]) -> None:
        """Run work in steps, unless work of that name is running."""
        self._background.run(name, steps)

    def _pause_recovery(self) -> None:
        self._timers["opening logs"] = self._services.timers.schedule(_RECOVERY_PAUSE, self._continue_recovery)

    def _continue_recovery(self) -> None:
        wake = self._services.logs.recovery_queue.wake
        if wake is not None:
            wake()

    def apply_retention(self) -> None:
        """Delete segments above the retention time or size, one per step; the steps run on the loop."""
        self.remove_deleted()
        self._background.run("retention", _pauses(self._services.logs.retention_steps(self._services.clock.time_ms())))

    def compact(self) -> None:
        """Compact the logs that are dirty enough, in steps between which requests are served."""
        services = self._services
        services.logs.compaction_memory = services.configs.current.integer("log.cleaner.dedupe.buffer.size")
        self._background.run("compaction", services.logs.compaction_steps(services.clock.time_ms()))

    def remove_deleted(self) -> None:
        """Remove the files of deleted topics whose delay is over."""
        self._services.logs.remove_deleted(self._services.clock.time_ms())

    def remove_expired_tokens(self) -> None:
        """Remove the delegation tokens that have expired, on the active controller."""
        if self._services.controller.active:
            self._services.controller.remove_expired_tokens(self._services.clock.time_ms())

    def topic_deleted(self) -> None:
        """Schedule the removal of a deleted topic's files after their delay."""
        self._services.timers.schedule(self._services.logs.defaults.file_delete_delay_ms / 1000, self.remove_deleted)

    def _every(self, name: str, seconds: float | Callable[[], float], work: Callable[[], object]) -> None:
        """Run `work` every `seconds`, which may change while the node runs."""

        def delay() -> float:
            return seconds() if callable(seconds) else seconds

        def run() -> None:
            self._timers[name] = self._services.timers.schedule(delay(), run)
            try:
                work()
            except Exception:  # one failure must not end the periodic tasks
                log.exception("%s failed; it is tried again in %g s", name, delay())

        self._timers[name] = self._services.timers.schedule(delay(), run)

    def _cleaner_backoff(self) -> float:
        return max(self._services.configs.current.seconds("log.cleaner.backoff.ms"), _SHORTEST_BACKOFF)

    def _check_replicas(self) -> None:
        if self._services.replicas is not None:
            self._background.run("check of replicas", self._services.replicas.check_steps())

    def _write_checkpoints(self) -> None:
        self._background.run("checkpoints", self._services.logs.checkpoint_steps())

    def _flush_due(self) -> None:
        services = self._services
        if services.logs.defaults.flush_ms < LONG_MAX or any(
            "flush.ms" in own for own in services.image.configs.values()
        ):
            self._background.run("flush", _pauses(services.logs.flush_steps(services.clock.time_ms())))

    def _close_idle(self, seconds: float) -> None:
        """Close connections without a request for `seconds`; as in Kafka, also while a request waits for its answer."""
        if self._is_paused():
            return
        oldest = self._services.loop.time() - seconds
        for connection in list(self._services.connections.values()):
            if connection.last_active < oldest:
                log.info("closing %r: no request for %g s (connections.max.idle.ms)", connection, seconds)
                connection.close()

    def _close_unfinished(self, seconds: float) -> None:
        """Close connections whose requests stay incomplete or grow too slowly (Kafka waits connections.max.idle.ms)."""
        if self._is_paused():
            return
        now = self._services.loop.time()
        for connection in list(self._services.connections.values()):
            if connection.stalled(now, seconds):
                log.info(
                    "closing %r: its request grew too slowly for %g s (internal.partial.frame.timeout.ms)",
                    connection,
                    seconds,
                )
                connection.close()


def _pauses(steps: Iterable[object]) -> IncrementalTask[None]:
    for _ in steps:
        yield None
