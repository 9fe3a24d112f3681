"""A data source without Kafka: how fast Spark itself passes rows to and from Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

from pyclient.spark.columns import schema_of
from pyclient.spark.options import COLUMNS
from pyclient.spark.options import schema_of as ddl_of

BATCH = 20_000
PARTITIONS = 4
_NAMES = tuple(name for name in COLUMNS if name != "headers")


def constant_batch(rows: int) -> pa.RecordBatch:
    """Return rows as the Kafka source gives them, with values of 100 bytes."""
    cells: dict[str, Any] = {
        "key": b"1234567",
        "value": b"v" * 100,
        "topic": "benchmark-spark",
        "partition": 0,
        "offset": 0,
        "timestamp": 0,
        "timestampType": 0,
    }
    schema = schema_of(_NAMES)
    return pa.RecordBatch.from_arrays(
        [pa.array([cells[name]] * rows, schema.field(name).type) for name in _NAMES], schema=schema
    )


class Constant(DataSource):
    """Yields the number of rows in the option `rows`, and takes any number; a stream has 1,000 in each micro-batch."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format()`."""
        return "constant"

    def schema(self) -> str:
        """Return the Kafka source's columns."""
        return ddl_of(_NAMES)

    def reader(self, schema: Any) -> DataSourceReader:
        """Return the reader of a batch."""
        return ConstantReader(int(self.options["rows"]) // PARTITIONS)

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer of a batch."""
        return DroppingWriter()

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802, here and below Spark's names
        """Return the reader of a stream."""
        return ConstantStream()

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """Return the writer of a stream."""
        return DroppingStream()


class ConstantReader(DataSourceReader):
    """Yields the same batch again and again."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks."""
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        batch = constant_batch(BATCH)
        for start in range(0, self._rows, BATCH):
            yield batch.slice(0, min(BATCH, self._rows - start))


class ConstantStream(DataSourceStreamReader):
    """Has 1,000 more rows each time."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Return the start."""
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int] | None = None, limit: Any = None) -> dict[str, int]:  # noqa: N802
        """Return the end of the next micro-batch."""
        return {"batch": (start or {"batch": 0})["batch"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return the tasks."""
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        yield constant_batch(1_000 // PARTITIONS)


def _drop(iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    for _ in iterator:
        pass
    return WriterCommitMessage()


class DroppingWriter(DataSourceArrowWriter):
    """Takes rows and drops them."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Take the rows of a task."""
        return _drop(iterator)


class DroppingStream(DataSourceStreamArrowWriter):
    """Takes rows of micro-batches and drops them."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Take the rows of a task."""
        return _drop(iterator)

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
        """Keep nothing."""

    def abort(self, messages: Any, batchId: int) -> None:  # noqa: N803
        """Keep nothing."""
