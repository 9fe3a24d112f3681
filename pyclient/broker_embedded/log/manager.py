"""All logs of a node: those of its data directories, with the periodic work on them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from pyclient import errors
from pyclient.broker_embedded.log.incremental_task import IncrementalTask
from pyclient.broker_embedded.log.log_directory import LogDirectory
from pyclient.broker_embedded.log.unified_log import UnifiedLog
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from pyclient.broker_embedded.log.compaction.log_cleaner import LogCleaner

log = logging.getLogger("pyclient.broker_embedded")

_LOOKS: Final = 64  # logs that are checked before a pause
_FLUSH_LOOKS: Final = 512  # logs that are only checked for a due flush before a pause
_COMPACTION: Final = "pyclient.broker_embedded.log.compaction"
_MODULES: Final = ("offset_map", "rewriting", "batch_filter", "log_to_clean", "cleaner", "log_cleaner")
_PARTS: Final = ("_hashlib", "hashlib", *(f"{_COMPACTION}.{name}" for name in _MODULES))
"""Imported in steps of one, as together they take long (docs/measurements.md, "Start of a broker").

`_hashlib` is the larger half of hashlib, where Python has OpenSSL.
"""


class LogManager(LogDirectory):
    """The directory's logs, with retention, compaction and flushes. `compaction_memory` (bytes) bounds the key map of
    compaction (Kafka: `log.cleaner.dedupe.buffer.size`)."""

    compaction_memory = 128 << 20
    _compactor: LogCleaner | None = None

    def run_retention(self, now_ms: int) -> int:
        """Apply retention to every log. Return how many segments were deleted. Failures of a log are only logged."""
        self.remove_doomed(now_ms)
        return sum(self.retention_steps(now_ms))

    def retention_steps(self, now_ms: int) -> Iterator[int]:
        """Apply retention in steps of one segment, or one log without expired segments; yield the deleted ones."""
        for at in [*self._logs, *self._unopened]:
            opened = self._opened(at, partial(self._may_expire, at, now_ms))
            if opened is None:
                yield 0
                continue
            try:
                yield from opened.retention_steps(now_ms)
                yield 0
            except (OSError, errors.KafkaError) as error:
                log.error("%r: retention failed: %s", opened, error)

    def compaction_steps(self, now_ms: int) -> IncrementalTask[int]:
        """Compact the logs that are dirty enough (`cleanup.policy=compact`). Return the number of rounds."""
        compacted: dict[str, bool] = {}
        for count, at in enumerate(list(self._unopened)):
            if at.topic not in compacted:
                compacted[at.topic] = self.config_for(at.topic).compacts
            if compacted[at.topic]:
                self._opened(at, _has_closed_segments)
            if compacted[at.topic] or count % _LOOKS == 0:
                yield None
        logs = [opened for opened in self._logs.values() if opened.config.compacts]
        if not logs:
            return 0
        for name in _PARTS if self._compactor is None else ():
            if find_spec(name) is not None:
                import_module(name)
            yield None
        return (yield from self._compaction().due(logs, now_ms))

    def compact_now(self, topic: str | None = None) -> int:
        """Compact every compacted log (of one topic), however little is dirty. Return the number of rounds.

        Active segments are rolled first, so that every record takes part. Raises the error of a log that fails.
        """
        now_ms = self._clock.time_ms()
        self.side.settle()
        logs = [opened for opened in self.logs if opened.config.compacts and topic in (None, opened.topic)]
        return sum(self._compaction().everything(opened, now_ms) for opened in logs)

    def retention_now(self) -> int:
        """Apply retention to every log as of now. Return how many segments were deleted."""
        if not self.was_clean:
            _ = self.logs  # opens those that are not recovered yet
        return self.run_retention(self._clock.time_ms())

    def _opened(self, at: TopicPartition, is_wanted: Callable[[dict[str, int]], bool]) -> UnifiedLog | None:
        """Return the log if it is open, or if its files (names and sizes) make it worth opening. Errors are logged.

        After a crash None for a log that is not open: all are being opened in steps.
        """
        found = self._logs.get(at)
        if found is None and at in self._unopened and self.was_clean:
            try:
                if is_wanted(self._fs.list_files(self._unopened[at])):
                    return self.get(*at)
            except (OSError, errors.BrokerError) as error:
                log.error("%s: %s", at, error)
        return found

    def _may_expire(self, at: TopicPartition, now_ms: int, files: dict[str, int]) -> bool:
        """Return True if retention could delete segments of a log that is not open yet."""
        config = self.config_for(at.topic)
        logs = [name for name in files if name.endswith(".log")]
        if len(logs) > 1:
            return True
        if not logs or not config.deletes:
            return False
        too_large = 0 <= config.retention_bytes < files[logs[0]]
        written = self._fs.modified_ms(f"{self._unopened[at]}/{logs[0]}")
        return too_large or 0 <= config.retention_ms < now_ms - written

    def flush_due(self, now_ms: int) -> None:
        """Flush the logs whose `flush.ms` is over."""
        for _ in self.flush_steps(now_ms):
            pass

    def flush_steps(self, now_ms: int) -> Iterator[None]:
        """Flush the logs whose `flush.ms` is over, in steps of one flush."""
        for count, opened in enumerate(list(self._logs.values())):
            if (not opened.closed and opened.flush_if_due(now_ms)) or count % _FLUSH_LOOKS == 0:
                yield None

    def _compaction(self) -> LogCleaner:
        if self._compactor is None:
            from pyclient.broker_embedded.log.compaction.log_cleaner import LogCleaner  # not needed to start

            self._compactor = LogCleaner(self._fs, memory=self.compaction_memory, save=self.save_cleaned)
        self._compactor.memory = self.compaction_memory
        return self._compactor


def _has_closed_segments(files: dict[str, int]) -> bool:
    return sum(name.endswith(".log") for name in files) > 1
