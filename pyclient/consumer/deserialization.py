"""Deserialization of keys and values, and the handling of records that cannot be deserialized."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from pyclient.consumer.batches import BatchSlice, RawRecord
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
