"""Write each row once: a transaction for each task, with a marker of what it has written inside it.

A query's task has its own transactional id, so that a new attempt fences an older one and aborts what that left open.
The marker is an offset that is committed in the transaction, under a group of the task's own: the number of the batch,
and how many rows with which checksum it had. An attempt that finds the marker of its batch has nothing to write.

That needs the same rows in the same Spark partition when Spark repeats a batch: given for what is read from Kafka
without a shuffle, not after one whose order may differ. A repeated batch with other rows is therefore an error.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from crc32c import crc32c

from pyclient.errors import ClientError, ConfigError
from pyclient.spark.clients import ADMINS, resolved, settle
from pyclient.spark.writing import IN_TRANSACTIONS, flush, with_defaults
from pyclient.types import GroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from pyclient.admin import Admin
    from pyclient.producer import Producer

log = logging.getLogger("pyclient.spark")

_PREFIX: Final = "pyclient-sink"
_SUMMED: Final = ("value", "key")


class ReplayDiffers(ClientError):
    """Spark repeats a batch with other rows than those that were written for it: each row once is not possible."""


@dataclass(frozen=True, slots=True)
class Marker:
    """The rows that a task has written for a batch."""

    batch: int
    rows: int
    checksum: int

    def to_offset(self) -> OffsetAndMetadata:
        """Return the offset to commit: the number after the batch, with rows and checksum as metadata."""
        return OffsetAndMetadata(self.batch + 1, f"{self.rows} {self.checksum:08x}")

    @classmethod
    def of_offset(cls, committed: OffsetAndMetadata) -> Marker:
        """Return the marker in a committed offset; raise `ConfigError` if something else committed it."""
        rows, _, checksum = committed.metadata.partition(" ")
        try:
            return cls(committed.offset - 1, int(rows), int(checksum, 16))
        except ValueError as error:
            raise ConfigError(
                f"the group of this sink has the offset {committed.offset} with the metadata {committed.metadata!r}, "
                "which no sink has committed: give the query another write id"
            ) from error


class Checksum:
    """Counts rows and sums up their keys and values, however they are divided into batches."""

    __slots__ = ("_sums", "rows")

    def __init__(self) -> None:
        self.rows = 0
        self._sums = dict.fromkeys(_SUMMED, (0, 0))  # of a column's bytes, and of its cells' lengths

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch."""
        self.rows += batch.num_rows
        for name, (content, lengths) in self._sums.items():
            if name in batch.schema.names and batch.num_rows:
                column = batch.column(batch.schema.get_field_index(name))
                self._sums[name] = crc32c(_content(column), content), crc32c(_lengths(column), lengths)

    def value(self) -> int:
        """Return the checksum of all rows so far."""
        parts = [self.rows, *(part for sums in self._sums.values() for part in sums)]
        return crc32c(b"".join(part.to_bytes(8, "big") for part in parts))


def _content(column: pa.Array) -> memoryview:
    """Return the bytes of the cells of a binary or string column; for nulls Spark has none."""
    _validity, offsets, data = column.buffers()
    if data is None:
        return memoryview(b"")
    numbers = memoryview(offsets).cast("i")
    return memoryview(data)[numbers[column.offset] : numbers[column.offset + len(column)]]


def _lengths(column: pa.Array) -> memoryview:
    """Return the lengths of the cells of a column as 32-bit integers, -1 for nulls."""
    import pyarrow.compute as pc

    lengths = pc.binary_length(column).fill_null(-1)
    return memoryview(lengths.buffers()[1])[4 * lengths.offset : 4 * (lengths.offset + len(lengths))]


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
        settle()
        return written

    def _write(self, producer: Producer, batches: Iterable[pa.RecordBatch], name: str, batch: int) -> Marker:
        from pyclient.spark.columns import groups

        checksum, place = Checksum(), None
        with producer.transaction():
            for each in batches:
                checksum.add(each)
                for topic, rows in groups(each, self.topic):
                    place = place or topic
                    producer.send_many(topic, rows)
            flush(producer, checksum.rows, 0, self.flush_timeout)
            marker = Marker(batch, checksum.rows, checksum.value())
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
        checksum = Checksum()
        for each in batches:
            checksum.add(each)
        if written.batch == batch and (written.rows, written.checksum) != (checksum.rows, checksum.value()):
            raise ReplayDiffers(
                f"batch {batch} has {written.rows} rows in Kafka (checksum {written.checksum:08x}); Spark repeats it "
                f"with {checksum.rows} rows (checksum {checksum.value():08x}): they must be the same, in the same "
                "partition, which a shuffle with another order does not give; write before it, or at least once"
            )
        log.info("batch %d was written before, with %d rows", batch, written.rows)
