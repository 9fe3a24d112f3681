"""The changes of a partition's log on the disk: segments are rolled, deleted, truncated, replaced and synced."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from pyclient import errors
from pyclient.broker_embedded.log.filesystem import File
from pyclient.broker_embedded.log.log_loader import LoadedLog, load, load_producers
from pyclient.broker_embedded.log.log_segment import LogSegment
from pyclient.broker_embedded.log.log_segments import LogSegments
from pyclient.broker_embedded.log.log_state import LogState
from pyclient.broker_embedded.log.partition_files import PartitionFiles
from pyclient.broker_embedded.log.producer_state_manager import (
    ProducerStateManager,
    drop_snapshots_behind,
    remove_snapshot,
    write_snapshot,
)
from pyclient.broker_embedded.log.retention import SegmentFacts, expired
from pyclient.broker_embedded.log.steps import Blocking, Steps

log = logging.getLogger("pyclient.broker_embedded")

LONG_MAX: Final = 2**63 - 1
_SNAPSHOT_BYTES: Final = 4 << 20  # recovery reads the headers of up to this many bytes before the recovery point


class PendingFlush(NamedTuple):
    """A flush that any thread may run: sync `files`, call `names`, then call `done` on the logs' thread."""

    owner: StoredLog
    files: list[File]
    names: Callable[[], None]
    done: Callable[[], None]


class StoredLog(LogState):
    """A log whose files are rolled, dropped, cut and synced.

    `flush_later`, if set, runs flushes that need not be waited for: of closed segments, for `flush.ms`, and for
    `flush.messages`, where batches are committed when they are synced; `held` are the logs with such batches.
    `remove_later` removes files. Without these callbacks the log flushes and removes in place, and blocks.
    """

    flush_later: Callable[[PendingFlush], None] | None = None
    remove_later: Callable[[list[str]], None] | None = None
    held: set[StoredLog] | None = None
    deleted = False
    """True if the topic was deleted: the log's files need not reach the disk."""
    producer_expiration_ms = 86_400_000  # idle time after which a producer is removed (producer.id.expiration.ms)
    _cuts = 0
    _must_reach = 0  # batches before this offset are committed when they are on the disk
    _reaching = 0  # end offset of the flush in progress for that

    # The start of the log

    def roll(self) -> LogSegment:
        """Close the active segment and add one at the log's end. An empty one is only moved there."""
        active = self.segments.active
        if not active.size:
            if active.base_offset == self.end_offset:
                return active
            return self.segments.begin(self.end_offset, self.config.index_interval_bytes)
        try:
            active.finish()
            self._write_snapshot()
            self._files.begin_sync()
        except OSError as error:
            raise errors.KafkaStorageError(f"{self._name}: a segment cannot be closed: {error}") from error
        segment = self.segments.begin(self.end_offset, self.config.index_interval_bytes)
        self._snapshot_position = 0
        active.synced = False
        if self.flush_later is not None:
            self.flush_later(self._pending([active], partial(self.segment_flushed, active)))
        else:
            self.flush()
        return segment

    def apply_retention(self, now_ms: int) -> int:
        """Delete segments beyond retention or before the log's start. Return how many. Expire idle producers."""
        return sum(self.retention_steps(now_ms))

    def retention_steps(self, now_ms: int) -> Iterator[int]:
        """Apply retention in steps of one segment; yield how many were deleted in each."""
        self.producers.expire(now_ms, self.producer_expiration_ms)
        self.remove_doomed(now_ms)
        for segment in list(self.segments):
            if segment.indexes.load():
                yield 0
            if self.closed:
                return
        facts = [self._facts(segment) for segment in self.segments]
        count = expired(
            facts, self.config, now_ms=now_ms, start_offset=self.start_offset, high_watermark=self.high_watermark
        )
        oldest = list(self.segments)[:count]
        if count and count == len(self.segments):
            self.roll()
            yield 0
        for segment in oldest:
            if self.closed or self.segments[0] is not segment or segment is self.segments.active:
                return  # the log was cut meanwhile
            self.segments.drop_oldest(1, now_ms + self.config.file_delete_delay_ms)
            self._start_at(max(self.start_offset, self.segments.first_offset))
            yield 1
        if oldest:
            self.remove_doomed(now_ms)

    def remove_doomed(self, now_ms: int) -> None:
        """Remove the files of dropped segments that are due."""
        due = self.segments.take_doomed(now_ms)
        if due and self.remove_later is not None:
            self.remove_later(due)
            return
        for path in due:
            self._fs.remove(path)

    def _facts(self, segment: LogSegment) -> SegmentFacts:
        timestamp = segment.largest_timestamp
        if timestamp < 0 and segment.size:
            timestamp = self._fs.modified_ms(segment.records.file.path)
        return SegmentFacts(self.segments.end_of(segment, self.end_offset), segment.size, timestamp)

    def delete_records_before(self, offset: int) -> None:
        """Set the log's start to `offset` (DeleteRecords); retention deletes whole segments before it.

        Raises `OffsetOutOfRange` above the high watermark. A crash may undo it until checkpoints are written.
        """
        if offset > self.high_watermark:
            raise errors.OffsetOutOfRange(f"{self._name}: {offset} is above the high watermark {self.high_watermark}")
        self._start_at(max(offset, self.start_offset))

    def _start_at(self, offset: int) -> None:
        self.start_offset = offset
        self._files.truncate_epochs(start=offset)

    # The end of the log

    def truncate_to(self, offset: int) -> None:
        """Remove everything from `offset` on; a batch that contains `offset` is removed whole, and the log ends there.

        Write checkpoints before the next append: the checkpointed recovery point may be beyond the new end.
        """
        if offset >= self.end_offset:
            return
        if offset < max(self.segments.first_offset, self.start_offset):
            self.truncate_fully_and_start_at(offset)
            return
        self.segments.drop_behind(offset, self._clock.time_ms() + self.config.file_delete_delay_ms)
        offset = self.segments.active.truncate(offset)
        if offset < self.start_offset:  # the log starts inside the removed batch
            self.truncate_fully_and_start_at(self.start_offset)
            return
        self._end_at(offset)
        self.producers = load_producers(self._fs, self.directory, self._name, list(self.segments), offset)
        self.producers.high_watermark_moved(self.high_watermark)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove everything, and restart empty at `offset`."""
        due_ms = self._clock.time_ms() + self.config.file_delete_delay_ms
        self.segments.drop_all(offset, self.config.index_interval_bytes, due_ms)
        self.start_offset = offset
        self._end_at(offset)
        self.producers = ProducerStateManager(self._name)

    def _end_at(self, offset: int) -> None:
        self._cuts += 1
        self.end_offset = offset
        self.cleaned_to = min(self.cleaned_to, offset)
        self.high_watermark = min(self.high_watermark, offset) if self.replicated else offset
        self.recovery_point = min(self.recovery_point, offset)
        drop_snapshots_behind(self._fs, self.directory, offset)
        self._snapshot_offset, self._snapshot_position = self.segments.active.base_offset, 0
        self._files.truncate_epochs(end=offset)
        self._release_held()

    # Leader epochs

    def begin_epoch(self, epoch: int) -> None:
        """Note that this node leads: `epoch` begins at the end of the log, even if nothing is ever written in it."""
        self._files.note_epoch(epoch, self.end_offset)
        self._files.save()

    # To the disk

    def flush(self) -> None:
        """Block until everything appended so far is on the disk.

        Raises `KafkaStorageError`, and takes the log offline: the kernel may have dropped data it could not write. Also
        raises for a log that is offline: a later sync that succeeds does not restore data that an earlier one lost.
        """
        if self.failure is not None:
            raise errors.KafkaStorageError(f"{self._name} is offline: {self.failure}")
        if self._files.exist:
            try:
                self._files.sync()
                self.segments.sync(self.recovery_point, self.end_offset)
                if self.segments.active.size - self._snapshot_position >= _SNAPSHOT_BYTES:
                    self._write_snapshot()
            except OSError as error:
                self.fail(f"a flush failed: {error}")
                raise errors.KafkaStorageError(f"{self._name}: the flush failed: {error}") from error
        self.recovery_point = self.end_offset
        self._release_held()

    # To the disk before the commit

    @property
    def commits_at_once(self) -> bool:
        """Return True if every batch is committed when its append returns."""
        return not self.replicated and (self.flush_later is None or self.config.flush_messages == LONG_MAX)

    def _hold(self) -> None:
        """Commit the appended batches when they are on the disk, without blocking. One flush is run at a time."""
        self._must_reach = self.end_offset
        if self.held is not None:
            self.held.add(self)
        if not self._reaching:
            self._reach()

    def _reach(self) -> None:
        self._reaching = end = self.end_offset
        if not self._flush_later(partial(self._reached, end)):
            self.fail("a flush cannot begin")
            self._release_held()

    def _reached(self, offset: int) -> None:
        self._flushed_to(offset)
        self._reaching = 0
        if self._must_reach > self.recovery_point:
            self._commit(self.recovery_point)
            self._reach()
        else:
            self._release_held()

    def _release_held(self) -> None:
        """End the holding of batches: commit them if the log has not failed, and notify the waiting callbacks."""
        if self._must_reach:
            self._must_reach = self._reaching = 0
            if self.held is not None:
                self.held.discard(self)
            if self.failure is None and not self.replicated:
                self._commit(self.end_offset)
        self._tell_waiting()

    def _commit(self, offset: int) -> None:
        self.high_watermark = min(offset, self.end_offset)
        self.producers.high_watermark_moved(self.high_watermark)
        self._tell_waiting()
        for callback in self.on_append:
            callback()

    # To the disk, without waiting

    def _write_snapshot(self) -> None:
        """Write a snapshot, where recovery can begin; the one before is kept only if a segment begins there."""
        if self._snapshot_offset not in (self.end_offset, self.segments.active.base_offset):
            remove_snapshot(self._fs, self.directory, self._snapshot_offset)
        write_snapshot(self._fs, self.directory, self.end_offset, self.producers)
        self._snapshot_offset, self._snapshot_position = self.end_offset, self.segments.active.size

    def flush_if_due(self, now_ms: int) -> bool:
        """Flush if an earlier call found unsynced data at least `flush.ms` ago. Return True if it did."""
        if self.recovery_point == self.end_offset or self.failure is not None:
            self._unflushed_since = None
        elif self._unflushed_since is None:
            self._unflushed_since = now_ms
        elif now_ms - self._unflushed_since >= self.config.flush_ms:
            self._unflushed_since = None
            self._flush_later(partial(self._flushed_to, self.end_offset))
            return True
        return False

    def _pending(self, segments: list[LogSegment], then: Callable[[], None]) -> PendingFlush:
        files, directories, changes = self._files.begin_sync()
        cuts = self._cuts
        for segment in segments:
            segment.indexes.write()
            files += segment.files()

        def names() -> None:
            for directory in (self.directory, *directories):
                self._fs.sync_directory(directory)

        def done() -> None:
            if self.failure is not None:  # an earlier flush has failed: its data may not be on the disk
                return
            self._files.synced(changes)
            if cuts == self._cuts:  # otherwise there may be other batches at the same offsets
                then()

        return PendingFlush(self, files, names, done)

    def _flush_later(self, then: Callable[[], None]) -> bool:
        """Start a flush of everything appended so far, without blocking. Return False if it cannot start."""
        if self.flush_later is None or not self._files.exist:
            self.flush()
            return True
        segments = [segment for segment in self.segments.since(self.recovery_point) if segment.size]
        try:
            pending = self._pending(segments, then)
        except OSError as error:
            log.error("%r: the flush cannot begin; it is tried again later: %s", self, error)
            return False
        self.flush_later(pending)
        return True

    def _flushed_to(self, offset: int) -> None:
        self.recovery_point = max(self.recovery_point, min(offset, self.end_offset))

    def segment_flushed(self, segment: LogSegment) -> None:
        """Note that a closed segment is on the disk, and advance the recovery point over synced segments."""
        segment.synced = True
        for following in self.segments.since(self.recovery_point):
            if not following.synced or following is self.segments.active:
                break
            self.recovery_point = max(self.recovery_point, self.segments.end_of(following, self.recovery_point))

    def replace_segments(self, made: LogSegment, old: list[LogSegment]) -> Steps[bool]:
        """Replace closed segments by a synced one that compaction made. Return False if the log has changed since."""
        if not self._may_change():
            return False
        try:
            renames = self.segments.replace(made, old, self._clock.time_ms() + self.config.file_delete_delay_ms)
            if renames is None:
                return False
            for _ in renames:
                yield None
                if not self._may_change():  # the directory may belong to another log now
                    return False
        except OSError as error:
            self.fail(f"compaction stopped between two names of a file: {error}")
            raise
        yield Blocking(partial(self._fs.sync_directory, self.directory))
        self.segment_flushed(made)
        return True

    def _may_change(self) -> bool:
        return not self.closed and self.failure is None

    def load_from(self, directory: str) -> Steps[LoadedLog]:
        """Load a copy of this log that was closed cleanly."""
        return load(
            self._fs,
            directory,
            self._name,
            self.config,
            clean=True,
            recovery_point=self.end_offset,
            start_offset=self.start_offset,
        )

    def relocate(self, loaded: LoadedLog, directory: str) -> None:
        """Switch to the files of a synced copy of this log in `directory`, and close the old ones."""
        before = self.segments
        before.settle()
        self.directory = directory
        self.segments = LogSegments(self._fs, directory, loaded.segments)
        self._files = PartitionFiles(self._fs, directory, self.topic_id, self._epochs, exist=True, saved=False)
        self._files.save()
        self._cuts += 1  # a flush in progress is of files that are no longer used
        self._snapshot_offset, self._snapshot_position = self.segments.active.base_offset, 0
        self._write_snapshot()
        self.recovery_point = self.end_offset
        before.close()
        self._release_held()

    def close(self, clean: bool = True, *, sync: bool = True) -> None:
        """Flush everything and close the files. With `clean=False` they are only closed.

        Without `sync` everything is only written: the caller syncs all logs at once, before it writes checkpoints.
        Raises `KafkaStorageError` if that fails, or if the log is offline: the next start has to check it then.
        """
        self.closed = True
        self._tell_waiting()
        if self.held is not None:
            self.held.discard(self)
        try:
            if clean and self.failure is not None:
                raise errors.KafkaStorageError(f"{self._name} is offline, the next start checks it: {self.failure}")
            if clean and self._files.exist:
                self.segments.settle()
                self.segments.active.finish()
                self._write_snapshot()
                if sync:
                    self.flush()
                else:
                    self._write_all()
                self.remove_doomed(self._clock.time_ms() + self.config.file_delete_delay_ms)
        except OSError as error:
            raise errors.KafkaStorageError(f"{self._name}: it cannot be closed in order: {error}") from error
        finally:
            self.segments.close()

    def _write_all(self) -> None:
        self._files.begin_sync()
        for segment in self.segments.since(self.recovery_point):
            segment.indexes.write()
        self.recovery_point = self.end_offset
