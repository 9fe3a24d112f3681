"""Kafka for PySpark: `format("pyclient")` (docs/spark.md), `write`, and `write_partition` for `foreachPartition`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.lazy_names import importer

if TYPE_CHECKING:
    from pyclient.spark.writer import foreach_batch, write, write_partition
    from pyclient.spark.writing import WriteFailed

__all__ = ["WriteFailed", "foreach_batch", "write", "write_partition"]

_MODULES = {
    "WriteFailed": "pyclient.spark.writing",
    "foreach_batch": "pyclient.spark.writer",
    "write": "pyclient.spark.writer",
    "write_partition": "pyclient.spark.writer",
}

if not TYPE_CHECKING:  # to a type checker, a module with this function has every name
    __getattr__ = importer(__name__, _MODULES)
