"""The writers of `format("pyclient")`: every task delivers its rows before it ends, at least or exactly once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pyclient.spark.exactly_once import ExactlyOnceWriter
from pyclient.spark.tasks import BATCH_ID, QUERY_ID, local_property, task_context
from pyclient.spark.writing import BatchWriter

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # pyspark 4.0 has streams of rows only
    ARROW_STREAMS = False
else:
    ARROW_STREAMS = True

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("pyclient.spark")


@dataclass
class Written(WriterCommitMessage):
    """The commit message of a task: the number of rows that it has delivered."""

    rows: int


class BatchSink(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, writer: BatchWriter | ExactlyOnceWriter, write_id: str | None) -> None:
        self._writer = writer
        self._write_id = write_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Deliver a task's rows."""
        if isinstance(self._writer, BatchWriter):
            return Written(self._writer.write(iterator))
        assert self._write_id is not None, "the options of a batch were checked"
        return Written(self._writer.write(iterator, self._write_id, task_context().partitionId(), 0).rows)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the number of rows; they are delivered already."""
        log.info("%d rows were written", _rows(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log how many rows stay in Kafka although the job has failed."""
        log.warning("the job failed after %d rows of finished tasks were written; they stay", _rows(messages))


if ARROW_STREAMS:

    class StreamSink(DataSourceStreamArrowWriter):
        """Writes the micro-batches of a query."""

        def __init__(self, writer: BatchWriter | ExactlyOnceWriter, write_id: str | None) -> None:
            self._writer = writer
            self._write_id = write_id

        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            """Deliver a task's rows of a micro-batch."""
            if isinstance(self._writer, BatchWriter):
                return Written(self._writer.write(iterator))
            task = task_context()
            query, batch = local_property(task, QUERY_ID), local_property(task, BATCH_ID)
            return Written(self._writer.write(iterator, self._write_id or query, task.partitionId(), int(batch)).rows)

        def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, Spark's name
            """Log the number of rows; they are delivered already."""
            log.info("batch %d: %d rows were written", batchId, _rows(messages))

        def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
            """Log how many rows stay in Kafka of a micro-batch that failed, or in which the query was stopped.

            That is no warning: to stop a query is usual, and Spark reports a failure with its cause.
            """
            rows = _rows(messages)
            log.info("batch %d has not ended; %d rows of its finished tasks are written, and repeated", batchId, rows)


def _rows(messages: list[WriterCommitMessage | None]) -> int:
    return sum(message.rows for message in messages if isinstance(message, Written))
