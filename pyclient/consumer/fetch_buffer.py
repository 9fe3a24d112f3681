"""Fetched data that is not yet polled, the memory it holds, and how responses are added to it; no I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from pyclient.consumer.completed_fetch import (
    BatchSlice,
    CompletedFetch,
    FetchedBatch,
    Frame,
    ParsedRecords,
    Target,
    parse_records,
)
from pyclient.consumer.config import ConsumerConfig
from pyclient.consumer.subscription import AssignedPartition, SubscriptionState
from pyclient.errors import (
    CorruptBatch,
    CorruptMessage,
    FencedLeaderEpoch,
    InconsistentTopicId,
    KafkaError,
    KafkaStorageError,
    LeaderNotAvailable,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    ReplicaNotAvailable,
    TopicAuthorizationFailed,
    UnknownLeaderEpoch,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
    from_code,
)
from pyclient.protocol.messages.fetch import FetchResponse, PartitionData
from pyclient.types import TopicPartition

_STALE: Final = frozenset(
    error.code
    for error in (
        NotLeaderOrFollower,
        LeaderNotAvailable,
        ReplicaNotAvailable,
        KafkaStorageError,
        FencedLeaderEpoch,
        OffsetNotAvailable,
        UnknownTopicOrPartition,
        UnknownTopicId,
        InconsistentTopicId,
    )
)
"""The metadata is out of date: refresh it, then fetch again."""
_TRANSIENT: Final = frozenset((UnknownLeaderEpoch.code, UnknownServerError.code))

Moved = tuple[AssignedPartition, int, int]
"""A partition whose position `take` moved, its version and its new position."""


class FetchBuffer:
    """Fetched parts, first in first out.

    Not thread-safe: its owner holds a lock. Parts of paused partitions stay in place; parts invalidated by a seek or a
    rebalance are dropped when they are reached. No part leaves the queue before it is used up, so that `rewind` can
    undo a `take` that Ctrl-C interrupted. `wants_more` is set when a partition's buffered bytes fall below `low_bytes`,
    or the memory that one node's responses hold below `high_bytes` or the size passed to `wake_below`: then fetching
    may continue. `polls` is the number of the poll that `take` works for.
    """

    def __init__(self, subscription: SubscriptionState, *, low_bytes: int, high_bytes: int, check_crcs: bool) -> None:
        self._subscription = subscription
        self._low_bytes = low_bytes
        self._high_bytes = high_bytes
        self._check_crcs = check_crcs
        self._queue: deque[CompletedFetch] = deque()
        self._held: dict[int, int] = {}
        self._wake_below: dict[int, int] = {}
        self._moved: dict[TopicPartition, Moved] = {}
        self.wants_more = False
        self.polls = 1

    def add(self, part: CompletedFetch) -> None:
        """Append a part."""
        self._retain_frame(part.frame)
        self._add_buffered(part.state, part.size)
        self._queue.append(part)

    def has_records(self) -> bool:
        """Return True if `take` would return records, or raise, now."""
        return any(
            (part.index < len(part.batches) or part.error is not None)
            and not part.state.paused
            and self._is_valid(part)
            for part in self._queue
        )

    def held(self, node: int) -> int:
        """Return the bytes of memory that a node's responses hold."""
        return self._held.get(node, 0)

    def wake_below(self, node: int, size: int) -> None:
        """Set `wants_more`, once, when a node's responses hold less than `size` bytes."""
        self._wake_below[node] = size

    def unchecked(self, limit: int) -> list[FetchedBatch]:
        """Return the batches that `take` would check."""
        found: list[FetchedBatch] = []
        crcs = self._check_crcs
        for part in self._queue:
            if limit <= 0:
                break
            if part.state.paused or not self._is_valid(part):
                continue
            for batch in islice(part.batches, part.index, None):
                if limit <= 0:
                    break
                limit -= batch.count
                if not (batch.readable and (batch.checked or not crcs)):
                    found.append(batch)
        return found

    def take(self, limit: int) -> list[BatchSlice]:
        """Return at most `limit` readable records, and move the positions past them.

        A partition ends before a batch that cannot be read. Raise `CorruptBatch` if nothing comes before that; its
        partition then moves after the others, so that it does not block them.
        """
        slices: list[BatchSlice] = []
        stuck: set[AssignedPartition] = set()
        touched: set[AssignedPartition] = set()
        queue, index = self._queue, 0
        while index < len(queue) and limit > 0:
            part = queue[index]
            if not self._is_valid(part):
                del queue[index]
                self._release(part)
            elif part.state.paused:
                self._detach(part)
                index += 1
            elif part.state in stuck:
                index += 1
            else:
                touched.add(part.state)
                try:
                    limit -= self._take_from(part, limit, slices)
                except CorruptBatch:
                    if not slices:
                        self.put_last(part.state)
                        raise
                    stuck.add(part.state)
                if part.finished:
                    del queue[index]
                    self._release(part)
        self._moved = {state.topic_partition: (state, state.version, state.position) for state in touched}
        return slices

    def put_last(self, state: AssignedPartition) -> None:
        """Move a partition's parts after those of all others."""
        own = [part for part in self._queue if part.state is state]
        self._queue = deque([*(part for part in self._queue if part.state is not state), *own])

    def give_back(self, unread: Sequence[tuple[BatchSlice, int]]) -> None:
        """Put slices of the last `take` back, each from an offset on, and move the positions back. Idempotent."""
        for piece, offset in reversed(unread):
            moved = self._moved.get(piece.topic_partition)
            if moved is None:
                continue
            state, version, position = moved
            if self._subscription.holds(state, version):
                self.put_back(state, piece, offset)
            elif self._subscription.find(piece.topic_partition) is state and state.position == position:
                # fetched data was invalidated, for example by a new leader, but the position is that of `take`
                state.start_at(offset, self._epoch_before(state, piece, offset))
                self._moved[piece.topic_partition] = (state, -1, offset)

    def put_back(self, state: AssignedPartition, piece: BatchSlice, offset: int) -> None:
        """Put the rest of a slice back, from `offset` on, as the first part, and move the position there."""
        size = piece.batch.size
        part = CompletedFetch(state, ParsedRecords([piece.batch], piece.stop), size, Frame(-1, size))
        epoch = self._epoch_before(state, piece, offset)
        self._retain_frame(part.frame)
        self._add_buffered(state, size)
        self._queue.appendleft(part)
        state.position = offset
        state.position_epoch = epoch

    def _epoch_before(self, state: AssignedPartition, piece: BatchSlice, offset: int) -> int:
        """Return the leader epoch of the record before `offset`, or of the one there."""
        return state.polled_from_epoch if offset <= state.polled_from else piece.batch.leader_epoch

    def rewind(self) -> None:
        """Undo the last poll's `take`; its records are fetched again.

        All counts are recomputed, because Ctrl-C may have interrupted their update.
        """
        for state in self._subscription:
            state.rewind(self.polls)
        self._queue = deque(part for part in self._queue if self._is_valid(part))
        self._moved = {}
        held: dict[int, int] = {}
        frames = {id(part.frame): part.frame for part in self._queue}
        for frame in frames.values():
            frame.parts = 0
            held[frame.node] = held.get(frame.node, 0) + frame.size
        for state in self._subscription:
            state.touch()
            state.buffered = 0
        for part in self._queue:
            part.frame.parts += 1
            self._add_buffered(part.state, part.size)
        self._held = held
        self.wants_more = True

    def drop_invalid(self) -> None:
        """Drop the parts that seeks and rebalances invalidated."""
        before = self._queue
        self._queue = deque(part for part in before if self._is_valid(part))
        for part in before:
            if not self._is_valid(part):
                self._release(part)

    def _is_valid(self, part: CompletedFetch) -> bool:
        return self._subscription.holds(part.state, part.version)

    def _take_from(self, part: CompletedFetch, limit: int, slices: list[BatchSlice]) -> int:
        state, batches, taken = part.state, part.batches, 0
        if state.polled_in != self.polls:
            state.polled_in, state.polled_from = self.polls, state.position
            state.polled_from_epoch = state.position_epoch
        while part.index < len(batches) and taken < limit:
            batch = batches[part.index]
            end = min(batch.next_offset, part.next_offset)
            if end > state.position:  # else an interrupted `give_back` was repeated
                if not (batch.readable and (batch.checked or not self._check_crcs)):
                    batch.check(crcs=self._check_crcs)
                piece = batch.take(state.position, end, limit - taken)
                if piece.count:
                    slices.append(piece)
                    taken += piece.count
                state.position, state.position_epoch = piece.stop, batch.leader_epoch
                if piece.stop < end:
                    break
            part.index += 1
            self._consumed(part, batch.size)
        if part.index == len(batches):
            if part.error is not None:
                raise part.error
            if part.next_offset > state.position:
                state.position = part.next_offset
                if part.last_epoch >= 0:  # with an older one the log would seem to be truncated before that batch
                    state.position_epoch = part.last_epoch
        return taken

    def _add_buffered(self, state: AssignedPartition, size: int) -> None:
        state.touch()
        state.changes.with_data[state] = None
        state.buffered += size

    def _consumed(self, part: CompletedFetch, size: int) -> None:
        size = min(size, part.size)
        part.size -= size
        before = part.state.buffered
        part.state.buffered = left = before - size
        if left < self._low_bytes <= before:
            part.state.touch()
            self.wants_more = True

    def _release(self, part: CompletedFetch) -> None:
        """Release a part; its memory is free once its whole response is."""
        if self._is_valid(part):
            part.state.touch()
            self._consumed(part, part.size)
        self._release_frame(part.frame)

    def _retain_frame(self, frame: Frame) -> None:
        if frame.parts == 0:
            self._add_held(frame.node, frame.size)
        frame.parts += 1

    def _release_frame(self, frame: Frame) -> None:
        frame.parts -= 1
        if frame.parts == 0:
            self._add_held(frame.node, -frame.size)

    def _detach(self, part: CompletedFetch) -> None:
        """Copy a paused part out of a response that it would keep in memory nearly alone."""
        frame = part.frame
        if frame.size <= 2 * part.size or not part.batches:
            return
        copied = memoryview(bytes(part.batches[0].buffer))
        for batch in part.batches[part.index :]:
            batch.buffer = copied
            batch.payload = None
        part.frame = Frame(frame.node, len(copied))
        self._retain_frame(part.frame)
        self._release_frame(frame)

    def _add_held(self, node: int, size: int) -> None:
        before = self._held.get(node, 0)
        self._held[node] = left = before + size
        if left < self._high_bytes <= before:
            self.wants_more = True
        if left < self._wake_below.get(node, 0):
            del self._wake_below[node]
            self.wants_more = True

    def __len__(self) -> int:
        return len(self._queue)

    def __repr__(self) -> str:
        return f"<FetchBuffer parts={len(self._queue)} bytes={sum(self._held.values())}>"


@dataclass(slots=True)
class FetchOutcome:
    """The consequences of a response besides its records, and the bytes of those.

    `moved` is True if some partition is to be fetched from another node from now on.
    """

    size: int = 0
    refresh_metadata: bool = False
    moved: bool = False
    records: bool = False
    trouble: bool = False
    errors: list[KafkaError] = field(default_factory=list)


def memory_of(response: FetchResponse) -> tuple[int, int]:
    """Return the bytes of records in a response, and of the frame that they keep in memory."""
    records = [data.records for topic in response.responses for data in topic.partitions if data.records]
    size = sum(map(len, records))
    frame = memoryview(memoryview(records[0]).obj).nbytes if records else 0
    return size, max(size, frame)


class FetchCollector:
    """Adds the partitions of one node's response to the buffer. Its owner holds the lock."""

    def __init__(
        self, subscription: SubscriptionState, buffer: FetchBuffer, config: ConsumerConfig, backoff: float
    ) -> None:
        self._subscription = subscription
        self._buffer = buffer
        self._config = config
        self._backoff = backoff

    def take(self, target: Target, data: PartitionData, frame: Frame, now: float, outcome: FetchOutcome) -> None:
        """Process one partition of a response; drop it if a seek or a rebalance has invalidated it."""
        state = target.state
        if not self._subscription.holds(state, target.version) or state.fetch_offset != target.offset:
            return
        if state.retry_at:
            state.touch()
            state.retry_at = 0.0
        if data.error_code:
            self._failed(target, data, now, outcome)
            return
        state.high_watermark = data.high_watermark
        state.last_stable_offset = data.last_stable_offset
        state.log_start_offset = data.log_start_offset
        if data.preferred_read_replica >= 0 and not target.from_replica:
            state.touch()
            state.preferred_replica = data.preferred_read_replica
            state.preferred_until = now + self._config.metadata_max_age_ms / 1000
            outcome.moved = True
        if data.records is not None and len(data.records):
            self._take_records(target, data, memoryview(data.records), frame, now, outcome)

    def _take_records(
        self,
        target: Target,
        data: PartitionData,
        records: memoryview,
        frame: Frame,
        now: float,
        outcome: FetchOutcome,
    ) -> None:
        state = target.state
        state.touch()
        aborted: Sequence[tuple[int, int]] = ()
        if self._config.read_committed and data.aborted_transactions:
            aborted = [(transaction.producer_id, transaction.first_offset) for transaction in data.aborted_transactions]
        parsed = parse_records(records, *state.topic_partition, target.offset, aborted)
        if parsed.next_offset == target.offset and parsed.error is None:
            state.retry_at = now + self._backoff  # a truncated batch: the first partition of a response gets it whole
            return
        state.fetch_offset = parsed.next_offset
        self._buffer.add(CompletedFetch(state, parsed, len(records), frame))
        if parsed.error is not None:
            state.retry_at = float("inf")  # nothing after it can be read: the user has to seek
        outcome.records = True

    def _failed(self, target: Target, data: PartitionData, now: float, outcome: FetchOutcome) -> None:
        state, code = target.state, data.error_code
        partition = state.topic_partition
        state.touch()
        state.retry_at = now + self._backoff
        if target.from_replica:
            state.preferred_replica = -1  # fall back to the leader
        if code == OffsetOutOfRange.code:
            self._out_of_range(target)
        elif code in _STALE:
            outcome.refresh_metadata = True
        elif code == TopicAuthorizationFailed.code:
            outcome.errors.append(from_code(code, f"reading {partition} is not allowed", "Fetch"))
        elif code == CorruptMessage.code:
            self._add_corrupt(target)
            outcome.records = True
        elif code not in _TRANSIENT:
            outcome.errors.append(from_code(code, f"fetching {partition} from offset {target.offset}"))
        outcome.trouble = True

    def _add_corrupt(self, target: Target) -> None:
        """Have poll raise the error of the broker's log once it has returned what was fetched before that offset."""
        state, offset = target.state, target.offset
        message = f"{state.topic_partition}: the broker's own log is corrupt at offset {offset}"
        error = CorruptBatch(message, *state.topic_partition, offset, offset + 1)
        self._buffer.add(CompletedFetch(state, ParsedRecords([], offset, error), 0, Frame(-1, 0)))
        state.retry_at = float("inf")  # the user has to seek

    def _out_of_range(self, target: Target) -> None:
        """Process an offset that is not in the leader's log, once the user has polled the earlier data."""
        if not target.from_replica and target.state.position == target.offset:
            target.state.out_of_range(resets=self._config.auto_offset_reset != "none")
