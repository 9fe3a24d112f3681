"""What is fetched and not yet polled: parts of answers in the order they came, and the memory they hold."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice

from pyclient.consumer.batches import BatchSlice, FetchedBatch, ParsedRecords
from pyclient.consumer.subscription import AssignedPartition, SubscriptionState
from pyclient.errors import CorruptBatch
from pyclient.types import TopicPartition

Moved = tuple[AssignedPartition, int, int]
"""A partition that a `take` moved, its version and its new position."""


class Frame:
    """The memory of one answer. It stays whole until no part of it is needed any more."""

    __slots__ = ("node", "parts", "size")

    def __init__(self, node: int, size: int) -> None:
        self.node = node
        self.size = size
        self.parts = 0


class FetchedPart:
    """One partition's batches in one answer."""

    __slots__ = ("batches", "error", "frame", "index", "next_offset", "size", "state", "version")

    def __init__(self, state: AssignedPartition, parsed: ParsedRecords, size: int, frame: Frame) -> None:
        self.state = state
        self.version = state.version
        self.batches: Sequence[FetchedBatch] = parsed.batches
        self.index = 0
        self.next_offset = parsed.next_offset
        self.error = parsed.error
        self.size = size
        self.frame = frame

    @property
    def finished(self) -> bool:
        """Whether everything was taken; an error stays until the user moves on."""
        return self.index == len(self.batches) and self.error is None


class FetchBuffer:
    """Fetched parts, first in first out.

    Not thread-safe: its owner holds a lock. Parts of paused partitions wait in place; parts that a seek or a rebalance
    made void are dropped when their turn comes. No part leaves the queue before it is used up, so that a `take` that
    Ctrl-C ends at any call can be taken back by `rewind`. `wants_more` is set when a partition's stock falls below
    `low_bytes`, or the memory that one node's answers hold below `high_bytes`: then fetching may go on. `polls` is the
    number of the poll that `take` works for.
    """

    def __init__(self, subscription: SubscriptionState, *, low_bytes: int, high_bytes: int, check_crcs: bool) -> None:
        self._subscription = subscription
        self._low_bytes = low_bytes
        self._high_bytes = high_bytes
        self._check_crcs = check_crcs
        self._queue: deque[FetchedPart] = deque()
        self._held: dict[int, int] = {}
        self._moved: dict[TopicPartition, Moved] = {}
        self.wants_more = False
        self.polls = 1

    def add(self, part: FetchedPart) -> None:
        """Takes a part that just came."""
        self._keep(part.frame)
        self._stock(part.state, part.size)
        self._queue.append(part)

    def has_records(self) -> bool:
        """Whether `take` would give records, or an error, now."""
        return any(
            (part.index < len(part.batches) or part.error is not None)
            and not part.state.paused
            and self._is_valid(part)
            for part in self._queue
        )

    def held(self, node: int) -> int:
        """The bytes that answers from a node hold in memory."""
        return self._held.get(node, 0)

    def unchecked(self, limit: int) -> list[FetchedBatch]:
        """The batches that `take` would check."""
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
        """At most `limit` records, all of which can be read, and moves the positions behind them.

        A partition ends in front of a batch that cannot be read. `CorruptBatch` is raised when that comes first of
        all, and its partition goes behind the others, so that it holds none of them up.
        """
        slices: list[BatchSlice] = []
        stuck: set[AssignedPartition] = set()
        touched: set[AssignedPartition] = set()
        queue, place = self._queue, 0
        while place < len(queue) and limit > 0:
            part = queue[place]
            if not self._is_valid(part):
                del queue[place]
                self._release(part)
            elif part.state.paused:
                self._detach(part)
                place += 1
            elif part.state in stuck:
                place += 1
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
                    del queue[place]
                    self._release(part)
        self._moved = {state.topic_partition: (state, state.version, state.position) for state in touched}
        return slices

    def put_last(self, state: AssignedPartition) -> None:
        """Puts a partition's parts behind those of all others."""
        mine = [part for part in self._queue if part.state is state]
        self._queue = deque([*(part for part in self._queue if part.state is not state), *mine])

    def give_back(self, unread: Sequence[tuple[BatchSlice, int]]) -> None:
        """Returns slices of the last `take`, each from an offset on: positions go back, the next `take` has them first.

        It may be done again, if Ctrl-C ended it.
        """
        for piece, offset in reversed(unread):
            moved = self._moved.get(piece.topic_partition)
            if moved is None:
                continue
            state, version, position = moved
            if self._subscription.holds(state, version):
                self.put_back(state, piece, offset)
            elif self._subscription.find(piece.topic_partition) is state and state.position == position:
                # what was fetched became void meanwhile, as after a new leader, but the position is where `take` put it
                state.start_at(offset, self._epoch_before(state, piece, offset))
                self._moved[piece.topic_partition] = (state, -1, offset)

    def put_back(self, state: AssignedPartition, piece: BatchSlice, offset: int) -> None:
        """Returns the rest of a slice, from `offset` on: the position goes back, the next `take` begins with it."""
        size = piece.batch.size
        part = FetchedPart(state, ParsedRecords([piece.batch], piece.stop), size, Frame(-1, size))
        epoch = self._epoch_before(state, piece, offset)
        self._keep(part.frame)
        self._stock(state, size)
        self._queue.appendleft(part)
        state.position = offset
        state.position_epoch = epoch

    def _epoch_before(self, state: AssignedPartition, piece: BatchSlice, offset: int) -> int:
        """The epoch of the record before `offset`, or of that one."""
        return state.polled_from_epoch if offset <= state.polled_from else piece.batch.leader_epoch

    def rewind(self) -> None:
        """Takes back what the last poll took, as if it had not been: it is fetched again.

        All counts are made anew, as Ctrl-C may have come between two of them.
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
            self._stock(part.state, part.size)
        self._held = held
        self.wants_more = True

    def drop_void(self) -> None:
        """Frees what seeks and rebalances made void."""
        before = self._queue
        self._queue = deque(part for part in before if self._is_valid(part))
        for part in before:
            if not self._is_valid(part):
                self._release(part)

    def _is_valid(self, part: FetchedPart) -> bool:
        return self._subscription.holds(part.state, part.version)

    def _take_from(self, part: FetchedPart, limit: int, slices: list[BatchSlice]) -> int:
        state, batches, taken = part.state, part.batches, 0
        if state.polled_in != self.polls:
            state.polled_in, state.polled_from = self.polls, state.position
            state.polled_from_epoch = state.position_epoch
        while part.index < len(batches) and taken < limit:
            batch = batches[part.index]
            end = min(batch.next_offset, part.next_offset)
            if end > state.position:  # else it was given back twice
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
            state.position = max(state.position, part.next_offset)
        return taken

    def _stock(self, state: AssignedPartition, size: int) -> None:
        state.touch()
        state.changes.stocked[state] = None
        state.buffered += size

    def _consumed(self, part: FetchedPart, size: int) -> None:
        size = min(size, part.size)
        part.size -= size
        before = part.state.buffered
        part.state.buffered = left = before - size
        if left < self._low_bytes <= before:
            part.state.touch()
            self.wants_more = True

    def _release(self, part: FetchedPart) -> None:
        """A part that is done with: its bytes are free once its whole answer is."""
        if self._is_valid(part):
            part.state.touch()
            self._consumed(part, part.size)
        self._let_go(part.frame)

    def _keep(self, frame: Frame) -> None:
        if frame.parts == 0:
            self._hold(frame.node, frame.size)
        frame.parts += 1

    def _let_go(self, frame: Frame) -> None:
        frame.parts -= 1
        if frame.parts == 0:
            self._hold(frame.node, -frame.size)

    def _detach(self, part: FetchedPart) -> None:
        """Copies a paused part out of an answer that it would keep in memory alone or nearly so."""
        frame = part.frame
        if frame.size <= 2 * part.size or not part.batches:
            return
        copied = memoryview(bytes(part.batches[0].buffer))
        for batch in part.batches[part.index :]:
            batch.buffer = copied
            batch.payload = None
        part.frame = Frame(frame.node, len(copied))
        self._keep(part.frame)
        self._let_go(frame)

    def _hold(self, node: int, size: int) -> None:
        before = self._held.get(node, 0)
        self._held[node] = left = before + size
        if left < self._high_bytes <= before:
            self.wants_more = True

    def __len__(self) -> int:
        return len(self._queue)

    def __repr__(self) -> str:
        return f"<FetchBuffer parts={len(self._queue)} bytes={sum(self._held.values())}>"
