"""Chooses the log to compact next, the dirtiest first as in Kafka, and handles logs that cannot be compacted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from pyclient import errors
from pyclient.broker_embedded.log.compaction.cleaner import Abandoned, Cleaner
from pyclient.broker_embedded.log.compaction.log_to_clean import LogToClean, plan_cleaning
from pyclient.broker_embedded.log.compaction.offset_map import KEY_BYTES
from pyclient.broker_embedded.log.file_records import DamagedSegment
from pyclient.broker_embedded.log.filesystem import FileSystem
from pyclient.broker_embedded.log.incremental_task import IncrementalTask, run_here
from pyclient.broker_embedded.log.unified_log import UnifiedLog

log = logging.getLogger("pyclient.broker_embedded")

_CHECKS_A_STEP: Final = 64  # segments that are checked before a pause


class LogCleaner:
    """Compacts logs one after the other. `save` writes the ends of their clean parts (`cleaned_to`) to the disk.

    `memory` (bytes) bounds the map of keys. A damaged log is reported and not compacted again.
    """

    def __init__(self, fs: FileSystem, *, memory: int, save: Callable[[], IncrementalTask[None]]) -> None:
        self._fs = fs
        self.memory = memory
        self._save = save
        self._refused: set[UnifiedLog] = set()

    def due(self, logs: Sequence[UnifiedLog], now_ms: int) -> IncrementalTask[int]:
        """Compact the logs that are dirty enough, until none is. Return the number of rounds."""
        rounds = 0
        failed: set[UnifiedLog] = set()
        while True:
            best: tuple[float, UnifiedLog, LogToClean] | None = None
            looked = 0
            for owner in logs:
                looked += 4 + len(owner.segments)
                if looked > _CHECKS_A_STEP:
                    looked = 0
                    yield None
                if owner not in failed and owner not in self._refused and not owner.closed and owner.failure is None:
                    plan = self._plan(owner, now_ms)
                    if plan.is_due(owner.config) and (best is None or plan.dirty_ratio > best[0]):
                        best = plan.dirty_ratio, owner, plan
            if best is None:
                return rounds
            _ratio, owner, plan = best
            if (yield from self._round(owner, plan, now_ms)):
                rounds += 1
            else:
                failed.add(owner)

    def everything(self, owner: UnifiedLog, now_ms: int) -> int:
        """Compact a log at once, however little is dirty. Return the number of rounds.

        The active segment is rolled first. `min.compaction.lag.ms` applies. Raise the error of a failed round,
        `KafkaStorageError` if the log is or goes offline.
        """
        if owner.failure is not None:
            raise errors.KafkaStorageError(f"{owner!r} cannot be compacted")
        owner.roll()
        rounds = 0
        while True:
            plan = self._plan(owner, now_ms)
            if not plan.clean_bytes + plan.dirty_bytes or (rounds and owner.cleaned_to >= plan.end):
                return rounds
            cleaning = Cleaner(owner, plan, fs=self._fs, most_keys=self.memory // KEY_BYTES, now_ms=now_ms)
            try:
                owner.cleaned_to = run_here(cleaning.steps()).end
            except Abandoned as error:  # nothing else runs meanwhile: its disk has failed
                raise errors.KafkaStorageError(str(error)) from error
            run_here(self._save())
            rounds += 1

    def _plan(self, owner: UnifiedLog, now_ms: int) -> LogToClean:
        first = owner.cleaned_to
        if not owner.start_offset <= first <= owner.end_offset:
            first = owner.start_offset
        segments = list(owner.segments)
        limit = owner.last_stable_offset
        return plan_cleaning(segments, owner.config, first_dirty=first, limit=limit, now_ms=now_ms)

    def _round(self, owner: UnifiedLog, plan: LogToClean, now_ms: int) -> IncrementalTask[bool]:
        """Run one round. Return False if the log must not be retried in this run."""
        cleaning = Cleaner(owner, plan, fs=self._fs, most_keys=self.memory // KEY_BYTES, now_ms=now_ms)
        try:
            done = yield from cleaning.steps()
        except Abandoned as reason:
            log.info("%s; it is tried again later", reason)
            return False
        except DamagedSegment as error:
            log.error("%r: it is no longer compacted: %s", owner, error)
            self._refused.add(owner)
            return False
        except (OSError, errors.KafkaError) as error:
            if owner.deleted:  # its directory was renamed while the disk thread worked in it
                log.info("%r: compaction ended, since the log was deleted", owner)
                return False
            log.error("%r: compaction failed; it is tried again later: %s", owner, error)
            return False
        owner.cleaned_to = done.end
        log.debug("%r: compacted up to %d, %d bytes to %d", owner, *done)
        yield from self._save()
        return True
