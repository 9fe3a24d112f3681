"""The log of one partition: batches appended at its end, read anywhere, dropped at its start, cut off its end."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from typing import Final

from pyclient import errors
from pyclient.broker_embedded.log.checkpoints import stored_topic_id, write_topic_id
from pyclient.broker_embedded.log.config import LogConfig
from pyclient.broker_embedded.log.filesystem import Buffer, FileSystem
from pyclient.broker_embedded.log.partition_files import PartitionFiles
from pyclient.broker_embedded.log.producer_snapshot import drop_snapshots_behind, remove_snapshot, write_snapshot
from pyclient.broker_embedded.log.producer_state import CompletedTransaction, ProducerState
from pyclient.broker_embedded.log.reader import Stretch, aborted_between, find_stretch
from pyclient.broker_embedded.log.recovery import LoadedLog, load, load_producers, whole_batches
from pyclient.broker_embedded.log.replay import Marker, aborted, read_marker, replay_batch
from pyclient.broker_embedded.log.results import AppendInfo, Isolation, LogRead, Origin
from pyclient.broker_embedded.log.retention import SegmentFacts, expired
from pyclient.broker_embedded.log.segment import DamagedSegment, Segment
from pyclient.broker_embedded.log.segments import Segments
from pyclient.broker_embedded.log.time_search import first_not_before, newest
from pyclient.broker_embedded.log.validate import check_client_batch, check_copies, read_single, writable
from pyclient.clock import Clock
from pyclient.net.stream import FileRegion
from pyclient.records import BatchHeader, stamp_offsets
from pyclient.types import OffsetAndTimestamp

__all__ = ["AppendInfo", "Isolation", "LogRead", "Origin", "PartitionLog"]

log = logging.getLogger("pyclient.broker_embedded")

PRODUCER_EXPIRATION_MS: Final = 86_400_000
_SNAPSHOT_BYTES: Final = 4 << 20  # a crash costs reading the headers of so many bytes before the recovery point
_INDEX_ENTRY_BYTES: Final = 8  # the size limit of the offset index closes a segment, too


class PartitionLog:
    """One partition's log, used from one thread. Errors of the disk are `KafkaStorageError`, and change nothing."""

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
        self.on_append: list[Callable[[], object]] = []
        self.on_roll: Callable[[PartitionLog, Segment], None] | None = None
        self.segments = Segments(fs, directory, loaded.segments)
        self.producers = loaded.producers
        self._fs = fs
        self._clock = clock
        self._name = f"{topic}-{partition}"
        self._files = PartitionFiles(fs, directory, topic_id, loaded.epochs, exist=loaded.exists)
        self._epochs = loaded.epochs
        self._unflushed_since: int | None = None
        self._snapshot_offset = self.segments.active.base_offset
        self._snapshot_position = 0
        self.producers.high_watermark_moved(self.high_watermark)

    @classmethod
    def open(
        cls,
        directory: str,
        topic: str,
        partition: int,
        topic_id: uuid.UUID | None,
        config: LogConfig,
        *,
        fs: FileSystem,
        clock: Clock,
        clean: bool,
        recovery_point: int = 0,
        start_offset: int = 0,
        high_watermark: int | None = None,
    ) -> PartitionLog:
        """Opens what is in `directory`, or an empty log whose files appear with the first append.

        `clean`: it was closed in order; otherwise batches from `recovery_point` on are checked and a torn tail is cut.
        `start_offset` and `high_watermark` are what the checkpoints say; without a high watermark the log is not
        replicated, and everything in it is committed. Raises `InconsistentTopicId` if the files are another topic's.
        """
        name = f"{topic}-{partition}"
        try:
            stored = stored_topic_id(fs, directory)
            if stored is not None and topic_id is not None and stored != topic_id:
                raise errors.InconsistentTopicId(f"{name}: {directory} is of topic id {stored}, not {topic_id}")
            loaded = load(
                fs, directory, name, config, clean=clean, recovery_point=recovery_point, start_offset=start_offset
            )
            if loaded.exists and stored is None and topic_id is not None:
                write_topic_id(fs, directory, topic_id)
        except OSError as error:
            raise errors.KafkaStorageError(f"{name}: {directory} cannot be opened: {error}") from error
        return cls(
            directory,
            topic,
            partition,
            topic_id or stored,
            config,
            loaded,
            fs=fs,
            clock=clock,
            recovery_point=loaded.end_offset if clean and loaded.damage is None else recovery_point,
            high_watermark=high_watermark,
        )

    def __repr__(self) -> str:
        state = "" if self.failure is None else f" offline: {self.failure}"
        return (
            f"<PartitionLog {self._name} {self.start_offset}..{self.end_offset} segments={len(self.segments)}{state}>"
        )

    # What is known

    @property
    def leader_epoch(self) -> int:
        """The newest leader epoch, -1 if there is none."""
        return self._epochs.latest

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed readers stop: the high watermark, or the first transaction that is not decided."""
        unstable = self.producers.first_unstable_offset
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    @property
    def size(self) -> int:
        """Bytes of all batches in the log's files."""
        return self.segments.size

    def epoch_at(self, offset: int) -> int:
        """The leader epoch in which `offset` was written, -1 if unknown."""
        return self._epochs.epoch_at(offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch not above `epoch`, its end offset), as OffsetForLeaderEpoch answers; (-1, -1) if unknown."""
        return self._epochs.end_offset(epoch, self.end_offset)

    def offset_for_timestamp(self, timestamp: int) -> OffsetAndTimestamp | None:
        """The first record whose time (ms) is `timestamp` or later; None if there is none."""
        return first_not_before(self.segments, timestamp, self.start_offset)

    def latest_timestamp_offset(self) -> OffsetAndTimestamp | None:
        """The first record that has the largest time of all; None if no record has a time."""
        return newest(self.segments, self.start_offset)

    # Appending

    def append(self, batches: Buffer, *, leader_epoch: int, now_ms: int, origin: Origin = "client") -> AppendInfo:
        """Puts batches at the end. They are stamped in place if their memory can be written.

        "client": one batch, checked against every rule. "coordinator": one batch of the broker's own, which may be a
        marker. "replica": any number, with the leader's offsets and epochs; a cut one at the end is ignored.
        Raises the `BrokerError` that a client is to be told; nothing was written then.
        """
        if self.failure is not None:
            raise errors.KafkaStorageError(f"{self._name} is offline: {self.failure}")
        data = writable(batches)
        if origin == "replica":
            return self._append_copies(data, now_ms)
        if origin == "client":
            data, header = check_client_batch(data, self.config, now_ms, self._name)
        else:
            header = read_single(data, self._name)
        has_producer = header.producer_id >= 0
        marker: Marker | None = None
        if has_producer:
            if header.is_control:
                marker = self._checked_marker(data, header)
            elif origin == "client":
                duplicate = self.producers.duplicate_of(header)
                if duplicate is not None:
                    at = duplicate.first_offset, duplicate.last_offset, duplicate.timestamp
                    return AppendInfo(*at, self.start_offset, duplicate=True)
                self.producers.check_batch(header)
        base = self.end_offset
        last = base + header.last_offset_delta
        segment = self._segment_for(len(data), last, header.max_timestamp, now_ms)
        if leader_epoch != self._epochs.latest:
            self._files.note_epoch(leader_epoch, base)
        stamp_offsets(data, 0, base, leader_epoch)
        self._write(segment, data, last, header.max_timestamp)
        self.end_offset = last + 1
        if has_producer:
            self._note_producer(segment, header, base, marker)
        self._appended()
        append_time = now_ms if origin == "client" and self.config.log_append_time else -1
        return AppendInfo(base, last, append_time, self.start_offset)

    def _checked_marker(self, data: memoryview, header: BatchHeader) -> Marker | None:
        try:
            marker = read_marker(data, header)
        except errors.CorruptRecord as error:
            raise errors.InvalidRecord(f"{self._name}: {error}") from error
        if marker is not None:
            self.producers.check_marker(header.producer_id, header.producer_epoch, marker.coordinator_epoch)
        return marker

    def _note_producer(self, segment: Segment, header: BatchHeader, base: int, marker: Marker | None) -> None:
        if not header.is_control:
            self.producers.add_batch(header, base)
        elif marker is not None:
            epoch = marker.coordinator_epoch
            completed = self.producers.add_marker(header, base, commit=marker.commit, coordinator_epoch=epoch)
            self._note_completed(segment, completed)

    def _note_completed(self, segment: Segment, completed: CompletedTransaction | None) -> None:
        if completed is not None and completed.aborted:
            try:
                segment.transactions.append(aborted(self.producers, completed))
            except OSError as error:  # the marker is in the log: opening it again makes the index again
                self.fail(f"the transaction index cannot be written: {error}")

    def _append_copies(self, data: memoryview, now_ms: int) -> AppendInfo:
        batches = check_copies(data, self.end_offset, self._name)
        if not batches:
            return AppendInfo(self.end_offset, self.end_offset - 1, -1, self.start_offset)
        first, last = batches[0][1], batches[-1][1]
        data = data[: batches[-1][0] + last.size]
        if self.start_offset == self.end_offset < first.base_offset and not self.size:
            self.truncate_fully_and_start_at(first.base_offset)
        largest = max(header.max_timestamp for _, header in batches)
        segment = self._segment_for(len(data), last.last_offset, largest, now_ms)
        self._write(segment, data, last.last_offset, largest)
        for position, header in batches:
            self._files.note_epoch(header.leader_epoch, header.base_offset)
            batch = data[position : position + header.size]
            self._note_completed(segment, replay_batch(self.producers, header, batch.tobytes))
        self.end_offset = last.next_offset
        self._appended()
        return AppendInfo(first.base_offset, last.last_offset, -1, self.start_offset)

    def _segment_for(self, size: int, last_offset: int, timestamp: int, now_ms: int) -> Segment:
        """The active segment, closed and followed by a new one first if the batch should not go into it."""
        config = self.config
        if size > config.segment_bytes:
            raise errors.RecordListTooLarge(
                f"{self._name}: {size} bytes at once, segment.bytes is {config.segment_bytes}"
            )
        segment = self.segments.active
        if not segment.size:
            fits = segment.fits(last_offset)
        else:
            fits = (
                segment.size + size <= config.segment_bytes
                and segment.fits(last_offset)
                and (len(segment.index) + 1) * _INDEX_ENTRY_BYTES <= config.segment_index_bytes
                and self._age(segment, timestamp, now_ms) <= config.segment_ms - config.segment_jitter_ms
            )
        return segment if fits else self.roll()

    def _age(self, segment: Segment, timestamp: int, now_ms: int) -> int:
        first = segment.first_timestamp
        return timestamp - first if first >= 0 and timestamp >= 0 else now_ms - self._fs.modified_ms(segment.log.path)

    def _write(self, segment: Segment, data: memoryview, last_offset: int, timestamp: int) -> None:
        try:
            if not self._files.exist:
                self._files.create()
            segment.append(data, last_offset=last_offset, max_timestamp=timestamp)
        except OSError as error:
            raise errors.KafkaStorageError(f"{self._name}: the append failed: {error}") from error

    def _appended(self) -> None:
        if not self.replicated:
            self.high_watermark = self.end_offset
            self.producers.high_watermark_moved(self.end_offset)
        if self.end_offset - self.recovery_point >= self.config.flush_messages:
            self.flush()
        for callback in self.on_append:
            callback()

    def advance_high_watermark(self, offset: int) -> None:
        """For a replicated log: everything before `offset` is committed. Never moves back."""
        offset = min(offset, self.end_offset)
        if offset > self.high_watermark:
            self.high_watermark = offset
            self.producers.high_watermark_moved(offset)
            for callback in self.on_append:
                callback()

    def fail(self, reason: str) -> None:
        """Takes the log offline: appends are refused until it is opened again."""
        log.error("%s goes offline: %s", self._name, reason)
        self.failure = reason

    # Reading

    def read(
        self, offset: int, max_bytes: int, *, min_one_batch: bool = True, isolation: Isolation = "uncommitted"
    ) -> LogRead:
        """The batches from the one that holds `offset` on, up to `max_bytes`, without copying them.

        Batches are whole, and of one segment. `min_one_batch`: the first one is given even if it is larger.
        Raises `OffsetOutOfRange`.
        """
        stretch = self._find(offset, max_bytes, min_one_batch, isolation)
        committed = isolation == "committed"
        known = self.high_watermark, self.last_stable_offset, self.start_offset, self.end_offset
        if stretch is None:
            return LogRead([], 0, *known, [] if committed else None)
        file = stretch.segment.log
        file.retain()
        region = FileRegion(file.fileno(), stretch.position, stretch.length, file.release)
        aborted_ = aborted_between(self.segments, offset, stretch.end_offset) if committed else None
        return LogRead([region], stretch.length, *known, aborted_, stretch.more)

    def read_bytes(
        self, offset: int, max_bytes: int, *, min_one_batch: bool = True, isolation: Isolation = "log_end"
    ) -> bytes:
        """The same as `read`, as bytes."""
        stretch = self._find(offset, max_bytes, min_one_batch, isolation)
        return b"" if stretch is None else stretch.segment.log.pread(stretch.length, stretch.position)

    def _find(self, offset: int, max_bytes: int, min_one_batch: bool, isolation: Isolation) -> Stretch | None:
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
        )

    def verify(self) -> Iterator[DamagedSegment | None]:
        """Checks every batch of the log against its checksum, one a step; a step that meets damage gives it.

        What is behind damage in the same segment is not looked at.
        """
        for segment in list(self.segments):
            try:
                for _ in whole_batches(segment, 0):
                    yield None
            except DamagedSegment as error:
                yield error

    # The start of the log

    def roll(self) -> Segment:
        """Closes the active segment and begins the next one at the log's end. An empty one is only moved there."""
        active = self.segments.active
        if not active.size:
            if active.base_offset == self.end_offset:
                return active
            return self.segments.begin(self.end_offset, self.config.index_interval_bytes)
        try:
            active.finish()
            self._write_snapshot()
            self._files.sync()
        except OSError as error:
            raise errors.KafkaStorageError(f"{self._name}: a segment cannot be closed: {error}") from error
        segment = self.segments.begin(self.end_offset, self.config.index_interval_bytes)
        self._snapshot_position = 0
        if self.on_roll is not None:
            self.on_roll(self, active)
        else:
            self.flush()
        return segment

    def apply_retention(self, now_ms: int) -> int:
        """Drops segments that are too old, too much, or before the log's start; how many. Forgets idle producers."""
        self.producers.expire(now_ms, PRODUCER_EXPIRATION_MS)
        self.segments.remove_doomed(now_ms)
        facts = [self._facts(segment) for segment in self.segments]
        count = expired(
            facts, self.config, now_ms=now_ms, start_offset=self.start_offset, high_watermark=self.high_watermark
        )
        if count:
            if count == len(self.segments):
                self.roll()
            self.segments.drop_oldest(count, now_ms + self.config.file_delete_delay_ms)
            self._start_at(max(self.start_offset, self.segments.first_offset))
            self.segments.remove_doomed(now_ms)
        return count

    def _facts(self, segment: Segment) -> SegmentFacts:
        timestamp = segment.largest_timestamp
        if timestamp < 0 and segment.size:
            timestamp = self._fs.modified_ms(segment.log.path)
        return SegmentFacts(self.segments.end_of(segment, self.end_offset), segment.size, timestamp)

    def delete_records_before(self, offset: int) -> None:
        """Lets the log start at `offset` (DeleteRecords); whole segments go with retention.

        Raises `OffsetOutOfRange` above the high watermark. A crash may forget it until checkpoints are written.
        """
        if offset > self.high_watermark:
            raise errors.OffsetOutOfRange(f"{self._name}: {offset} is above the high watermark {self.high_watermark}")
        self._start_at(max(offset, self.start_offset))

    def _start_at(self, offset: int) -> None:
        self.start_offset = offset
        self._files.truncate_epochs(start=offset)

    # The end of the log

    def truncate_to(self, offset: int) -> None:
        """Drops everything from `offset` on; a batch that `offset` is inside of goes whole, and the log ends there.

        Checkpoints are to be written before anything is appended: the noted recovery point may be behind the new end.
        """
        if offset >= self.end_offset:
            return
        if offset < max(self.segments.first_offset, self.start_offset):
            self.truncate_fully_and_start_at(offset)
            return
        self.segments.drop_behind(offset, self._clock.time_ms() + self.config.file_delete_delay_ms)
        offset = self.segments.active.truncate(offset)
        if offset < self.start_offset:  # the log starts inside the batch that went
            self.truncate_fully_and_start_at(self.start_offset)
            return
        self._end_at(offset)
        self.producers = load_producers(self._fs, self.directory, self._name, list(self.segments), offset)
        self.producers.high_watermark_moved(self.high_watermark)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drops everything and begins anew, empty, at `offset`."""
        due_ms = self._clock.time_ms() + self.config.file_delete_delay_ms
        self.segments.drop_all(offset, self.config.index_interval_bytes, due_ms)
        self.start_offset = offset
        self._end_at(offset)
        self.producers = ProducerState(self._name)

    def _end_at(self, offset: int) -> None:
        self.end_offset = offset
        self.high_watermark = min(self.high_watermark, offset) if self.replicated else offset
        self.recovery_point = min(self.recovery_point, offset)
        drop_snapshots_behind(self._fs, self.directory, offset)
        self._snapshot_offset, self._snapshot_position = self.segments.active.base_offset, 0
        self._files.truncate_epochs(end=offset)

    # Leader epochs

    def begin_epoch(self, epoch: int) -> None:
        """This node leads from now on: `epoch` begins at the end of the log, even if nothing is ever written in it."""
        self._files.note_epoch(epoch, self.end_offset)

    # To the disk

    def flush(self) -> None:
        """Returns when everything appended so far is on the disk.

        Raises `KafkaStorageError`, and the log is offline then: what the system could not write it may have forgotten.
        """
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

    def _write_snapshot(self) -> None:
        """Recovery begins at a snapshot; the one before is kept only if a segment begins there."""
        if self._snapshot_offset not in (self.end_offset, self.segments.active.base_offset):
            remove_snapshot(self._fs, self.directory, self._snapshot_offset)
        write_snapshot(self._fs, self.directory, self.end_offset, self.producers)
        self._snapshot_offset, self._snapshot_position = self.end_offset, self.segments.active.size

    def flush_if_due(self, now_ms: int) -> None:
        """Flushes if it is `flush.ms` ago that a call of this method found something that is not on the disk."""
        if self.recovery_point == self.end_offset or self.failure is not None:
            self._unflushed_since = None
        elif self._unflushed_since is None:
            self._unflushed_since = now_ms
        elif now_ms - self._unflushed_since >= self.config.flush_ms:
            self._unflushed_since = None
            self.flush()

    def segment_flushed(self, segment: Segment) -> None:
        """A closed segment is on the disk; so is the log up to its end, if everything before it was."""
        if segment.base_offset <= self.recovery_point and segment in self.segments:
            end = self.segments.end_of(segment, self.recovery_point)
            self.recovery_point = max(self.recovery_point, end)

    def update_config(self, config: LogConfig) -> None:
        """Takes other configs; they hold from the next append on."""
        self.config = config
        self.segments.active.index_interval = config.index_interval_bytes

    def close(self, clean: bool = True) -> None:
        """Brings everything to the disk and gives the files back. With `clean=False` they are only let go of."""
        try:
            if clean and self._files.exist and self.failure is None:
                self.segments.active.finish()
                self._write_snapshot()
                self.flush()
                self.segments.remove_doomed(self._clock.time_ms() + self.config.file_delete_delay_ms)
        except OSError as error:
            raise errors.KafkaStorageError(f"{self._name}: it cannot be closed in order: {error}") from error
        finally:
            self.segments.close()
