"""Writers for PySpark: what `foreachPartition` calls on the executors."""

from __future__ import annotations

from pyclient.spark.writer import WriteFailed, write_partition

__all__ = ["WriteFailed", "write_partition"]
