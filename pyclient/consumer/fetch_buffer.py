"""What is fetched and not yet polled: parts of answers in the order they came, and the memory they hold."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final

from pyclient.consumer.batches import BatchSlice, FetchedBatch, ParsedRecords
from pyclient.consumer.subscription import AssignedPartition, SubscriptionState
from pyclient.errors import CorruptBatch

_WITHOUT_GIL_BYTES: Final = 512 * 1024
"""Their checksums take 30 us; to get the GIL back may take as long, or much longer beside a busy thread."""


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
    made void are dropped when their turn comes. `wants_more` is set when a partition's stock falls below `low_bytes`,
    or the memory that one node's answers hold below `high_bytes`: then fetching may go on. `polls` is the number of the
    poll that `take` works for.
    """

    def __init__(self, subscription: SubscriptionState, *, low_bytes: int, high_bytes: int, check_crcs: bool) -> None:
        self._subscription = subscription
        self._low_bytes = low_bytes
        self._high_bytes = high_bytes
        self._check_crcs = check_crcs
        self._queue: deque[FetchedPart] = deque()
        self._held: dict[int, int] = {}
        self.wants_more = False
        self.polls = 1

    def add(self, part: FetchedPart) -> None:
        """Takes a part that just came."""
        self._keep(part.frame)
        part.state.buffered += part.size
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
        """The batches that `take` would check, if they are so large together that it pays to do it without the GIL."""
        found: list[FetchedBatch] = []
        if not self._check_crcs:
            return found
        size = 0
        for part in self._queue:
            if limit <= 0:
                break
            if part.state.paused or not self._is_valid(part):
                continue
            for batch in islice(part.batches, part.index, None):
                if limit <= 0:
                    break
                limit -= batch.count
                if not batch.checked:
                    found.append(batch)
                    size += batch.size
        return found if size >= _WITHOUT_GIL_BYTES else []

    def take(self, limit: int) -> list[BatchSlice]:
        """At most `limit` records, and moves the positions behind them.

        Raises `CorruptBatch` when the very first thing there is cannot be read; the position stays in front of it.
        """
        slices: list[BatchSlice] = []
        waiting: list[FetchedPart] = []
        queue = self._queue
        try:
            while queue and limit > 0:
                part = queue[0]
                if not self._is_valid(part):
                    self._release(queue.popleft())
                elif part.state.paused:
                    self._detach(part)
                    waiting.append(queue.popleft())
                else:
                    limit -= self._take_from(part, limit, slices)
                    if part.finished:
                        self._release(queue.popleft())
        except CorruptBatch:
            if not slices:
                raise
        finally:
            queue.extendleft(reversed(waiting))
        return slices

    def put_back(self, state: AssignedPartition, piece: BatchSlice, offset: int) -> None:
        """Returns the rest of a slice, from `offset` on: the position goes back, the next `take` begins with it."""
        size = piece.batch.size
        rest = ParsedRecords([piece.batch], piece.stop)
        self.add(FetchedPart(state, rest, size, Frame(-1, size)))
        self._queue.rotate(1)
        state.position = offset

    def drop_void(self) -> None:
        """Frees what seeks and rebalances made void."""
        queue = self._queue
        for _ in range(len(queue)):
            part = queue.popleft()
            if self._is_valid(part):
                queue.append(part)
            else:
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
            if self._check_crcs and not batch.checked:
                batch.check_crc()
            end = min(batch.next_offset, part.next_offset)
            piece = batch.take(state.position, end, limit - taken)
            if piece.count:
                slices.append(piece)
                taken += piece.count
            state.position, state.position_epoch = piece.stop, batch.leader_epoch
            if piece.stop >= end:
                part.index += 1
                self._consumed(part, batch.size)
        if part.index == len(batches):
            if part.error is not None:
                raise part.error
            state.position = part.next_offset
        return taken

    def _consumed(self, part: FetchedPart, size: int) -> None:
        size = min(size, part.size)
        part.size -= size
        before = part.state.buffered
        part.state.buffered = left = before - size
        if left < self._low_bytes <= before:
            self.wants_more = True

    def _release(self, part: FetchedPart) -> None:
        """A part that is done with: its bytes are free once its whole answer is."""
        if self._is_valid(part):
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
