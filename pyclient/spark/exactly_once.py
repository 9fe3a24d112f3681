"""Write each row once: a transaction for each task, with a marker of what it has written inside it.

A query's task has its own transactional id, so that a new attempt fences an older one and aborts what that left open.
The marker is an offset that is committed in the transaction, under a group of the task's own: the number of the batch,
and how many rows with which checksums it had. An attempt that finds the marker of its batch has nothing to write.

That needs the same rows in the same Spark partition when Spark repeats a batch: given for what is read from Kafka
without a shuffle, not after one whose order may differ. A repeated batch with other rows is therefore an error.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from crc32c import crc32c

from pyclient.errors import ClientError, ConfigError
from pyclient.spark.clients import ADMINS, freeze_loaded_objects, resolved
from pyclient.spark.writing import IN_TRANSACTIONS, flush, with_defaults
from pyclient.types import GroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from pyclient.admin import Admin
    from pyclient.producer import Producer

log = logging.getLogger("pyclient.spark")

_PREFIX: Final = "pyclient-sink"
_CONTENT: Final = ("value", "key")
_REST: Final = ("topic", "partition", "timestamp", "headers")


class ReplayDiffers(ClientError):
    """Spark repeats a batch with other rows than those that were written for it: each row once is not possible."""


@dataclass(frozen=True, slots=True)
class Marker:
    """The rows that a task has written for a batch."""

    batch: int
    rows: int
    checksum: int
    """Of keys and values."""
    rest: int | None = None
    """The checksum of the other columns; None without any, and in markers of versions that did not keep it."""

    def checksums(self) -> str:
        """Return the checksums as text, divided by a blank."""
        return f"{self.checksum:08x}" if self.rest is None else f"{self.checksum:08x} {self.rest:08x}"

    def to_offset(self) -> OffsetAndMetadata:
        """Return the offset to commit: the number after the batch, with rows and checksums as metadata."""
        return OffsetAndMetadata(self.batch + 1, f"{self.rows} {self.checksums()}")

    @classmethod
    def of_offset(cls, committed: OffsetAndMetadata) -> Marker:
        """Return the marker in a committed offset; raise `ConfigError` if something else committed it."""
        try:
            rows, checksum, *rest = committed.metadata.split(" ", 2)
            return cls(committed.offset - 1, int(rows), int(checksum, 16), int(rest[0], 16) if rest else None)
        except ValueError as error:
            raise ConfigError(
                f"the group of this sink has the offset {committed.offset} with the metadata {committed.metadata!r}, "
                "which no sink has committed: give the query another write id"
            ) from error

    def is_repeated_by(self, other: Marker) -> bool:
        """Return True if another attempt at the batch had the same rows, as far as this marker shows."""
        rest = other.rest if self.rest is not None else None
        return self == Marker(other.batch, other.rows, other.checksum, rest)


class Checksum:
    """Counts rows and sums up their columns, however they are divided into batches.

    Without `topics` the column topic is left out, which the option `topic` makes meaningless.
    """

    __slots__ = ("_content", "_rest", "rows")

    def __init__(self, *, topics: bool = True) -> None:
        self.rows = 0
        self._content = {name: [0, 0] for name in _CONTENT}  # a CRC for each of a column's parts
        self._rest: dict[str, list[int]] = {name: [] for name in _REST if topics or name != "topic"}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch."""
        self.rows += batch.num_rows
        for sums in (self._content, self._rest):
            for name, before in sums.items():
                if name in batch.schema.names and batch.num_rows:
                    parts = [*_parts(batch.column(batch.schema.get_field_index(name)))]
                    sums[name] = list(map(crc32c, parts, before or [0] * len(parts)))

    def marker(self, batch: int) -> Marker:
        """Return the marker of all rows so far."""
        return Marker(batch, self.rows, _crc_of([self.rows, *chain(*self._content.values())]), self._of_rest())

    def _of_rest(self) -> int | None:
        found = {name: sums for name, sums in self._rest.items() if sums}
        if not found:
            return None
        names = crc32c(" ".join(found).encode())
        return _crc_of([names, *chain(*found.values())])


def _crc_of(numbers: Iterable[int]) -> int:
    return crc32c(b"".join(number.to_bytes(8, "big") for number in numbers))


def _parts(column: pa.Array) -> Iterator[memoryview]:
    """Yield what a column consists of: the bytes of its cells, and their lengths or which of them are null.

    Of a list of structs first its lengths, then the parts of each field.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield _fixed(pc.list_value_length(column).cast(pa.int64()).fill_null(-1))
        for field_of_all in column.flatten().flatten():
            yield from _parts(field_of_all)
    elif pa.types.is_integer(kind) or pa.types.is_timestamp(kind):
        yield _fixed(column.cast(pa.int64()).fill_null(0))
        yield _fixed(column.is_valid().cast(pa.int8()))
    else:
        texts = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        column = column.cast(pa.string() if texts else pa.binary())  # of large types, and of null
        yield _content(column)
        yield _fixed(pc.binary_length(column).fill_null(-1))


def _content(column: pa.Array) -> memoryview:
    """Return the bytes of the cells of a binary or string column; for nulls Spark has none."""
    _validity, offsets, data = column.buffers()
    if data is None:
        return memoryview(b"")
    numbers = memoryview(offsets).cast("i")
    return memoryview(data)[numbers[column.offset] : numbers[column.offset + len(column)]]


def _fixed(column: pa.Array) -> memoryview:
    """Return the bytes of a column of integers without nulls."""
    width = column.type.bit_width // 8
    return memoryview(column.buffers()[1])[width * column.offset : width * (column.offset + len(column))]


@dataclass(frozen=True, slots=True)
class ExactlyOnceWriter:
    """Writes a task's Arrow batches in a transaction; pickled to the executors, it holds options only."""

    topic: str | None
    flush_timeout: float
    client: Mapping[str, Any] = field(repr=False)

    def write(self, batches: Iterable[pa.RecordBatch], query: str, partition: int, batch: int) -> Marker:
        """Write the batches of one partition of a query's batch, unless that is done; return what is written.

        Raise `ReplayDiffers` if it was written with other rows, `WriteFailed`, which counts them, if rows were not
        delivered in time, and the producer's error if it cannot be written: then nothing is.
        """
        from pyclient.producer import Producer

        name = f"{_PREFIX}-{query}-{partition}"
        options = {**with_defaults(self.client, IN_TRANSACTIONS), "transactional.id": name}
        with Producer(config=resolved(options)) as producer:
            producer.init_transactions()  # fences older attempts and aborts what they left open
            written = self._committed(name)
            if written is not None and written.batch >= batch:
                self._check(written, batches, batch)
            else:
                written = self._write(producer, batches, name, batch)
        freeze_loaded_objects()
        return written

    def _write(self, producer: Producer, batches: Iterable[pa.RecordBatch], name: str, batch: int) -> Marker:
        from pyclient.spark.columns import groups

        checksum, place = Checksum(topics=self.topic is None), None
        with producer.transaction():
            for each in batches:
                checksum.add(each)
                for topic, rows in groups(each, self.topic):
                    place = place or topic
                    producer.send_many(topic, rows)
            flush(producer, checksum.rows, 0, self.flush_timeout)
            marker = checksum.marker(batch)
            if place is not None:
                marked = {TopicPartition(place, 0): marker.to_offset()}
                producer.send_offsets_to_transaction(marked, GroupMetadata(name))
        return marker

    def _committed(self, name: str) -> Marker | None:
        admin = ADMINS.take(self.client)
        try:
            found = self._marks(admin, name)
        except BaseException:
            admin.close()
            raise
        ADMINS.give_back(self.client, admin)
        newest = max(found.values(), key=lambda each: each.offset, default=None)
        return None if newest is None else Marker.of_offset(newest)

    def _marks(self, admin: Admin, name: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the markers of a task, by their places, once no transaction is about to change them.

        A coordinator may report the end of a transaction shortly before it counts the offsets in it.
        """
        found = admin.list_group_offsets(name, require_stable=True)
        if not found and self.topic is not None:  # among all offsets, a first one that is not decided is left out
            found = admin.list_group_offsets(name, [TopicPartition(self.topic, 0)], require_stable=True)
        return found

    def _check(self, written: Marker, batches: Iterable[pa.RecordBatch], batch: int) -> None:
        checksum = Checksum(topics=self.topic is None)
        for each in batches:
            checksum.add(each)
        repeated = checksum.marker(batch)
        if written.batch == batch and not written.is_repeated_by(repeated):
            raise ReplayDiffers(
                f"batch {batch} has {written.rows} rows in Kafka (checksums {written.checksums()}); Spark repeats it "
                f"with {repeated.rows} rows (checksums {repeated.checksums()}): they must be the same, in the same "
                "partition, which a shuffle with another order, the current time or random values do not give; write "
                "before it, or at least once"
            )
        log.info("batch %d was written before, with %d rows", batch, written.rows)
