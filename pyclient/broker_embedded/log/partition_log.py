"""The log of one partition: batches appended at its end, read from anywhere, and dropped at its start or cut from its end."""

from __future__ import annotations

import logging
import uuid
from bisect import bisect_right
from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from pyclient import errors
from pyclient.broker_embedded.log.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    CorruptCheckpoint,
    parse_topic_id,
    render_epochs,
    render_topic_id,
)
from pyclient.broker_embedded.log.config import LogConfig
from pyclient.broker_embedded.log.filesystem import Buffer, FileSystem
from pyclient.broker_embedded.log.producer_snapshot import render_snapshot
from pyclient.broker_embedded.log.producer_state import CompletedTransaction, ProducerState
from pyclient.broker_embedded.log.recovery import LoadedLog, load, load_producers
from pyclient.broker_embedded.log.replay import Marker, aborted, read_marker, replay_batch
from pyclient.broker_embedded.log.retention import SegmentFacts, expired
from pyclient.broker_embedded.log.segment import Segment
from pyclient.broker_embedded.log.time_search import first_not_before, newest
from pyclient.broker_embedded.log.validate import check_client_batch, read_single, writable
from pyclient.clock import Clock
from pyclient.net.stream import FileRegion
from pyclient.records import BatchHeader, check_crc, iter_batches, stamp_offsets
from pyclient.types import OffsetAndTimestamp

log = logging.getLogger("pyclient.broker_embedded")

Origin = Literal["client", "coordinator", "replica"]
Isolation = Literal["uncommitted", "committed", "log_end"]

PRODUCER_EXPIRATION_MS: Final = 86_400_000
_ENTRY_BYTES: Final = 8  # of the offset index, whose size limit closes a segment


class AppendInfo(NamedTuple):
    """Where a set of batches is. `append_time_ms` is -1 unless the broker's time is the records' (or it is a duplicate)."""

    base_offset: int
    last_offset: int
    append_time_ms: int
    log_start_offset: int
    duplicate: bool = False


class LogRead(NamedTuple):
    """An answer to a read: at most one region of a file, `size` bytes. `more`: a later segment has data as well.

    `aborted` are (producer id, first offset) of the aborted transactions that reach into it, None unless the read was
    of committed data. The regions hold their file open until they are released.
    """

    parts: list[FileRegion]
    size: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    end_offset: int
    aborted: list[tuple[int, int]] | None = None
    more: bool = False


class PartitionLog:
    """One partition's log, used from one thread.

    `replicated=False`: the high watermark is the end of the log. Errors of the disk are `KafkaStorageError`.
    """

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
        exists: bool,
    ) -> None:
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.config = config
        self.start_offset = loaded.start_offset
        self.end_offset = loaded.end_offset
        self.high_watermark = loaded.end_offset
        self.replicated = False
        self.recovery_point = min(recovery_point, loaded.end_offset)
        self.damage = loaded.damage
        self.failure: str | None = None
        self.on_append: list[Callable[[], object]] = []
        self.on_roll: Callable[[PartitionLog, Segment], None] | None = None
        self._fs = fs
        self._clock = clock
        self._name = f"{topic}-{partition}"
        self._segments = loaded.segments
        self._bases = [segment.base_offset for segment in loaded.segments]
        self._epochs = loaded.epochs
        self._producers = loaded.producers
        self._producers.high_watermark_moved(self.high_watermark)
        self._exists = exists
        self._snapshot_offset = -1
        self._unflushed_since: int | None = None
        self._doomed: list[tuple[int, str]] = []  # (when, path) of files that are to be removed

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
    ) -> PartitionLog:
        """Opens what is in `directory`, or an empty log whose files appear with the first append.

        `clean`: it was closed in order; otherwise batches from `recovery_point` on are checked and a torn tail is cut.
        `start_offset` is what the checkpoint says. Raises `InconsistentTopicId` if the files are another topic's.
        """
        name = f"{topic}-{partition}"
        stored = stored_topic_id(fs, directory)
        if stored is not None and topic_id is not None and stored != topic_id:
            raise errors.InconsistentTopicId(f"{name}: {directory} belongs to topic id {stored}, not {topic_id}")
        try:
            loaded = load(
                fs, directory, name, config, clean=clean, recovery_point=recovery_point, start_offset=start_offset
            )
        except OSError as error:
            raise errors.KafkaStorageError(f"{name}: {directory} cannot be opened: {error}") from error
        recovered = loaded.end_offset if clean else recovery_point
        return cls(
            directory,
            topic,
            partition,
            topic_id or stored,
            config,
            loaded,
            fs=fs,
            clock=clock,
            recovery_point=recovered,
            exists=stored is not None or any(segment.size for segment in loaded.segments),
        )

    def __repr__(self) -> str:
        return f"<PartitionLog {self._name} {self.start_offset}..{self.end_offset} segments={len(self._segments)}>"

    # What is known

    @property
    def leader_epoch(self) -> int:
        """The newest leader epoch, -1 if there is none."""
        return self._epochs.latest

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed readers stop: the high watermark, or the first transaction that is not decided."""
        unstable = self._producers.first_unstable_offset
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    @property
    def size(self) -> int:
        """Bytes of all segments' batches."""
        return sum(segment.size for segment in self._segments)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, oldest first; the last one is written to."""
        return tuple(self._segments)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch in which `offset` was written, -1 if unknown."""
        return self._epochs.epoch_at(offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch not above `epoch`, its end offset), as OffsetForLeaderEpoch answers; (-1, -1) if unknown."""
        return self._epochs.end_offset(epoch, self.end_offset)

    def offset_for_timestamp(self, timestamp: int) -> OffsetAndTimestamp | None:
        """The first record whose time (ms) is `timestamp` or later; None if there is none."""
        return first_not_before(self._segments, timestamp, self.start_offset)

    def latest_timestamp_offset(self) -> OffsetAndTimestamp | None:
        """The first record that has the largest time of all; None if no record has a time."""
        return newest(self._segments, self.start_offset)

    # Appending

    def append(self, batches: Buffer, *, leader_epoch: int, now_ms: int, origin: Origin = "client") -> AppendInfo:
        """Puts batches at the end. They are stamped in place if their memory can be written.

        "client": one batch, checked against every rule. "coordinator": one batch of the broker's own, which may be a
        marker. "replica": any number, with the offsets and epochs that the leader gave; a cut one at the end is ignored.
        Raises the `BrokerError` that a client is to be told; nothing was written then.
        """
        if self.failure is not None:
            raise errors.KafkaStorageError(f"{self._name} is offline: {self.failure}")
        if origin == "replica":
            return self._append_replica(writable(batches), now_ms)
        data = writable(batches)
        if origin == "client":
            data, header = check_client_batch(data, self.config, now_ms, self._name)
        else:
            header = read_single(data, self._name)
        marker: Marker | None = None
        if header.producer_id >= 0:
            if header.is_control:
                marker = self._checked_marker(data, header)
            elif origin == "client":
                duplicate = self._producers.duplicate_of(header)
                if duplicate is not None:
                    at = duplicate.first_offset, duplicate.last_offset, duplicate.timestamp
                    return AppendInfo(*at, self.start_offset, duplicate=True)
                self._producers.check_batch(header)
        base = self.end_offset
        last = base + header.last_offset_delta
        stamp_offsets(data, 0, base, leader_epoch)
        segment = self._segment_for(len(data), last, header.max_timestamp, now_ms)
        self._note_epoch(leader_epoch, base)
        self._write(segment, data, last, header.max_timestamp)
        self.end_offset = last + 1
        if header.producer_id >= 0:
            self._note_producer(segment, header, base, marker)
        self._appended()
        append_time = now_ms if self.config.log_append_time and origin == "client" else -1
        return AppendInfo(base, last, append_time, self.start_offset)

    def _checked_marker(self, data: memoryview, header: BatchHeader) -> Marker | None:
        try:
            marker = read_marker(data, header)
        except errors.CorruptRecord as error:
            raise errors.InvalidRecord(f"{self._name}: {error}") from error
        if marker is not None:
            self._producers.check_marker(header.producer_id, header.producer_epoch, marker.coordinator_epoch)
        return marker

    def _note_producer(self, segment: Segment, header: BatchHeader, base: int, marker: Marker | None) -> None:
        if not header.is_control:
            self._producers.add_batch(header, base)
        elif marker is not None:
            epoch = marker.coordinator_epoch
            completed = self._producers.add_marker(header, base, commit=marker.commit, coordinator_epoch=epoch)
            self._note_completed(segment, completed)

    def _note_completed(self, segment: Segment, completed: CompletedTransaction | None) -> None:
        if completed is not None and completed.aborted:
            try:
                segment.transactions.append(aborted(self._producers, completed))
            except OSError as error:  # the marker is in the log: recovery makes the index again
                self.fail(f"the transaction index cannot be written: {error}")

    def _append_replica(self, data: memoryview, now_ms: int) -> AppendInfo:
        batches = self._checked_copies(data)
        if not batches:
            return AppendInfo(self.end_offset, self.end_offset - 1, -1, self.start_offset)
        first, last = batches[0][1], batches[-1][1]
        data = data[: batches[-1][0] + last.size]
        if not self.size and self.start_offset == self.end_offset < first.base_offset:
            self.truncate_fully_and_start_at(first.base_offset)
        newest_time = max(header.max_timestamp for _, header in batches)
        segment = self._segment_for(len(data), last.last_offset, newest_time, now_ms)
        self._write(segment, data, last.last_offset, newest_time)
        for position, header in batches:
            self._note_epoch(header.leader_epoch, header.base_offset)
            batch = data[position : position + header.size]
            self._note_completed(segment, replay_batch(self._producers, header, lambda of=batch: of))  # type: ignore[misc]
        self.end_offset = last.next_offset
        self._appended()
        return AppendInfo(first.base_offset, last.last_offset, -1, self.start_offset)

    def _checked_copies(self, data: memoryview) -> list[tuple[int, BatchHeader]]:
        """The whole batches of a leader's answer; they must follow what is here, gaps are fine."""
        batches = []
        expected = self.end_offset
        try:
            for position, header in iter_batches(data):
                check_crc(data, position, header)
                if header.base_offset < expected or header.last_offset_delta < 0:
                    raise errors.OffsetOutOfRange(
                        f"{self._name}: a batch at offset {header.base_offset} cannot follow {expected}"
                    )
                expected = header.next_offset
                batches.append((position, header))
        except errors.ProtocolError as error:
            raise errors.CorruptMessage(f"{self._name}: {error}") from error
        return batches

    def _segment_for(self, size: int, last_offset: int, timestamp: int, now_ms: int) -> Segment:
        """The active segment, closed and followed by a new one first if the batch should not go into it."""
        config = self.config
        if size > config.segment_bytes:
            raise errors.RecordListTooLarge(
                f"{self._name}: a batch of {size} bytes, segment.bytes is {config.segment_bytes}"
            )
        segment = self._segments[-1]
        if not segment.size:
            if segment.base_offset == self.end_offset or segment.fits(last_offset):
                return segment
        elif (
            segment.size + size <= config.segment_bytes
            and segment.fits(last_offset)
            and (len(segment.index) + 1) * _ENTRY_BYTES <= config.segment_index_bytes
            and self._age(segment, timestamp, now_ms) <= config.segment_ms - config.segment_jitter_ms
        ):
            return segment
        return self.roll()

    def _age(self, segment: Segment, timestamp: int, now_ms: int) -> int:
        first = segment.first_timestamp
        return timestamp - first if first >= 0 and timestamp >= 0 else now_ms - self._fs.modified_ms(segment.log.path)

    def _write(self, segment: Segment, data: memoryview, last_offset: int, timestamp: int) -> None:
        try:
            if not self._exists:
                self._create_directory()
            segment.append(data, last_offset=last_offset, max_timestamp=timestamp)
        except OSError as error:
            if segment.broken:
                self.fail(f"a failed write could not be undone: {error}")
            raise errors.KafkaStorageError(f"{self._name}: the append failed: {error}") from error

    def _create_directory(self) -> None:
        """The files that must be there before any record is."""
        self._fs.make_directory(self.directory)
        if self.topic_id is not None:
            self._fs.replace(f"{self.directory}/{PARTITION_METADATA}", render_topic_id(self.topic_id))
        self._exists = True
        self._save_epochs()

    def _appended(self) -> None:
        if not self.replicated:
            self.high_watermark = self.end_offset
            self._producers.high_watermark_moved(self.end_offset)
        if self.end_offset - self.recovery_point >= self.config.flush_messages:
            self.flush()
        for callback in self.on_append:
            callback()

    def advance_high_watermark(self, offset: int) -> None:
        """For a replicated log: everything before `offset` is committed. Never moves back."""
        offset = min(offset, self.end_offset)
        if offset > self.high_watermark:
            self.high_watermark = offset
            self._producers.high_watermark_moved(offset)
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

        Batches are whole. `min_one_batch`: the first one is given even if it is larger.
        Raises `OffsetOutOfRange`.
        """
        found = self._find(offset, max_bytes, min_one_batch, isolation)
        stable = self.last_stable_offset
        aborted_: list[tuple[int, int]] | None = [] if isolation == "committed" else None
        if found is None:
            return LogRead([], 0, self.high_watermark, stable, self.start_offset, self.end_offset, aborted_)
        segment, position, length, upper = found
        if aborted_ is not None:
            aborted_ = self._aborted(segment, offset, upper)
        segment.log.retain()
        region = FileRegion(segment.log.fileno(), position, length, segment.log.release)
        more = segment is not self._segments[-1] and position + length == segment.size
        return LogRead(
            [region], length, self.high_watermark, stable, self.start_offset, self.end_offset, aborted_, more
        )

    def read_bytes(
        self, offset: int, max_bytes: int, *, min_one_batch: bool = True, isolation: Isolation = "log_end"
    ) -> bytes:
        """The same as `read`, as bytes."""
        found = self._find(offset, max_bytes, min_one_batch, isolation)
        if found is None:
            return b""
        segment, position, length, _upper = found
        return segment.log.pread(length, position)

    def _find(
        self, offset: int, max_bytes: int, min_one_batch: bool, isolation: Isolation
    ) -> tuple[Segment, int, int, int] | None:
        """(segment, position, length, an offset at or behind the end of that stretch), None if there is nothing to read."""
        if not self.start_offset <= offset <= self.end_offset:
            raise errors.OffsetOutOfRange(
                f"{self._name}: offset {offset} is not within {self.start_offset} and {self.end_offset}"
            )
        limit = self._limit(isolation)
        if offset >= limit:
            return None
        for index in range(bisect_right(self._bases, offset) - 1, len(self._segments)):
            segment = self._segments[index]
            if segment.base_offset >= limit:
                return None
            found = segment.locate(offset) if segment.size else None
            if found is not None:
                break
        else:
            return None
        position, header = found
        end, upper = self._readable_end(index, limit)
        if end - position > max_bytes:
            end, upper = position, offset
            if header.size <= max_bytes:
                end, upper = self._whole_batches(segment, position, max_bytes)
            elif min_one_batch:
                end, upper = position + header.size, header.next_offset
        return (segment, position, end - position, upper) if end > position else None

    def _whole_batches(self, segment: Segment, position: int, max_bytes: int) -> tuple[int, int]:
        """(position, offset) of the first batch that would end behind `max_bytes`; it is somewhere behind the last index entry."""
        last = position + max_bytes
        for at, header in segment.walk(max(position, segment.index.boundary(last))):
            if at + header.size > last:
                return at, header.base_offset
        return segment.size, self.end_offset

    def _limit(self, isolation: Isolation) -> int:
        if isolation == "uncommitted":
            return self.high_watermark
        return self.last_stable_offset if isolation == "committed" else self.end_offset

    def _readable_end(self, index: int, limit: int) -> tuple[int, int]:
        """(position, offset) where a segment's readable batches end."""
        segment = self._segments[index]
        end_offset = self._bases[index + 1] if index + 1 < len(self._bases) else self.end_offset
        if limit >= end_offset:
            return segment.size, end_offset
        found = segment.locate(limit)
        return (segment.size if found is None else found[0]), limit

    def _aborted(self, segment: Segment, from_offset: int, to_offset: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for later in self._segments[self._segments.index(segment) :]:
            entries, complete = later.transactions.collect(from_offset, to_offset)
            found += [(entry.producer_id, entry.first_offset) for entry in entries]
            if complete:
                break
        return found

    # Segments coming and going

    def roll(self) -> Segment:
        """Closes the active segment and begins the next one at the end of the log."""
        active = self._segments[-1]
        try:
            active.finish()
            self.snapshot_producers()
        except OSError as error:
            raise errors.KafkaStorageError(f"{self._name}: the segment cannot be closed: {error}") from error
        segment = self._new_segment(self.end_offset)
        if active.size:
            self._segments.append(segment)
            self._bases.append(segment.base_offset)
            if self.on_roll is not None:
                self.on_roll(self, active)
            else:
                self.flush()
        else:
            self._replace_segments([segment])
        return segment

    def _new_segment(self, base_offset: int) -> Segment:
        return Segment(self._fs, self.directory, base_offset, size=0, index_interval=self.config.index_interval_bytes)

    def _replace_segments(self, segments: list[Segment]) -> None:
        for gone in self._segments:
            if gone not in segments:
                self._remove(gone)
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]

    def _remove(self, segment: Segment) -> None:
        paths = segment.mark_deleted()
        due = self._clock.time_ms() + self.config.file_delete_delay_ms
        self._doomed += [(due, path) for path in paths]

    def apply_retention(self, now_ms: int) -> int:
        """Drops segments that are too old, too much, or before the log's start; forgets idle producers. How many segments went."""
        self._producers.expire(now_ms, PRODUCER_EXPIRATION_MS)
        self.remove_doomed(now_ms)
        facts = [self._facts(index) for index in range(len(self._segments))]
        count = expired(
            facts, self.config, now_ms=now_ms, start_offset=self.start_offset, high_watermark=self.high_watermark
        )
        if count == 0:
            return 0
        if count == len(self._segments):
            self.roll()
        for segment in self._segments[:count]:
            self._remove(segment)
        del self._segments[:count], self._bases[:count]
        self._start_at(max(self.start_offset, self._bases[0]))
        self.remove_doomed(now_ms)
        return count

    def _facts(self, index: int) -> SegmentFacts:
        segment = self._segments[index]
        end = self._bases[index + 1] if index + 1 < len(self._bases) else self.end_offset
        timestamp = segment.largest_timestamp
        if timestamp < 0 and segment.size:
            timestamp = self._fs.modified_ms(segment.log.path)
        return SegmentFacts(end, segment.size, timestamp)

    def remove_doomed(self, now_ms: int) -> None:
        """Removes deleted files whose `file.delete.delay.ms` is over."""
        due = [path for when, path in self._doomed if when <= now_ms]
        self._doomed = [(when, path) for when, path in self._doomed if when > now_ms]
        for path in due:
            self._fs.remove(path)

    def delete_records_before(self, offset: int) -> None:
        """Lets the log start at `offset` (DeleteRecords); the files go with retention. Raises `OffsetOutOfRange` above the high watermark."""
        if offset > self.high_watermark:
            raise errors.OffsetOutOfRange(
                f"{self._name}: offset {offset} is above the high watermark {self.high_watermark}"
            )
        self._start_at(max(offset, self.start_offset))

    def _start_at(self, offset: int) -> None:
        self.start_offset = offset
        if self._epochs.truncate_from_start(offset):
            self._save_epochs()

    # Cutting the end

    def truncate_to(self, offset: int) -> None:
        """Drops everything from `offset` on; a batch that `offset` is inside of goes as a whole."""
        if offset >= self.end_offset:
            return
        if offset < self._bases[0] or offset < self.start_offset:
            self.truncate_fully_and_start_at(offset)
            return
        keep = max(bisect_right(self._bases, offset), 1)
        for segment in self._segments[keep:]:
            self._remove(segment)
        del self._segments[keep:], self._bases[keep:]
        self._segments[-1].truncate(offset)
        self._end_at(offset)
        for name in self._fs.list_files(self.directory):
            if name.endswith(".snapshot") and name[:20].isdigit() and int(name[:20]) > offset:
                self._fs.remove(f"{self.directory}/{name}")
        self._producers = load_producers(self._fs, self.directory, self._name, self._segments, offset)
        self._producers.high_watermark_moved(self.high_watermark)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drops everything and begins anew, empty, at `offset`."""
        self._replace_segments([])
        self._segments, self._bases = [self._new_segment(offset)], [offset]
        self.start_offset = offset
        self._end_at(offset)
        for name in self._fs.list_files(self.directory):
            if name.endswith(".snapshot"):
                self._fs.remove(f"{self.directory}/{name}")
        self._producers = ProducerState(self._name)

    def _end_at(self, offset: int) -> None:
        self.end_offset = offset
        self.high_watermark = min(self.high_watermark, offset) if self.replicated else offset
        self.recovery_point = min(self.recovery_point, offset)
        if self._epochs.truncate_from_end(offset):
            self._save_epochs()

    # Leader epochs

    def begin_epoch(self, epoch: int) -> None:
        """This node leads from now on: `epoch` begins at the end of the log, even if nothing is ever written in it."""
        self._note_epoch(epoch, self.end_offset)

    def _note_epoch(self, epoch: int, offset: int) -> None:
        if epoch >= 0 and epoch != self._epochs.latest and self._epochs.assign(epoch, offset):
            self._save_epochs()

    def _save_epochs(self) -> None:
        """Not synced: after a crash of the machine they are read from the batches."""
        if self._exists:
            self._fs.replace(f"{self.directory}/{LEADER_EPOCHS}", render_epochs(self._epochs), sync=False)

    # To the disk

    def snapshot_producers(self) -> None:
        """Writes the producers' state as of the end of the log, which spares a restart to read the batches before it."""
        if self._exists and self._snapshot_offset != self.end_offset:
            path = f"{self.directory}/{self.end_offset:020d}.snapshot"
            self._fs.replace(path, render_snapshot(self._producers), sync=False)
            self._snapshot_offset = self.end_offset

    def flush(self) -> None:
        """Returns when everything appended so far is on the disk. Raises `KafkaStorageError`, after which the log is offline."""
        try:
            for index, segment in enumerate(self._segments):
                end = self._bases[index + 1] if index + 1 < len(self._bases) else self.end_offset
                if segment.size and end > self.recovery_point:
                    segment.write_indexes()
                    for file in segment.files():
                        file.sync()
            if self._exists:
                self._fs.sync_directory(self.directory)
        except (
            OSError
        ) as error:  # what the kernel could not write it may have forgotten: nothing can be promised any more
            self.fail(f"a flush failed: {error}")
            raise errors.KafkaStorageError(f"{self._name}: the flush failed: {error}") from error
        self.recovery_point = self.end_offset

    def flush_if_due(self, now_ms: int) -> None:
        """Flushes if the oldest append that is not on the disk is `flush.ms` old, as told by calls of this method."""
        if self.recovery_point == self.end_offset or self.failure is not None:
            self._unflushed_since = None
        elif self._unflushed_since is None:
            self._unflushed_since = now_ms
        elif now_ms - self._unflushed_since >= self.config.flush_ms:
            self._unflushed_since = None
            self.flush()

    def segment_flushed(self, segment: Segment) -> None:
        """A closed segment is on the disk; the log up to its end is, if everything before it was."""
        if segment in self._segments[:-1] and segment.base_offset <= self.recovery_point:
            self.recovery_point = max(self.recovery_point, self._bases[self._segments.index(segment) + 1])

    def update_config(self, config: LogConfig) -> None:
        """Takes other configs; they hold from the next append on."""
        self.config = config
        self._segments[-1].index_interval = config.index_interval_bytes

    def close(self, clean: bool = True) -> None:
        """Brings everything to the disk and gives the files back. With `clean=False` they are only let go of, as in a crash."""
        try:
            if clean and self._exists and self.failure is None:
                self._segments[-1].finish()
                self.snapshot_producers()
                self.flush()
        except OSError as error:
            raise errors.KafkaStorageError(f"{self._name}: closing failed: {error}") from error
        finally:
            for segment in self._segments:
                segment.close()
        for _when, path in self._doomed if clean else ():
            self._fs.remove(path)


def stored_topic_id(fs: FileSystem, directory: str) -> uuid.UUID | None:
    """Whose files are in the directory; None if there are none, or they do not say."""
    path = f"{directory}/{PARTITION_METADATA}"
    content = fs.read(path)
    if content is None:
        return None
    try:
        return parse_topic_id(content, path)
    except CorruptCheckpoint as error:
        log.warning("%s", error)
        return None
