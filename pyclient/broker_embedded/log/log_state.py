"""The state of a partition's log: its segments, offsets and producers, with the operations that do not change them."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator

from pyclient import errors
from pyclient.broker_embedded.log.config import LogConfig
from pyclient.broker_embedded.log.file_records import DamagedSegment, whole_batches
from pyclient.broker_embedded.log.filesystem import FileSystem
from pyclient.broker_embedded.log.leader_epoch_cache import UNDEFINED
from pyclient.broker_embedded.log.log_loader import LoadedLog
from pyclient.broker_embedded.log.log_reader import (
    FetchDataInfo,
    FetchIsolation,
    Stretch,
    aborted_between,
    find_stretch,
    first_not_before,
    newest,
)
from pyclient.broker_embedded.log.log_segments import LogSegments
from pyclient.broker_embedded.log.partition_files import PartitionFiles
from pyclient.clock import Clock
from pyclient.net.file_region import FileRegion
from pyclient.types import OffsetAndTimestamp

log = logging.getLogger("pyclient.broker_embedded")


class LogState:
    """The state of one partition's log, and reads from it; used from one thread."""

    def __init__(
        self,
        directory: str,
        topic: str,
        partition: int,
        topic_id: uuid.UUID | None,
        config: LogConfig,
        loaded: LoadedLog,
        *,
        fs: FileSystem,
        clock: Clock,
        recovery_point: int,
        high_watermark: int | None,
    ) -> None:
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.config = config
        self.start_offset = loaded.start_offset
        self.end_offset = loaded.end_offset
        self.replicated = high_watermark is not None
        self.high_watermark = self.end_offset if high_watermark is None else min(high_watermark, self.end_offset)
        self.recovery_point = min(recovery_point, self.end_offset)
        self.damage = loaded.damage
        self.failure: str | None = None
        self.closed = False
        self.cleaned_to = 0
        """The offset up to which the log is compacted."""
        self.on_append: list[Callable[[], object]] = []
        self._uncommitted: list[tuple[int, Callable[[], object]]] = []  # (offset, callback) of `when_committed`
        self.segments = LogSegments(fs, directory, loaded.segments)
        self.producers = loaded.producers
        self._fs = fs
        self._clock = clock
        self._name = f"{topic}-{partition}"
        self._files = PartitionFiles(
            fs, directory, topic_id, loaded.epochs, exist=loaded.exists, saved=loaded.epochs_saved
        )
        self._epochs = loaded.epochs
        self._unflushed_since: int | None = None
        self._snapshot_offset = self.segments.active.base_offset
        self._snapshot_position = 0
        self.producers.high_watermark_moved(self.high_watermark)

    def __repr__(self) -> str:
        state = "" if self.failure is None else f" offline: {self.failure}"
        return f"<UnifiedLog {self._name} {self.start_offset}..{self.end_offset} segments={len(self.segments)}{state}>"

    # What is known

    @property
    def leader_epoch(self) -> int:
        """Return the newest leader epoch, -1 if there is none."""
        return self._epochs.latest

    @property
    def last_stable_offset(self) -> int:
        """Return the end of read_committed reads: the high watermark, or the first undecided transaction."""
        unstable = self.producers.first_unstable_offset
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    @property
    def size(self) -> int:
        """Return the bytes of all batches in the log's files."""
        return self.segments.size

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch in which `offset` was written, -1 if unknown."""
        return self._epochs.epoch_at(offset)

    def end_offset_for_epoch(self, epoch: int, leader_epoch: int = UNDEFINED) -> tuple[int, int]:
        """Return (largest epoch not above `epoch`, its end offset) for OffsetForLeaderEpoch; (-1, -1) if unknown.

        `leader_epoch` is the leader's, which begins at the log's end if nothing was written in it.
        """
        return self._epochs.end_offset(epoch, self.end_offset, leader_epoch)

    def offset_for_timestamp(self, timestamp: int) -> OffsetAndTimestamp | None:
        """Return the first record whose timestamp (ms) is `timestamp` or later; None if there is none."""
        return first_not_before(self.segments, timestamp, self.start_offset)

    def latest_timestamp_offset(self) -> OffsetAndTimestamp | None:
        """Return the first record with the largest timestamp of all; None if no record has one."""
        return newest(self.segments, self.start_offset)

    def fail(self, reason: str) -> None:
        """Take the log offline: appends are refused until it is opened again."""
        log.error("%s goes offline: %s", self._name, reason)
        self.failure = reason
        self._tell_waiting()

    def when_committed(self, offset: int, callback: Callable[[], object]) -> None:
        """Call `callback` when the high watermark is above `offset`, or the log fails or is closed or cut before that.

        At once, if the log has failed or is closed.
        """
        self._uncommitted.append((offset, callback))
        if self.failure is not None or self.closed:
            self._tell_waiting()

    def _tell_waiting(self) -> None:
        over = self.failure is not None or self.closed
        waiting, self._uncommitted = self._uncommitted, []
        for offset, callback in waiting:
            if over or offset < self.high_watermark or offset >= self.end_offset:
                callback()
            else:
                self._uncommitted.append((offset, callback))

    def update_config(self, config: LogConfig) -> None:
        """Set the configs; they apply from the next append on."""
        self.config = config
        self.segments.active.indexes.interval = config.index_interval_bytes

    # Reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        min_one_batch: bool = True,
        isolation: FetchIsolation = "uncommitted",
        copied: bool = False,
    ) -> FetchDataInfo:
        """Return the batches from the one that holds `offset` on, up to `max_bytes`; not copied unless `copied`.

        They are of one segment, and the last one is cut at `max_bytes`, as in Kafka; never the first one, which is
        returned whole with `min_one_batch`, and not at all without it. Raises `OffsetOutOfRange`.
        """
        stretch = self._find(offset, max_bytes, min_one_batch, isolation, whole_batches=False)
        committed = isolation == "committed"
        known = self.high_watermark, self.last_stable_offset, self.start_offset, self.end_offset
        if stretch is None:
            return FetchDataInfo([], 0, *known, [] if committed else None)
        file = stretch.segment.records.file
        region: FileRegion | bytes
        if copied:
            region = file.pread(stretch.length, stretch.position)
        else:
            file.retain()
            try:
                region = FileRegion(file.fileno(), stretch.position, stretch.length, file.release)
            except OSError:
                file.release()
                raise
        aborted: list[tuple[int, int]] | None = None
        if committed:
            entries = aborted_between(self.segments, offset, stretch.end_offset)
            aborted = [(entry.producer_id, entry.first_offset) for entry in entries]
        return FetchDataInfo([region], stretch.length, *known, aborted, stretch.more)

    def read_bytes(
        self, offset: int, max_bytes: int, *, min_one_batch: bool = True, isolation: FetchIsolation = "log_end"
    ) -> bytes:
        """Read as `read` does, but return bytes of whole batches only."""
        stretch = self._find(offset, max_bytes, min_one_batch, isolation, whole_batches=True)
        return b"" if stretch is None else stretch.segment.records.file.pread(stretch.length, stretch.position)

    def _find(
        self, offset: int, max_bytes: int, min_one_batch: bool, isolation: FetchIsolation, *, whole_batches: bool
    ) -> Stretch | None:
        if not self.start_offset <= offset <= self.end_offset:
            raise errors.OffsetOutOfRange(
                f"{self._name}: {offset} is not within {self.start_offset}..{self.end_offset}"
            )
        limit = self.high_watermark
        if isolation != "uncommitted":
            limit = self.last_stable_offset if isolation == "committed" else self.end_offset
        return find_stretch(
            self.segments,
            offset,
            limit=limit,
            log_end=self.end_offset,
            max_bytes=max_bytes,
            min_one_batch=min_one_batch,
            whole_batches=whole_batches,
        )

    def verify(self) -> Iterator[DamagedSegment | None]:
        """Check every batch of the log against its checksum, one per step; a step that finds damage yields it.

        The rest of a damaged segment is not checked, nor is a segment that is deleted meanwhile.
        """
        for segment in list(self.segments):
            try:
                for _ in whole_batches(segment.records, 0):
                    yield None
            except DamagedSegment as error:
                yield error
            except OSError:
                if segment in list(self.segments):
                    raise
