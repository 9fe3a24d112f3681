"""The log of one partition: batches are appended at its end, read anywhere, deleted at its start, truncated."""

from __future__ import annotations

import uuid
from typing import Final

from pyclient import errors
from pyclient.broker_embedded.log.checkpoints import (
    PARTITION_METADATA,
    stored_topic_id,
    write_topic_id,
)
from pyclient.broker_embedded.log.config import LogConfig
from pyclient.broker_embedded.log.filesystem import Buffer, FileSystem
from pyclient.broker_embedded.log.log_loader import load
from pyclient.broker_embedded.log.log_reader import AppendOrigin, FetchDataInfo, FetchIsolation, LogAppendInfo
from pyclient.broker_embedded.log.log_segment import LogSegment
from pyclient.broker_embedded.log.log_validator import (
    CheckedBatch,
    check_client_batch,
    check_copies,
    read_single,
    stamp_client_batch,
    writable,
)
from pyclient.broker_embedded.log.partition_directories import contradiction, foreign_entries
from pyclient.broker_embedded.log.producer_state_manager import (
    CompletedTransaction,
    EndTransactionMarker,
    aborted,
    read_marker,
    replay_batch,
)
from pyclient.broker_embedded.log.steps import Steps
from pyclient.broker_embedded.log.stored_log import StoredLog
from pyclient.clock import Clock
from pyclient.records import BatchHeader, stamp_offsets
from pyclient.types import TopicPartition

__all__ = ["AppendOrigin", "FetchDataInfo", "FetchIsolation", "LogAppendInfo", "UnifiedLog"]

_INDEX_ENTRY_BYTES: Final = 8  # a full offset index closes a segment, too


class UnifiedLog(StoredLog):
    """One partition's log, used from one thread. Failures of the disk are `KafkaStorageError`, and change nothing."""

    @classmethod
    def opening(
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
    ) -> Steps[UnifiedLog]:
        """Open the log in `directory`, or an empty one whose files are created by the first append; in steps.

        `clean`: it was closed cleanly; otherwise batches from `recovery_point` on are checked and a torn tail is cut.
        `start_offset` and `high_watermark` are checkpointed values; without a high watermark the log is not replicated,
        and everything in it is committed. Raises `KafkaStorageError` if the directory cannot be read, is another
        topic's, or has foreign files and no `partition.metadata`; nothing is changed then. The caller has exclusive use
        of the directory; an abandoned opening can be repeated.
        """
        name = f"{topic}-{partition}"
        try:
            stored = stored_topic_id(fs, directory)
            if stored is not None and topic_id is not None and stored != topic_id:
                raise errors.KafkaStorageError(
                    contradiction(directory, TopicPartition(topic, partition), stored, topic_id)
                )
            foreign = foreign_entries(fs, directory) if stored is None else []
            if foreign:
                raise errors.KafkaStorageError(
                    f"{directory} has no {PARTITION_METADATA}, and {foreign[0]!r} in it is no file of a log: {name} is "
                    "offline and the directory stays as it is; move it away"
                )
            loaded = yield from load(
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

    # Appending

    def append(
        self,
        batches: Buffer,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = "client",
        checked: CheckedBatch | None = None,
        on_loop: bool = False,
    ) -> LogAppendInfo:
        """Append batches. They are stamped in place if their memory is writable.

        "client": one batch, checked against every rule; `checked` is the result of an earlier check, valid while the
        log's configs are the same. "coordinator": one batch of the broker's own, which may be a marker. "replica": any
        number, with the leader's offsets and epochs; a cut one at the end is ignored.
        Raises the `BrokerError` for the client; nothing was written then. With `on_loop` also `TooLongForLoop`: the
        caller must check the batch on another thread.
        """
        if self.failure is not None:
            raise errors.KafkaStorageError(f"{self._name} is offline: {self.failure}")
        data = writable(batches)
        if origin == "replica":
            return self._append_copies(data, now_ms)
        if origin == "client":
            if checked is None or checked.config is not self.config:
                checked = check_client_batch(data, self.config, now_ms, self._name, on_loop=on_loop)
            data, header = stamp_client_batch(checked, now_ms)
        else:
            header = read_single(data, self._name)
        has_producer = header.producer_id >= 0
        marker: EndTransactionMarker | None = None
        if has_producer:
            if header.is_control:
                marker = self._checked_marker(data, header)
            elif origin == "client":
                duplicate = self.producers.duplicate_of(header)
                if duplicate is not None:
                    at = duplicate.first_offset, duplicate.last_offset, duplicate.timestamp
                    return LogAppendInfo(*at, self.start_offset, duplicate=True)
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
        self._appended(origin)
        append_time = now_ms if origin == "client" and self.config.log_append_time else -1
        return LogAppendInfo(base, last, append_time, self.start_offset)

    def _checked_marker(self, data: memoryview, header: BatchHeader) -> EndTransactionMarker | None:
        try:
            marker = read_marker(data, header)
        except errors.CorruptRecord as error:
            raise errors.InvalidRecord(f"{self._name}: {error}") from error
        if marker is not None:
            self.producers.check_marker(header.producer_id, header.producer_epoch, marker.coordinator_epoch)
        return marker

    def _note_producer(
        self, segment: LogSegment, header: BatchHeader, base: int, marker: EndTransactionMarker | None
    ) -> None:
        if not header.is_control:
            self.producers.add_batch(header, base)
        elif marker is not None:
            epoch = marker.coordinator_epoch
            completed = self.producers.add_marker(header, base, commit=marker.commit, coordinator_epoch=epoch)
            self._note_completed(segment, completed)

    def _note_completed(self, segment: LogSegment, completed: CompletedTransaction | None) -> None:
        if completed is not None and completed.aborted:
            try:
                segment.indexes.transactions.append(aborted(self.producers, completed))
            except OSError as error:  # the marker is in the log: the next opening rebuilds the index
                self.fail(f"the transaction index cannot be written: {error}")

    def _append_copies(self, data: memoryview, now_ms: int) -> LogAppendInfo:
        batches = check_copies(data, self.end_offset, self._name)
        if not batches:
            return LogAppendInfo(self.end_offset, self.end_offset - 1, -1, self.start_offset)
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
        self._appended("replica")
        return LogAppendInfo(first.base_offset, last.last_offset, -1, self.start_offset)

    def _segment_for(self, size: int, last_offset: int, timestamp: int, now_ms: int) -> LogSegment:
        """Return the segment for a batch: the active one, or a new one if the batch does not fit."""
        config = self.config
        if size > config.segment_bytes:
            raise errors.RecordListTooLarge(
                f"{self._name}: {size} bytes at once, segment.bytes is {config.segment_bytes}"
            )
        segment = self.segments.active
        records = segment.records
        if not records.size:
            fits = records.fits(last_offset)
        else:
            fits = (
                records.size + size <= config.segment_bytes
                and records.fits(last_offset)
                and (len(segment.indexes.offsets) + 1) * _INDEX_ENTRY_BYTES <= config.segment_index_bytes
                and self._age(segment, timestamp, now_ms) <= config.longest_segment_ms - config.segment_jitter_ms
            )
        return segment if fits else self.roll()

    def _age(self, segment: LogSegment, timestamp: int, now_ms: int) -> int:
        first = segment.indexes.first_timestamp
        return (
            timestamp - first
            if first >= 0 and timestamp >= 0
            else now_ms - self._fs.modified_ms(segment.records.file.path)
        )

    def _write(self, segment: LogSegment, data: memoryview, last_offset: int, timestamp: int) -> None:
        try:
            if not self._files.exist:
                self._files.create()
            segment.append(data, last_offset=last_offset, max_timestamp=timestamp)
        except OSError as error:
            raise errors.KafkaStorageError(f"{self._name}: the append failed: {error}") from error

    def _appended(self, origin: AppendOrigin) -> None:
        begun = max(self.recovery_point, self._reaching, self._must_reach)
        if self.end_offset - begun >= self.config.flush_messages:
            if origin != "replica" and not self.commits_at_once:
                self._hold()
            else:
                self.flush()
        if not self.replicated and not self._must_reach:
            self.high_watermark = self.end_offset
            self.producers.high_watermark_moved(self.end_offset)
        for callback in self.on_append:
            callback()

    def advance_high_watermark(self, offset: int) -> None:
        """Commit everything before `offset` in a replicated log. Never moves back."""
        offset = min(offset, self.end_offset)
        if offset > self.high_watermark:
            self.high_watermark = offset
            self.producers.high_watermark_moved(offset)
            for callback in self.on_append:
                callback()
