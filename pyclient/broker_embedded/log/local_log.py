"""The files of one partition's log, and how much of them is on the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from pyclient import errors
from pyclient.broker_embedded.log.config import LogConfig
from pyclient.broker_embedded.log.file_records import DamagedSegment
from pyclient.broker_embedded.log.filesystem import File
from pyclient.broker_embedded.log.leader_epoch_cache import LeaderEpochFileCache
from pyclient.broker_embedded.log.log_segment import LogSegment
from pyclient.broker_embedded.log.log_segments import LogSegments
from pyclient.broker_embedded.log.partition_files import PartitionFiles
from pyclient.broker_embedded.log.producer_state_manager import (
    ProducerSnapshots,
    ProducerStateEntry,
    ProducerStateManager,
)
from pyclient.clock import Clock

_INDEX_ENTRY_BYTES: Final = 8  # a full offset index closes a segment, too
_SNAPSHOT_BYTES: Final = 4 << 20  # recovery reads the headers of up to this many bytes before the recovery point


@dataclass(slots=True)
class LoadedLog:
    """The contents of a partition's directory. `damage` is where recovery stopped, if not at the end of the files.

    `exists`: the directory is not empty. `epochs_saved`: its file of leader epochs equals `epochs`.
    """

    segments: list[LogSegment]
    start_offset: int
    end_offset: int
    epochs: LeaderEpochFileCache
    producers: ProducerStateManager
    exists: bool
    damage: DamagedSegment | None = None
    epochs_saved: bool = False


class FlushOwner(Protocol):
    """The log of a flush."""

    @property
    def deleted(self) -> bool:
        """Return True if the log's files need not reach the disk."""
        ...

    def fail(self, reason: str) -> None:
        """Take the log offline."""
        ...


class PendingFlush(NamedTuple):
    """A flush that any thread may run: sync `files`, call `names`, then call `done` on the logs' thread."""

    owner: FlushOwner
    files: list[File]
    names: Callable[[], None]
    done: Callable[[], None]


class LocalLog:
    """The files of one log, up to `end_offset`.

    Failures of the disk are `OSError`, those of an append and a roll `KafkaStorageError`.

    Everything before `recovery_point` is on the disk.
    """

    __slots__ = (
        "_snapshots",
        "_truncations",
        "clock",
        "config",
        "directory",
        "end_offset",
        "files",
        "fs",
        "name",
        "recovery_point",
        "segments",
    )

    def __init__(
        self,
        name: str,
        files: PartitionFiles,
        clock: Clock,
        config: LogConfig,
        loaded: LoadedLog,
        *,
        recovery_point: int,
    ) -> None:
        self.name = name  # "topic-partition", for messages
        self.files = files
        self.fs = files.fs
        self.directory = files.directory
        self.clock = clock
        self.config = config
        self.segments = LogSegments(self.fs, self.directory, loaded.segments)
        self.end_offset = loaded.end_offset
        self.recovery_point = min(recovery_point, loaded.end_offset)
        self._snapshots = ProducerSnapshots(self.fs, self.directory, self.segments.active.base_offset)
        self._truncations = 0  # also counts moves to another directory

    def __repr__(self) -> str:
        return f"<LocalLog {self.directory} end={self.end_offset} recovery_point={self.recovery_point}>"

    # Append

    def segment_for(self, size: int, last_offset: int, timestamp: int, now_ms: int) -> LogSegment | None:
        """Return the active segment; None if it must be rolled before batches of `size` bytes are appended.

        `timestamp` is the batches' largest (ms). Raise `RecordListTooLarge` if no segment can hold them.
        """
        config = self.config
        segment = self.segments.active
        records = segment.records
        if size > config.segment_bytes:
            raise errors.RecordListTooLarge(
                f"{self.name}: {size} bytes at once, segment.bytes is {config.segment_bytes}"
            )
        if not records.size:
            return segment if records.fits(last_offset) else None
        if (
            records.size + size <= config.segment_bytes
            and records.fits(last_offset)
            and (len(segment.indexes.offsets) + 1) * _INDEX_ENTRY_BYTES <= config.segment_index_bytes
            and self._age(segment, timestamp, now_ms) <= config.longest_segment_ms - config.segment_jitter_ms
        ):
            return segment
        return None

    def _age(self, segment: LogSegment, timestamp: int, now_ms: int) -> int:
        first = segment.indexes.first_timestamp
        if first >= 0 and timestamp >= 0:
            return timestamp - first
        return now_ms - self.fs.modified_ms(segment.records.file.path)

    def append(self, segment: LogSegment, data: memoryview, last_offset: int, timestamp: int) -> None:
        """Write batches, which end at `last_offset`, to the active segment."""
        try:
            if not self.files.exist:
                self.files.create()
            segment.append(data, last_offset=last_offset, max_timestamp=timestamp)
        except OSError as error:
            raise errors.KafkaStorageError(f"{self.name}: the append failed: {error}") from error
        self.end_offset = last_offset + 1

    def roll(self, producers: Iterable[ProducerStateEntry]) -> LogSegment:
        """Close the active segment, which has batches, and add one at the log's end. Not synced."""
        active = self.segments.active
        try:
            active.finish()
            self._write_snapshot(producers)
            self.files.begin_sync()
        except OSError as error:
            raise errors.KafkaStorageError(f"{self.name}: a segment cannot be closed: {error}") from error
        active.synced = False
        return self.move_active_segment()

    def move_active_segment(self) -> LogSegment:
        """Add a segment at the log's end; an empty one before it is dropped."""
        segment = self.segments.begin(self.end_offset, self.config.index_interval_bytes)
        self._snapshots.position = 0
        return segment

    # Truncate

    def deletion_time_ms(self) -> int:
        """Return when the files of segments that are dropped now may be removed (epoch ms)."""
        return self.clock.time_ms() + self.config.file_delete_delay_ms

    def truncate_to(self, offset: int) -> int:
        """Remove the batches that end at or after `offset`. Return the new end; `end_at` must be called with it.

        The offset of a batch is outside of its checksum. If the first removed one had a wrong offset, those before
        `offset` are missing: without compaction, which leaves gaps, the log ends with its last batch.
        """
        self.segments.drop_behind(offset, self.deletion_time_ms())
        end = self.segments.active.truncate(offset)
        return end if self.config.compacts else min(end, self.segments.active.end())

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all batches, and restart empty at `offset`; `end_at` must be called with it."""
        self.segments.drop_all(offset, self.config.index_interval_bytes, self.deletion_time_ms())

    def end_at(self, offset: int) -> None:
        """Set the end of the log after a truncation."""
        self._truncations += 1
        self.end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        self._snapshots.truncate(offset, self.segments.active.base_offset)
        self.files.truncate_epochs(end=offset)

    # Flush

    def flush(self, producers: Iterable[ProducerStateEntry]) -> None:
        """Block until everything appended so far is on the disk."""
        if self.files.exist:
            self.files.sync()
            self.segments.sync(self.recovery_point, self.end_offset)
            if self.segments.active.size - self._snapshots.position >= _SNAPSHOT_BYTES:
                self._write_snapshot(producers)
        self.recovery_point = self.end_offset

    def unflushed_segments(self) -> list[LogSegment]:
        """Return the segments with batches from the recovery point on."""
        return [segment for segment in self.segments.since(self.recovery_point) if segment.size]

    def begin_flush(
        self,
        owner: FlushOwner,
        segments: Iterable[LogSegment],
        then: Callable[[], None],
        *,
        offline: Callable[[], bool],
    ) -> PendingFlush:
        """Return a flush of `segments`, which calls `then` when they are on the disk.

        It does not if the log is `offline` by then, or was truncated meanwhile.
        """
        files, directories, changes = self.files.begin_sync()
        truncations = self._truncations
        for segment in segments:
            segment.indexes.write()
            files += segment.files()

        def names() -> None:
            for directory in (self.directory, *directories):
                self.fs.sync_directory(directory)

        def done() -> None:
            if offline():  # an earlier flush has failed: its data may not be on the disk
                return
            self.files.synced(changes)
            if truncations == self._truncations:  # otherwise there may be other batches at the same offsets
                then()

        return PendingFlush(owner, files, names, done)

    def flushed_to(self, offset: int) -> None:
        """Note that everything before `offset` is on the disk."""
        self.recovery_point = max(self.recovery_point, min(offset, self.end_offset))

    def segment_flushed(self, segment: LogSegment) -> None:
        """Note that a closed segment is on the disk, and advance the recovery point over synced segments."""
        segment.synced = True
        for following in self.segments.since(self.recovery_point):
            if not following.synced or following is self.segments.active:
                break
            self.recovery_point = max(self.recovery_point, self.segments.end_of(following, self.recovery_point))

    def finish(self, producers: Iterable[ProducerStateEntry]) -> None:
        """Complete the active segment and the snapshot before the log is closed cleanly."""
        self.segments.finish_renames()
        self.segments.active.finish()
        self._write_snapshot(producers)

    def write_all(self) -> None:
        """Write everything without syncing: the caller syncs the whole file system."""
        self.files.begin_sync()
        for segment in self.segments.since(self.recovery_point):
            segment.indexes.write()
        self.recovery_point = self.end_offset

    def _write_snapshot(self, producers: Iterable[ProducerStateEntry]) -> None:
        active = self.segments.active
        self._snapshots.write(self.end_offset, active.size, producers, segment_base=active.base_offset)

    # Move to another directory

    def relocate(self, loaded: LoadedLog, files: PartitionFiles, producers: Iterable[ProducerStateEntry]) -> None:
        """Switch to the files of a synced copy of this log, and close the old ones."""
        before = self.segments
        before.finish_renames()
        self.files = files
        self.directory = files.directory
        self.segments = LogSegments(self.fs, self.directory, loaded.segments)
        self.files.save()
        self._truncations += 1  # a flush in progress is of files that are no longer used
        self._snapshots = ProducerSnapshots(self.fs, self.directory, self.segments.active.base_offset)
        self._write_snapshot(producers)
        self.recovery_point = self.end_offset
        before.close()
