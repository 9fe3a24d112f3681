"""The log of one partition: batches are appended at its end, read anywhere, deleted at its start, truncated."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from functools import partial

from pyclient import errors
from pyclient.broker_embedded.log.config import LogConfig
from pyclient.broker_embedded.log.damage import check_slice, verify
from pyclient.broker_embedded.log.end_transaction_marker import EndTransactionMarker
from pyclient.broker_embedded.log.file_records import DamagedSegment
from pyclient.broker_embedded.log.filesystem import Buffer
from pyclient.broker_embedded.log.leader_epoch_cache import UNDEFINED
from pyclient.broker_embedded.log.local_log import LoadedLog, LocalLog, PendingFlush
from pyclient.broker_embedded.log.log_reader import (
    AppendOrigin,
    FetchDataInfo,
    FetchIsolation,
    LogAppendInfo,
    SegmentSlice,
    aborted_between,
    find_slice,
    first_not_before,
    newest,
)
from pyclient.broker_embedded.log.log_segment import LogSegment
from pyclient.broker_embedded.log.log_segments import LogSegments
from pyclient.broker_embedded.log.log_validator import (
    CheckedBatch,
    check_client_batch,
    check_copies,
    read_single,
    stamp_client_batch,
    writable,
)
from pyclient.broker_embedded.log.partition_files import PartitionFiles
from pyclient.broker_embedded.log.producer_state_manager import (
    BatchMetadata,
    CompletedTransaction,
    ProducerStateManager,
    aborted,
    load_producers,
    replay_batch,
)
from pyclient.broker_embedded.log.retention import retention_steps
from pyclient.config.broker import BROKER_OPTIONS
from pyclient.config.options import LONG_MAX
from pyclient.records import stamp_offsets
from pyclient.types import OffsetAndTimestamp, TopicPartition

log = logging.getLogger("pyclient.broker_embedded")


class UnifiedLog:
    """One partition's log, used from one thread. Failures of the disk are `KafkaStorageError`, and change nothing.

    `local` are its files; here are the offsets that clients see, the producers, and the waiting for the disk.

    `flush_later`, if set, runs flushes that need not be waited for: of closed segments, for `flush.ms`, and for
    `flush.messages`, where batches are committed when they are synced; `awaiting_flush` are the logs with such batches.
    `remove_later` removes files, `on_failure` is called with the reason when the log goes offline. Without the first
    two the log flushes and removes in place, and blocks.
    """

    flush_later: Callable[[PendingFlush], None] | None = None
    remove_later: Callable[[list[str]], None] | None = None
    awaiting_flush: set[UnifiedLog] | None = None
    deleted = False
    """True if the topic was deleted: the log's files need not reach the disk."""
    on_failure: Callable[[str], object] = staticmethod(lambda _reason: None)
    checks_reads = False
    """True if what is read is checked, except for followers ("log_end"), which check what they get."""
    producer_expiration_ms: int = BROKER_OPTIONS["producer.id.expiration.ms"].default
    """Idle time after which a producer is removed."""

    def __init__(
        self,
        partition: TopicPartition,
        topic_id: uuid.UUID | None,
        local: LocalLog,
        loaded: LoadedLog,
        *,
        high_watermark: int | None,
    ) -> None:
        self.topic, self.partition = partition
        self.topic_id = topic_id
        self.local = local
        self.start_offset = loaded.start_offset
        self.replicated = high_watermark is not None
        known = local.end_offset if high_watermark is None else min(high_watermark, local.end_offset)
        self.high_watermark = max(known, self.start_offset)
        self.producers = loaded.producers
        self.damage = loaded.damage
        self.failure: str | None = None
        self.closed = False
        self.cleaned_to = 0
        """The offset up to which the log is compacted."""
        self.on_append: list[Callable[[], object]] = []
        self._name = str(partition)
        self._commit_callbacks: list[tuple[int, Callable[[], object]]] = []  # each with the offset it waits for
        self._commit_after_flush = 0  # batches before this offset are committed when they are on the disk
        self._flushing_to = 0  # end offset of the flush in progress for that
        self._unflushed_since: int | None = None  # epoch ms
        self.producers.high_watermark_moved(self.high_watermark)

    def __repr__(self) -> str:
        state = "" if self.failure is None else f" offline: {self.failure}"
        return f"<UnifiedLog {self._name} {self.start_offset}..{self.end_offset} segments={len(self.segments)}{state}>"

    # State

    @property
    def config(self) -> LogConfig:
        """Return the topic's configs, which apply from the next append on."""
        return self.local.config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self.local.config = config
        self.segments.active.indexes.interval = config.index_interval_bytes

    @property
    def directory(self) -> str:
        """Return the path of the log's directory."""
        return self.local.directory

    @property
    def segments(self) -> LogSegments:
        """Return the segments, oldest first."""
        return self.local.segments

    @property
    def end_offset(self) -> int:
        """Return the offset of the next batch."""
        return self.local.end_offset

    @property
    def recovery_point(self) -> int:
        """Return the offset before which everything is on the disk."""
        return self.local.recovery_point

    @property
    def leader_epoch(self) -> int:
        """Return the newest leader epoch, -1 if there is none."""
        return self.local.files.epochs.latest

    @property
    def last_stable_offset(self) -> int:
        """Return the end of read_committed reads: the high watermark, or the first undecided transaction."""
        unstable = self.producers.first_unstable_offset
        return self.high_watermark if unstable is None else min(max(unstable, self.start_offset), self.high_watermark)

    @property
    def size(self) -> int:
        """Return the bytes of all batches in the log's files."""
        return self.local.segments.size

    @property
    def commits_at_once(self) -> bool:
        """Return True if every batch is committed when its append returns."""
        return not self.replicated and (self.flush_later is None or self.config.flush_messages == LONG_MAX)

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch in which `offset` was written, -1 if unknown."""
        return self.local.files.epochs.epoch_at(offset)

    def end_offset_for_epoch(self, epoch: int, leader_epoch: int = UNDEFINED) -> tuple[int, int]:
        """Return (largest epoch not above `epoch`, its end offset) for OffsetForLeaderEpoch; (-1, -1) if unknown.

        `leader_epoch` is the leader's, which begins at the log's end if nothing was written in it.
        """
        return self.local.files.epochs.end_offset(epoch, self.end_offset, leader_epoch)

    def begin_epoch(self, epoch: int) -> None:
        """Note that this node leads: `epoch` begins at the end of the log, even if nothing is ever written in it."""
        self.local.files.note_epoch(epoch, self.end_offset)
        self.local.files.save()

    def fail(self, reason: str) -> None:
        """Take the log offline: appends are refused until it is opened again."""
        log.error("%s goes offline: %s", self._name, reason)
        self.failure = reason
        self.on_failure(reason)
        self._run_commit_callbacks()

    # Append

    def append(
        self,
        batches: Buffer,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = "client",
        checked: CheckedBatch | None = None,
        on_loop: bool = False,
        transaction_version: int = 0,
    ) -> LogAppendInfo:
        """Append batches. They are stamped in place if their memory is writable.

        "client": one batch, checked against every rule; `checked` is the result of an earlier check, valid while the
        log's configs are the same. "coordinator": one batch of the broker's own, which may be a marker. "replica": any
        number, with the leader's offsets and epochs; an incomplete one at the end is ignored. `transaction_version` is
        that of the batch's transaction, 0 without one.
        Raise the `BrokerError` for the client; nothing was written then. With `on_loop` also `TooLongForLoop`: the
        caller must check the batch on another thread.
        """
        if self.failure is not None:
            raise errors.KafkaStorageError(f"{self._name} is offline: {self.failure}")
        data = writable(batches)
        if origin == "replica":
            return self._append_copies(data, now_ms)
        local = self.local
        config = local.config
        if origin == "client":
            if checked is None or checked.config is not config:
                checked = check_client_batch(data, config, now_ms, self._name, on_loop=on_loop)
            data, header = stamp_client_batch(checked, now_ms)
        else:
            header = read_single(data, self._name)
        has_producer = header.producer_id >= 0
        known: EndTransactionMarker | BatchMetadata | None = None
        if has_producer:
            known = self.producers.check_append(
                data, header, from_client=origin == "client", transaction_version=transaction_version
            )
            if isinstance(known, BatchMetadata):
                at = known.first_offset, known.last_offset, known.timestamp
                return LogAppendInfo(*at, self.start_offset, duplicate=True)
        base = local.end_offset
        last = base + header.last_offset_delta
        segment = local.segment_for(len(data), last, header.max_timestamp, now_ms) or self.roll()
        if leader_epoch != local.files.epochs.latest:
            local.files.note_epoch(leader_epoch, base)
        stamp_offsets(data, 0, base, leader_epoch)
        local.append(segment, data, last, header.max_timestamp)
        if has_producer:
            self._note_completed(segment, self.producers.add(header, base, known))
        self._appended(origin)
        append_time = now_ms if origin == "client" and config.log_append_time else -1
        return LogAppendInfo(base, last, append_time, self.start_offset)

    def _note_completed(self, segment: LogSegment, completed: CompletedTransaction | None) -> None:
        if completed is not None and completed.aborted:
            try:
                segment.indexes.transactions.append(aborted(self.producers, completed))
            except OSError as error:  # the marker is in the log: the next opening rebuilds the index
                self.fail(f"the transaction index cannot be written: {error}")

    def _append_copies(self, data: memoryview, now_ms: int) -> LogAppendInfo:
        local = self.local
        batches = check_copies(data, local.end_offset, self._name)
        if not batches:
            return LogAppendInfo(local.end_offset, local.end_offset - 1, -1, self.start_offset)
        first, last = batches[0][1], batches[-1][1]
        data = data[: batches[-1][0] + last.size]
        if self.start_offset == local.end_offset < first.base_offset and not self.size:
            self.truncate_fully_and_start_at(first.base_offset)
        largest = max(header.max_timestamp for _, header in batches)
        segment = local.segment_for(len(data), last.last_offset, largest, now_ms) or self.roll()
        local.append(segment, data, last.last_offset, largest)
        for position, header in batches:
            local.files.note_epoch(header.leader_epoch, header.base_offset)
            batch = data[position : position + header.size]
            self._note_completed(segment, replay_batch(self.producers, header, batch.tobytes))
        self._appended("replica")
        return LogAppendInfo(first.base_offset, last.last_offset, -1, self.start_offset)

    def _appended(self, origin: AppendOrigin) -> None:
        local = self.local
        begun = max(local.recovery_point, self._flushing_to, self._commit_after_flush)
        if local.end_offset - begun >= local.config.flush_messages:
            if not self.replicated and origin != "replica" and not self.commits_at_once:
                self._commit_when_flushed()
            else:
                self.flush()
        if not self.replicated and not self._commit_after_flush:
            self.high_watermark = local.end_offset
            self.producers.high_watermark_moved(local.end_offset)
        for callback in self.on_append:
            callback()

    def roll(self) -> LogSegment:
        """Close the active segment and add one at the log's end. An empty one is only moved there."""
        local = self.local
        active = local.segments.active
        if not active.size:
            return active if active.base_offset == local.end_offset else local.move_active_segment()
        segment = local.roll(self.producers)
        if self.flush_later is not None:
            self.flush_later(self._begin_flush([active], partial(local.segment_flushed, active)))
        else:
            self.flush()
        return segment

    # Read

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

        They are of one segment, and the last one is truncated at `max_bytes`, as in Kafka; never the first one, which
        is returned whole with `min_one_batch`, and not at all without it. Raise `OffsetOutOfRange`.
        """
        found = self._find(offset, max_bytes, min_one_batch, isolation, whole_batches=False)
        committed = isolation == "committed"
        known = self.high_watermark, self.last_stable_offset, self.start_offset, self.local.end_offset
        if found is None:
            return FetchDataInfo([], 0, *known, [] if committed else None)
        data = found.read() if copied else found.region()
        aborted_transactions: list[tuple[int, int]] | None = None
        if committed:
            entries = aborted_between(self.segments, offset, found.end_offset)
            aborted_transactions = [(entry.producer_id, entry.first_offset) for entry in entries]
        return FetchDataInfo([data], found.length, *known, aborted_transactions, found.more)

    def read_bytes(
        self, offset: int, max_bytes: int, *, min_one_batch: bool = True, isolation: FetchIsolation = "log_end"
    ) -> bytes:
        """Read as `read` does, but return bytes of whole batches only."""
        found = self._find(offset, max_bytes, min_one_batch, isolation, whole_batches=True)
        return b"" if found is None else found.read()

    def _find(
        self, offset: int, max_bytes: int, min_one_batch: bool, isolation: FetchIsolation, *, whole_batches: bool
    ) -> SegmentSlice | None:
        end_offset = self.local.end_offset
        if not self.start_offset <= offset <= end_offset:
            raise errors.OffsetOutOfRange(f"{self._name}: {offset} is not within {self.start_offset}..{end_offset}")
        limit = self.high_watermark
        if isolation != "uncommitted":
            limit = self.last_stable_offset if isolation == "committed" else end_offset
        found = find_slice(
            self.local.segments,
            offset,
            limit=limit,
            log_end=end_offset,
            max_bytes=max_bytes,
            min_one_batch=min_one_batch,
            whole_batches=whole_batches,
        )
        if found is not None and self.checks_reads and (whole_batches or isolation != "log_end"):
            check_slice(self, found)
        return found

    def offset_for_timestamp(self, timestamp: int) -> OffsetAndTimestamp | None:
        """Return the first record whose timestamp (ms) is `timestamp` or later; None if there is none."""
        return first_not_before(self.segments, timestamp, self.start_offset)

    def latest_timestamp_offset(self) -> OffsetAndTimestamp | None:
        """Return the first record with the largest timestamp of all; None if no record has one."""
        return newest(self.segments, self.start_offset)

    def verify(self) -> Iterator[DamagedSegment | None]:
        """Check every batch of the log against its checksum, one per step; a step that finds damage yields it.

        The rest of a damaged segment is not checked, nor is a segment that is deleted meanwhile.
        """
        return verify(self)

    # Delete and truncate

    def apply_retention(self, now_ms: int) -> int:
        """Delete segments beyond retention or before the log's start. Return how many. Expire idle producers."""
        return sum(self.retention_steps(now_ms))

    def retention_steps(self, now_ms: int) -> Iterator[int]:
        """Apply retention in steps of one segment; yield how many were deleted in each."""
        return retention_steps(self, now_ms)

    def remove_dropped(self, now_ms: int) -> None:
        """Remove the files of dropped segments that are due."""
        due = self.segments.take_due(now_ms)
        if due and self.remove_later is not None:
            self.remove_later(due)
            return
        for path in due:
            self.local.fs.remove(path)

    def delete_records_before(self, offset: int) -> None:
        """Set the log's start to `offset` (DeleteRecords); retention deletes whole segments before it.

        Raise `OffsetOutOfRange` above the high watermark. A crash may undo it until checkpoints are written.
        """
        if offset > self.high_watermark:
            raise errors.OffsetOutOfRange(f"{self._name}: {offset} is above the high watermark {self.high_watermark}")
        self.advance_start(offset)

    def advance_start(self, offset: int) -> None:
        """Set the log's start to `offset`. Never moves back."""
        self.start_offset = max(offset, self.start_offset)
        self.local.files.truncate_epochs(start=self.start_offset)
        self.advance_high_watermark(self.start_offset)

    def truncate_to(self, offset: int) -> None:
        """Remove everything from `offset` on; a batch that contains `offset` is removed whole, and the log ends there.

        Write checkpoints before the next append: the checkpointed recovery point may be beyond the new end.
        """
        if offset >= self.end_offset:
            if offset == self.end_offset:  # an epoch that this node began as the leader, without a batch
                self.local.files.truncate_epochs(end=offset)
            return
        if offset < max(self.segments.first_offset, self.start_offset):
            self.truncate_fully_and_start_at(offset)
            return
        offset = self.local.truncate_to(offset)
        if offset < self.start_offset:  # the log starts inside the removed batch
            self.truncate_fully_and_start_at(self.start_offset)
            return
        self._end_at(offset)
        self.producers = load_producers(self.local.fs, self.directory, self._name, list(self.segments), offset)
        self.producers.high_watermark_moved(self.high_watermark)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove everything, and restart empty at `offset`."""
        self.local.truncate_fully_and_start_at(offset)
        self.start_offset = offset
        self._end_at(offset)
        self.producers = ProducerStateManager(self._name)

    def _end_at(self, offset: int) -> None:
        self.cleaned_to = min(self.cleaned_to, offset)
        self.high_watermark = max(self.start_offset, min(self.high_watermark, offset)) if self.replicated else offset
        self.local.end_at(offset)
        self._end_awaiting_flush()

    # Commit

    def advance_high_watermark(self, offset: int) -> None:
        """Commit everything before `offset` in a replicated log. Never moves back."""
        if min(offset, self.end_offset) > self.high_watermark:
            self._commit(offset)

    def set_replicated(self, replicated: bool) -> None:
        """Set whether other nodes have copies; without any, every batch is committed by its append."""
        self.replicated = replicated
        self._end_awaiting_flush()
        if not replicated:
            self._commit(self.end_offset)

    def give_up_commits(self) -> None:
        """Run the callbacks of `when_committed` now: this node no longer leads the partition."""
        self._run_commit_callbacks(over=True)

    def when_committed(self, offset: int, callback: Callable[[], object]) -> None:
        """Call `callback` when the high watermark is above `offset`, or the log fails or is closed or truncated before.

        At once, if the log has failed or is closed.
        """
        self._commit_callbacks.append((offset, callback))
        if self.failure is not None or self.closed:
            self._run_commit_callbacks()

    def _run_commit_callbacks(self, *, over: bool = False) -> None:
        """Run the callbacks whose offset is committed or was truncated; with `over` all of them."""
        if not self._commit_callbacks:
            return
        over = over or self.closed or self.failure is not None
        committed, end_offset = self.high_watermark, self.end_offset
        waiting, self._commit_callbacks = self._commit_callbacks, []
        for offset, callback in waiting:
            if over or offset < committed or offset >= end_offset:
                callback()
            else:
                self._commit_callbacks.append((offset, callback))

    def _commit_when_flushed(self) -> None:
        """Commit the appended batches when they are on the disk, without blocking. One flush is run at a time."""
        self._commit_after_flush = self.end_offset
        if self.awaiting_flush is not None:
            self.awaiting_flush.add(self)
        if not self._flushing_to:
            self._flush_for_commit()

    def _flush_for_commit(self) -> None:
        self._flushing_to = end = self.end_offset
        if not self._flush_without_waiting(partial(self._flushed_for_commit, end)):
            self.fail("a flush cannot begin")
            self._end_awaiting_flush()

    def _flushed_for_commit(self, offset: int) -> None:
        self.local.flushed_to(offset)
        self._flushing_to = 0
        if self._commit_after_flush > self.recovery_point:
            self._commit(self.recovery_point)
            self._flush_for_commit()
        else:
            self._end_awaiting_flush()

    def _end_awaiting_flush(self) -> None:
        """Commit the batches that await a flush, unless the log has failed, and run the callbacks of commits."""
        if self._commit_after_flush:
            self._commit_after_flush = self._flushing_to = 0
            if self.awaiting_flush is not None:
                self.awaiting_flush.discard(self)
            if self.failure is None and not self.replicated:
                self._commit(self.end_offset)
        self._run_commit_callbacks()

    def _commit(self, offset: int) -> None:
        self.high_watermark = min(offset, self.end_offset)
        self.producers.high_watermark_moved(self.high_watermark)
        self._run_commit_callbacks()
        for callback in self.on_append:
            callback()

    # Flush

    def flush(self) -> None:
        """Block until everything appended so far is on the disk.

        Raise `KafkaStorageError`, and take the log offline: the kernel may have dropped data it could not write. Also
        raise for a log that is offline: a later sync that succeeds does not restore data that an earlier one lost.
        """
        if self.failure is not None:
            raise errors.KafkaStorageError(f"{self._name} is offline: {self.failure}")
        try:
            self.local.flush(self.producers)
        except OSError as error:
            self.fail(f"a flush failed: {error}")
            raise errors.KafkaStorageError(f"{self._name}: the flush failed: {error}") from error
        self._end_awaiting_flush()

    def flush_if_due(self, now_ms: int) -> bool:
        """Flush if an earlier call found unsynced data at least `flush.ms` ago. Return True if it did."""
        if self.recovery_point == self.end_offset or self.failure is not None:
            self._unflushed_since = None
        elif self._unflushed_since is None:
            self._unflushed_since = now_ms
        elif now_ms - self._unflushed_since >= self.config.flush_ms:
            self._unflushed_since = None
            self._flush_without_waiting(partial(self.local.flushed_to, self.end_offset))
            return True
        return False

    def _flush_without_waiting(self, then: Callable[[], None]) -> bool:
        """Start a flush of everything appended so far, without blocking. Return False if it cannot start."""
        if self.flush_later is None or not self.local.files.exist:
            self.flush()
            return True
        segments = self.local.unflushed_segments()
        try:
            pending = self._begin_flush(segments, then)
        except OSError as error:
            log.error("%r: the flush cannot begin; it is tried again later: %s", self, error)
            return False
        self.flush_later(pending)
        return True

    def _begin_flush(self, segments: list[LogSegment], then: Callable[[], None]) -> PendingFlush:
        return self.local.begin_flush(self, segments, then, offline=lambda: self.failure is not None)

    # Move and close

    def relocate(self, loaded: LoadedLog, directory: str) -> None:
        """Switch to the files of a synced copy of this log in `directory`, and close the old ones."""
        local = self.local
        files = PartitionFiles(local.fs, directory, self.topic_id, local.files.epochs, exist=True, saved=False)
        local.relocate(loaded, files, self.producers)
        self._end_awaiting_flush()

    def close(self, clean: bool = True, *, sync: bool = True) -> None:
        """Flush everything and close the files. With `clean=False` they are only closed.

        Without `sync` everything is only written: the caller syncs all logs at once, before it writes checkpoints.
        Raise `KafkaStorageError` if that fails, or if the log is offline: the next start has to check it then.
        """
        local = self.local
        self.closed = True
        self._run_commit_callbacks()
        if self.awaiting_flush is not None:
            self.awaiting_flush.discard(self)
        try:
            if clean and self.failure is not None:
                raise errors.KafkaStorageError(f"{self._name} is offline, the next start checks it: {self.failure}")
            if clean and local.files.exist:
                local.finish(self.producers)
                if sync:
                    self.flush()
                else:
                    local.write_all()
                self.remove_dropped(local.deletion_time_ms())
        except OSError as error:
            raise errors.KafkaStorageError(f"{self._name}: closing it failed: {error}") from error
        finally:
            local.segments.close()
