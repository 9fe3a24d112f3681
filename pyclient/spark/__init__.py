"""Kafka for PySpark: `format("pyclient")` (docs/spark.md), `write`, and `write_partition` for `foreachPartition`."""

from __future__ import annotations

from pyclient.spark.writer import write, write_partition
from pyclient.spark.writing import WriteFailed

__all__ = ["WriteFailed", "write", "write_partition"]
