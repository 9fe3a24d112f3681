"""The writers of `format("pyclient")`: every task delivers its rows before it ends (at least once)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

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
    """What a task tells the driver: how many rows it has delivered."""

    rows: int


class BatchSink(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, writer: BatchWriter) -> None:
        self._writer = writer

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Deliver a task's rows."""
        return Written(self._writer.write(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the number of rows; they are delivered already."""
        log.info("%d rows were written", _rows(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log how many rows stay in Kafka although the job has failed."""
        log.warning("the job failed after %d rows of finished tasks were written; they stay", _rows(messages))


if ARROW_STREAMS:

    class StreamSink(DataSourceStreamArrowWriter):
        """Writes the micro-batches of a query."""

        def __init__(self, writer: BatchWriter) -> None:
            self._writer = writer

        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            """Deliver a task's rows of a micro-batch."""
            return Written(self._writer.write(iterator))

        def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, Spark's name
            """Log the number of rows; they are delivered already."""
            log.info("batch %d: %d rows were written", batchId, _rows(messages))

        def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
            """Log how many rows of the failed micro-batch stay in Kafka: its replay writes them again."""
            log.warning("batch %d failed after %d rows were written; its replay repeats them", batchId, _rows(messages))


def _rows(messages: list[WriterCommitMessage | None]) -> int:
    return sum(message.rows for message in messages if isinstance(message, Written))
