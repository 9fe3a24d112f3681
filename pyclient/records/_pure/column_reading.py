"""Decode batches into columns."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from pyclient.errors import CorruptRecord
from pyclient.records._pure.placing import PlacedBatch
from pyclient.records._pure.reading import read_rows
from pyclient.records.batch import BatchHeader
from pyclient.records.columns import MAX_COLUMN_DATA, BinaryColumn, Buffer, HeaderColumns, RecordColumns
from pyclient.records.compression import MAX_DECOMPRESSED
from pyclient.records.payload import MAX_OFFSET, Payload, open_batch


class _Binary:
    """A column of byte strings that grows."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.offsets = array("i", [0])
        self.nulls: list[int] = []

    def add(self, content: bytes | None) -> None:
        if content is None:
            self.nulls.append(len(self.offsets) - 1)
        else:
            self.data += content
        self.offsets.append(len(self.data))

    def cut(self, length: int) -> None:
        del self.offsets[length + 1 :]
        del self.data[self.offsets[-1] :]
        while self.nulls and self.nulls[-1] >= length:
            self.nulls.pop()

    def finish(self) -> BinaryColumn:
        length = len(self.offsets) - 1
        return BinaryColumn(self.offsets.tobytes(), self.data, self._validity(length), length)

    def _validity(self, length: int) -> Buffer | None:
        if not self.nulls:
            return None
        bits = (1 << length) - 1
        for row in self.nulls:
            bits ^= 1 << row
        return bits.to_bytes((length + 7) // 8, "little")


class ColumnsBuilder:
    """Collects the records of many batches of any topics and partitions as columns."""

    __slots__ = (
        "_header_offsets", "_header_values", "_keys", "_kinds", "_names", "_offsets", "_partitions", "_timestamps",
        "_topic_ids", "_topics", "_values", "count",
    )  # fmt: skip

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self.count = 0
        self._topics: dict[str, int] = {}
        self._topic_ids, self._partitions, self._kinds = array("i"), array("i"), array("b")
        self._offsets, self._timestamps = array("q"), array("q")
        self._keys, self._values = _Binary(), _Binary()
        self._header_offsets = array("i", [0])
        self._names, self._header_values = _Binary(), _Binary()

    def add(
        self,
        buffer: Buffer,
        position: int,
        header: BatchHeader,
        topic: str,
        partition: int,
        *,
        from_offset: int = 0,
        to_offset: int = MAX_OFFSET,
        max_size: int = MAX_DECOMPRESSED,
    ) -> int:
        """Add the records with from_offset <= offset < to_offset of the batch at `position`; return their number.

        Raise `CorruptRecord`, or `OverflowError` if a column would exceed 2 GiB; then nothing was added.
        """
        return self._add(open_batch(buffer, position, header, topic, partition, max_size), from_offset, to_offset)

    def _add(self, payload: Payload, from_offset: int, to_offset: int) -> int:
        used = (self._keys, self._values, self._names, self._header_values)
        if max(len(column.data) for column in used) + len(payload.data) > MAX_COLUMN_DATA:
            raise OverflowError("a column holds 2 GiB: finish this one and begin another")
        before = self.count
        try:
            for offset, timestamp, key, value, headers in read_rows(payload, from_offset, to_offset):
                self._offsets.append(offset)
                self._timestamps.append(timestamp)
                self._keys.add(key)
                self._values.add(value)
                for name, content in headers:
                    self._names.add(name.encode())
                    self._header_values.add(content)
                self._header_offsets.append(len(self._names.offsets) - 1)
        except BaseException:
            self._cut(before)
            raise
        added = len(self._offsets) - before
        if added:
            topic_id = self._topics.setdefault(payload.topic, len(self._topics))
            self._topic_ids.extend([topic_id] * added)
            self._partitions.extend([payload.partition] * added)
            self._kinds.extend([payload.header.timestamp_type] * added)
        self.count += added
        return added

    def add_many(self, pieces: Iterable[tuple[PlacedBatch, int, int]], max_size: int = MAX_DECOMPRESSED) -> int:
        """Add as many of the pieces as possible; return how many were added.

        A piece is (batch, from_offset, to_offset). Stop before the first that cannot be added; `add` raises its error.
        """
        added = 0
        for placed, start, stop in pieces:
            try:
                payload = placed.payload
                if payload is None:
                    payload = open_batch(
                        placed.buffer, placed.position, placed.header, placed.topic, placed.partition, max_size
                    )
                self._add(payload, start, stop)
            except (CorruptRecord, OverflowError):
                break
            added += 1
        return added

    def _cut(self, count: int) -> None:
        del self._offsets[count:], self._timestamps[count:], self._header_offsets[count + 1 :]
        self._keys.cut(count)
        self._values.cut(count)
        self._names.cut(self._header_offsets[-1])
        self._header_values.cut(self._header_offsets[-1])

    def finish(self) -> RecordColumns:
        """Return the collected columns and empty the builder."""
        columns = RecordColumns(
            self.count,
            tuple(self._topics),
            self._topic_ids.tobytes(),
            self._partitions.tobytes(),
            self._offsets.tobytes(),
            self._timestamps.tobytes(),
            self._kinds.tobytes(),
            self._keys.finish(),
            self._values.finish(),
            HeaderColumns(self._header_offsets.tobytes(), self._names.finish(), self._header_values.finish()),
        )
        self._reset()
        return columns


def release_spare_memory() -> None:
    """Free the memory that is kept for the next columns."""
