"""Kafka for PySpark: `format("pyclient")` (docs/spark.md), `write`, and `write_partition` for `foreachPartition`."""

from __future__ import annotations

from pyclient.spark.writer import foreach_batch, write, write_partition
from pyclient.spark.writing import WriteFailed

__all__ = ["WriteFailed", "foreach_batch", "write", "write_partition"]
