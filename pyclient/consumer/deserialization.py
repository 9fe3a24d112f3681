"""Records of a poll on their way to the user: deserialized, or taken one by one; unread ones are given back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import length_hint
from typing import Any, Final, Literal, Protocol

from pyclient.consumer.completed_fetch import BatchSlice, RawRecord
from pyclient.errors import DeserializationError
from pyclient.records import Record
from pyclient.types import TopicPartition

Deserializer = Callable[[bytes], Any]
OnError = Literal["raise", "skip"] | Callable[[DeserializationError], Any]
"""The action for a record that cannot be deserialized; see `Consumer`."""

ON_ERROR: Final = ("raise", "skip")


@dataclass(frozen=True, slots=True)
class Deserializers:
    """Functions that convert a record's bytes to the user's key and value; a missing key or value stays None."""

    key: Deserializer | None = None
    value: Deserializer | None = None
    on_error: OnError = "raise"

    def __bool__(self) -> bool:
        return self.key is not None or self.value is not None

    def apply(self, raw: RawRecord) -> Record[Any, Any]:
        """Return the deserialized record; raise `DeserializationError` with the bytes if a deserializer fails."""
        key, value = raw.key, raw.value
        origin: Literal["key", "value"] = "key"
        try:
            if self.key is not None and key is not None:
                key = self.key(key)
            origin = "value"
            if self.value is not None and value is not None:
                value = self.value(value)
        except Exception as error:  # the user's own code may raise anything
            raise DeserializationError(
                f"{raw.topic}-{raw.partition} offset {raw.offset}: the {origin} cannot be deserialized: {error!r}",
                raw.topic,
                raw.partition,
                raw.offset,
                raw.offset + 1,
                origin=origin,
                key=raw.key,
                value=raw.value,
                headers=raw.headers,
                timestamp_ms=raw.timestamp_ms,
            ) from error
        return raw.replace(key, value)


class PolledSlices:
    """The slices of one poll while their records are deserialized, one partition independent of the others.

    `run` stops at a record that cannot be deserialized; the caller then decides to `skip` it or to `stop` its
    partition. `done` are the slices to return, `unread` the slices to give back, each with the offset to continue from.
    `skipped` has the errors of the skipped records.
    """

    def __init__(self, slices: Iterable[BatchSlice], deserializers: Deserializers) -> None:
        self.done: list[BatchSlice] = []
        self.unread: list[tuple[BatchSlice, int]] = []
        self._apply = deserializers.apply
        self._remaining = deque(slices)
        self.skipped: dict[TopicPartition, list[DeserializationError]] = {}

    def run(self) -> DeserializationError | None:
        """Deserialize up to the first record that fails, and return its error; None when all are done."""
        while self._remaining:
            piece = self._remaining[0]
            made: list[Record[Any, Any]] = []
            try:
                made.extend(map(self._apply, piece.records()))
            except DeserializationError as error:
                self._take(piece.part(0, len(made)), made)
                self._remaining[0] = piece.part(len(made), piece.count)
                return error
            self._take(piece, made)
            self._remaining.popleft()
        return None

    def skip(self, error: DeserializationError) -> None:
        """Skip the record at which `run` stopped."""
        piece = self._remaining.popleft()
        self.skipped.setdefault(piece.topic_partition, []).append(error)
        if piece.count > 1:
            self._remaining.appendleft(piece.part(1, piece.count))

    def stop(self) -> None:
        """Give back the record at which `run` stopped, and the rest of its partition."""
        partition = self._remaining[0].topic_partition
        self._give_back(piece for piece in self._remaining if piece.topic_partition == partition)
        self._remaining = deque(piece for piece in self._remaining if piece.topic_partition != partition)

    def stop_all(self) -> None:
        """Give back everything from the record at which `run` stopped."""
        self._give_back(self._remaining)
        self._remaining = deque()

    def _take(self, piece: BatchSlice, made: list[Record[Any, Any]]) -> None:
        if made:
            self.done.append(replace(piece, made=made))

    def _give_back(self, pieces: Iterable[BatchSlice]) -> None:
        self.unread += [(piece, piece.records()[0].offset) for piece in pieces]


class GiveBack(Protocol):
    """Takes slices of the last poll back, each from an offset on; moves the partition `last` after all others."""

    def __call__(self, unread: Sequence[tuple[BatchSlice, int]], *, last: TopicPartition | None = None) -> None: ...


class Chunk:
    """The records of one poll while a `for` loop goes through them.

    A record counts as polled when the loop requests it. `settle` gives the rest back to the fetch buffer and empties
    the list, so that the loop requests the next chunk: commits and seeks inside the loop apply to the record it is at,
    and the loop has no cost per record. `making` is True while the last record is deserialized: one that fails counts
    as not read, and its partition then moves after the others.
    """

    __slots__ = ("_give_back", "_last", "_pieces", "_records", "_unread", "iterator", "making")

    def __init__(self, give_back: GiveBack, slices: Sequence[BatchSlice]) -> None:
        self._give_back = give_back
        self._pieces = [(piece, piece.records()) for piece in slices]
        self._records: list[RawRecord] = [record for _, records in self._pieces for record in records]
        self._unread: list[tuple[BatchSlice, int]] | None = None
        self._last: TopicPartition | None = None
        self.making = False
        self.iterator: Iterator[RawRecord] = iter(self._records)

    def settle(self) -> None:
        """Give back unread records. Repeatable after Ctrl-C: the read records are counted once."""
        if self._unread is None:
            unread = self._find_unread(len(self._records) - length_hint(self.iterator) - self.making)
            self._last = unread[0][0].topic_partition if self.making else None
            self._unread = unread
        self._records.clear()
        self._give_back(self._unread, last=self._last)

    def _find_unread(self, read: int) -> list[tuple[BatchSlice, int]]:
        """Return the slices with unread records, each with the offset of the first of them."""
        left = []
        for piece, records in self._pieces:
            if read < len(records):
                left.append((piece, records[max(read, 0)].offset))
            read -= len(records)
        return left
