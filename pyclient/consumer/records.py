"""The result of a poll: a lazy sequence of records, decoded on access or converted to columns."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Any, Generic, NoReturn, overload

from pyclient.consumer.completed_fetch import BatchSlice, FetchedBatch
from pyclient.errors import CorruptRecord
from pyclient.records import ColumnsBuilder, Record, RecordChain, RecordColumns
from pyclient.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:  # the types of keys and values: bytes, unless a deserializer says otherwise
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")


class Records(Sequence[Record[K, V]], Generic[K, V]):
    """Records in the order of their partitions, as a sequence.

    Counting and slicing decode nothing; accessing a record decodes its batch, once. Every record can be read: a poll
    ends a partition before a batch or record that cannot, and the next poll raises its error. With deserializers the
    poll has deserialized all records.
    """

    __slots__ = ("_ends", "_slices")

    def __init__(self, slices: Sequence[BatchSlice] = ()) -> None:
        self._slices = tuple(slices)
        self._ends = list(accumulate(piece.count for piece in self._slices))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Record[K, V]]:
        return RecordChain([piece.records for piece in self._slices])

    @overload
    def __getitem__(self, index: int) -> Record[K, V]: ...
    @overload
    def __getitem__(self, index: slice) -> Records[K, V]: ...
    def __getitem__(self, index: int | slice) -> Record[K, V] | Records[K, V]:
        if isinstance(index, slice):
            return Records(self._slices_of(range(*index.indices(len(self)))))
        row = index + len(self) if index < 0 else index
        if not 0 <= row < len(self):
            raise IndexError(f"record {index} of {len(self)}")
        number = bisect_right(self._ends, row)
        piece = self._slices[number]
        return piece.records()[row - self._ends[number] + piece.count]

    def _slices_of(self, rows: range) -> list[BatchSlice]:
        """Return slices for these rows; with a step other than 1, one for each record."""
        runs = [(rows.start, rows.stop)] if rows and rows.step == 1 else [(row, row + 1) for row in rows]
        found: list[BatchSlice] = []
        for first, last in runs:
            number = bisect_right(self._ends, first)
            while first < last:
                piece, piece_end = self._slices[number], self._ends[number]
                before, end = piece_end - piece.count, min(last, piece_end)
                found.append(piece.part(first - before, end - before))
                first, number = end, number + 1
        return found

    def partitions(self) -> tuple[TopicPartition, ...]:
        """Return the partitions of these records, in order."""
        return tuple(dict.fromkeys(piece.topic_partition for piece in self._slices))

    def by_partition(self) -> dict[TopicPartition, Records[K, V]]:
        """Return the records by partition, as lazy as these."""
        pieces: dict[TopicPartition, list[BatchSlice]] = {}
        for piece in self._slices:
            pieces.setdefault(piece.topic_partition, []).append(piece)
        return {partition: Records(mine) for partition, mine in pieces.items()}

    def next_offsets(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return the offsets to commit when all records are processed: `consumer.commit(records.next_offsets())`."""
        return {
            piece.topic_partition: OffsetAndMetadata(piece.stop, "", piece.batch.leader_epoch) for piece in self._slices
        }

    def to_arrow(self, columns: Sequence[str] | None = None) -> Any:
        """Return a `pyarrow.Table`: topic, partition, offset, timestamp, key, value, headers; no Python object per
        record.

        `columns` names those that are wanted, and their order; `timestamp_type` (0: the producer's time, 1: the
        broker's) is only there if it is named. Raise `ValueError` for a name that is no column.
        Key and value are the bytes in the log, regardless of deserializers; the poll still applies those, so
        best use none. Batches share a chunk; part of a batch that has more records than these is a view of that batch's
        columns, which are built once. Needs pyarrow.
        """
        from pyclient.records.arrow import DEFAULT_COLUMNS, to_table

        parts: list[RecordColumns | tuple[RecordColumns, int, int]] = []
        total = len(self)
        for small, group in groupby(self._slices, key=lambda piece: piece.whole or piece.batch.count <= total):
            pieces = list(group)
            parts += _columns_of(pieces) if small else map(BatchSlice.rows, pieces)
        return to_table(parts, DEFAULT_COLUMNS if columns is None else columns)

    def to_pandas(self) -> Any:
        """Return the same as a `pandas.DataFrame`. Needs pandas and pyarrow."""
        return self.to_arrow().to_pandas()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, (str, bytes)):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> NoReturn:
        raise TypeError("Records hold network buffers and cannot be pickled: use list(records)")

    def __repr__(self) -> str:
        where = ", ".join(map(str, self.partitions()[:4]))
        more = len(self.partitions()) - 4
        return f"<Records {len(self)}{f' from {where}' if where else ''}{f' and {more} more' if more > 0 else ''}>"


def _columns_of(pieces: Sequence[BatchSlice]) -> list[RecordColumns]:
    """Return the columns of slices, built in one step; raise `CorruptBatch` with the one that cannot be read."""
    builder, parts, done = ColumnsBuilder(), [], 0
    rows = [(piece.batch, piece.start, piece.stop) for piece in pieces]
    while done < len(rows):
        done += builder.add_many(rows[done:] if done else rows)
        if done < len(rows):
            try:
                _add(builder, *rows[done])
                done += 1
            except OverflowError:  # a column holds 2 GiB at most
                parts.append(builder.finish())
    parts.append(builder.finish())
    return parts


def _add(builder: ColumnsBuilder, batch: FetchedBatch, start: int, stop: int) -> None:
    try:
        builder.add(
            batch.buffer, batch.position, batch.header, batch.topic, batch.partition, from_offset=start, to_offset=stop
        )
    except CorruptRecord as error:
        raise batch.corrupt(error) from error
