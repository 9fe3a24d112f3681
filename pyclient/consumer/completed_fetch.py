"""Fetched batches, the slices of them that polls return, and one partition's part of a Fetch response."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from pyclient.consumer.subscription import AssignedPartition
from pyclient.errors import CorruptBatch, CorruptRecord
from pyclient.records import (
    ColumnsBuilder,
    ControlType,
    PlacedBatch,
    Record,
    RecordColumns,
    check_crc,
    check_rows,
    control_type,
    decode_payload,
    find_batches,
    iter_batches,
)
from pyclient.records.compression import MAX_DECOMPRESSED
from pyclient.records.payload import Payload, open_batch
from pyclient.types import TopicPartition

RawRecord = Record[bytes | None, bytes | None]
_MAGIC: Final = 2  # of batches that are not message sets
_offset_of = attrgetter("offset")


@dataclass(slots=True)
class _Decoded:
    records: list[RawRecord] | None = None
    columns: RecordColumns | None = None


class FetchedBatch(PlacedBatch):
    """A record batch in its receive buffer. Decoded records or columns are kept."""

    __slots__ = ()

    def is_checked(self, *, crcs: bool) -> bool:
        """Return True if `check` has nothing left to do."""
        return self.readable and (self.checked or not crcs)

    def check(self, *, crcs: bool) -> None:
        """Raise `CorruptBatch` unless the checksum (with `crcs`) is right and every record can be read.

        A compressed batch is decompressed here, once.
        """
        try:
            if crcs and not self.checked:
                check_crc(self.buffer, self.position, self.header, self.topic, self.partition)
                self.checked = True
            if not self.readable:
                header = self.header
                place = (self.topic, self.partition, MAX_DECOMPRESSED)
                payload = open_batch(self.buffer, self.position, header, *place)
                check_rows(payload)
                if header.codec or header.magic < _MAGIC:
                    self.payload = payload
                self.readable = True
        except CorruptRecord as error:
            raise self.corrupt(error) from error

    def records(self) -> list[RawRecord]:
        """Return all records, decoded at the first call; raise `CorruptBatch` if they cannot be."""
        kept: _Decoded = self.kept or _Decoded()
        if kept.records is None:
            try:
                kept.records = decode_payload(self._opened())
            except CorruptRecord as error:
                raise self.corrupt(error) from error
            self.kept = kept
            self.payload = None
        return kept.records

    def columns(self) -> RecordColumns:
        """Return all records as columns, built at the first call; raise `CorruptBatch` if they cannot be decoded."""
        kept: _Decoded = self.kept or _Decoded()
        if kept.columns is None:
            builder = ColumnsBuilder()
            if not builder.add_many([(self, self.base_offset, self.next_offset)]):
                try:
                    check_rows(self._opened())
                except CorruptRecord as error:
                    raise self.corrupt(error) from error
            kept.columns = builder.finish()
            self.kept = kept
            self.payload = None
        return kept.columns

    def _opened(self) -> Payload:
        payload = self.payload
        if payload is None:
            place = (self.topic, self.partition, MAX_DECOMPRESSED)
            payload = open_batch(self.buffer, self.position, self.header, *place)
        return payload

    def take(self, from_offset: int, to_offset: int, limit: int) -> BatchSlice:
        """Return at most `limit` records with from_offset <= offset < to_offset; `stop` is the next offset."""
        if self.dense:
            first = self.base_offset
            start = first if first > from_offset else from_offset
            count = to_offset - start
            if count > limit:
                count = limit
            return BatchSlice(self, start, start + count, count)
        records = self.records()
        first = bisect_left(records, from_offset, key=_offset_of)
        end = bisect_left(records, to_offset, key=_offset_of)
        last = min(first + limit, end)
        stop = records[last].offset if last < end else to_offset
        return BatchSlice(self, from_offset, stop, last - first)

    def corrupt(self, error: CorruptRecord) -> CorruptBatch:
        """Return the error with this batch's topic, partition and offsets."""
        return CorruptBatch(str(error), self.topic, self.partition, self.base_offset, self.next_offset)

    def __repr__(self) -> str:
        return f"<FetchedBatch {self.topic}-{self.partition} {self.base_offset}..{self.next_offset - 1}>"


@dataclass(slots=True)
class BatchSlice:
    """The `count` records of a batch with start <= offset < stop; `made` has the deserialized ones, if any.

    Immutable, but not declared frozen: docs/measurements.md, "Slices of a poll".
    """

    batch: FetchedBatch
    start: int
    stop: int
    count: int
    made: list[Record[Any, Any]] | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.batch.topic, self.batch.partition)

    def records(self) -> list[Record[Any, Any]]:
        """Return the records; raise `CorruptBatch` if the batch cannot be decoded."""
        if self.made is not None:
            return self.made
        records = self.batch.records()
        if self.count == len(records):
            return records
        first = bisect_left(records, self.start, key=_offset_of)
        return records[first : first + self.count]

    @property
    def whole(self) -> bool:
        """Return True if these are all records of the batch."""
        return self.count == self.batch.count

    def rows(self) -> tuple[RecordColumns, int, int]:
        """Return the batch's columns and this slice's rows in them; raise `CorruptBatch` if it cannot be decoded."""
        columns = self.batch.columns()
        offsets = memoryview(columns.offsets).cast("B").cast("q")
        first = bisect_left(offsets, self.start)
        return columns, first, first + self.count

    def part(self, first: int, last: int) -> BatchSlice:
        """Return the records from number `first` up to `last`, exclusive."""
        if (first, last) == (0, self.count):
            return self
        made = None if self.made is None else self.made[first:last]
        if self.batch.dense:
            return BatchSlice(self.batch, self.start + first, self.start + last, last - first, made)
        records = self.records()
        start = records[first].offset if first < self.count else self.stop
        stop = records[last].offset if last < self.count else self.stop
        return BatchSlice(self.batch, start, stop, last - first, made)


@dataclass(frozen=True, slots=True)
class ParsedRecords:
    """The data batches of one partition's response, and the next offset to fetch.

    Control batches and aborted ones are left out, but `next_offset` is after them, and `last_epoch` the leader epoch of
    the last of them that has one (-1: none). `error` is at `next_offset`.
    """

    batches: Sequence[FetchedBatch]
    next_offset: int
    error: CorruptBatch | None = None
    last_epoch: int = -1


@dataclass(slots=True)
class _Aborted:
    """The producers whose batches belong to aborted transactions, while batches are read in order (KIP-98)."""

    upcoming: list[tuple[int, int]]  # (first offset, producer id), the nearest last
    open: set[int]

    def covers(self, batch: FetchedBatch) -> bool:
        header = batch.header
        while self.upcoming and self.upcoming[-1][0] <= header.last_offset:
            self.open.add(self.upcoming.pop()[1])
        if header.is_control:
            if header.producer_id in self.open and _is_abort(batch):
                self.open.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self.open


def parse_records(
    data: memoryview,
    topic: str,
    partition: int,
    fetch_offset: int,
    aborted: Iterable[tuple[int, int]] = (),
) -> ParsedRecords:
    """Parse the whole data batches of a fetch from `fetch_offset`; a truncated last one is left out.

    `aborted` are (producer id, first offset) of transactions to leave out, in any order.
    """
    aborts = _Aborted(sorted(((first, producer) for producer, first in aborted), reverse=True), set())
    batches: list[FetchedBatch] = []
    position, next_offset, last_epoch = 0, fetch_offset, -1
    try:
        while True:
            position, next_offset, epoch = find_batches(
                FetchedBatch, topic, partition, data, position, next_offset, batches, aborts.upcoming, aborts.open
            )
            if epoch >= 0:
                last_epoch = epoch
            following = next(iter_batches(data, position), None)
            if following is None:
                break
            _, header = following
            batch = FetchedBatch(topic, partition, data, position, header)
            position += header.size
            if batch.next_offset <= next_offset:
                _refuse_going_back(batch, next_offset, bool(batches))
                continue
            if batch.count < 0:
                raise batch.corrupt(CorruptRecord(f"a batch at offset {batch.base_offset} has {batch.count} records"))
            plain = not header.attributes and not aborts.upcoming  # nothing of a transaction
            if (plain or not aborts.covers(batch)) and batch.count > 0:
                batches.append(batch)
            elif batch.leader_epoch >= 0:
                last_epoch = batch.leader_epoch
            next_offset = batch.next_offset
    except CorruptRecord as error:
        message = f"{topic}-{partition}: fetched from offset {next_offset}: {error}"
        corrupt = error if isinstance(error, CorruptBatch) else None
        end = corrupt.next_offset if corrupt else next_offset + 1
        failure = CorruptBatch(message, topic, partition, next_offset, end)
        return ParsedRecords(batches, next_offset, failure, last_epoch)
    return ParsedRecords(batches, next_offset, last_epoch=last_epoch)


def _refuse_going_back(batch: FetchedBatch, next_offset: int, inside: bool) -> None:
    """Raise unless the batch, which is before `next_offset`, is the response's first: such a one is skipped."""
    if inside:
        raise CorruptRecord(f"a batch at offset {batch.header.base_offset} follows offset {next_offset - 1}")


def _is_abort(batch: FetchedBatch) -> bool:
    records = batch.records()
    return bool(records) and control_type(records[0].key) == ControlType.ABORT


class Frame:
    """The memory of one response, held until none of its parts is needed any more."""

    __slots__ = ("node", "parts", "size")

    def __init__(self, node: int, size: int) -> None:
        self.node = node
        self.size = size
        self.parts = 0


class CompletedFetch:
    """One partition's batches in one response."""

    __slots__ = ("batches", "error", "frame", "index", "last_epoch", "next_offset", "size", "state", "version")

    def __init__(self, state: AssignedPartition, parsed: ParsedRecords, size: int, frame: Frame) -> None:
        self.state = state
        self.version = state.version
        self.batches: Sequence[FetchedBatch] = parsed.batches
        self.index = 0
        self.next_offset = parsed.next_offset
        self.last_epoch = parsed.last_epoch
        self.error = parsed.error
        self.size = size
        self.frame = frame

    @property
    def finished(self) -> bool:
        """Return True if everything was taken; an error stays until the user seeks."""
        return self.index == len(self.batches) and self.error is None


@dataclass(frozen=True, slots=True)
class Target:
    """One partition to fetch, in its state at the time of the request."""

    state: AssignedPartition
    version: int
    offset: int
    from_replica: bool
