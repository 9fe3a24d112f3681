"""Kafka for PySpark: `format("pyclient")` (docs/spark.md), `write`, and `write_partition` for `foreachPartition`.

`KafkaDataSource` checks the options and makes a `BatchReader`, a `StreamReader` or a `BatchSink`. Tasks read with a
`RangeReader` and write with a `BatchWriter` or an `ExactlyOnceWriter`, by clients that `WorkerClients` keeps between
tasks. `OffsetReader` has the driver's requests; `SegmentReader` reads a local broker's files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.lazy_names import importer

if TYPE_CHECKING:
    from pyclient.spark.offsets import offsets_behind_latest
    from pyclient.spark.segments import SegmentGone, topic_to_dataframe
    from pyclient.spark.writer import foreach_batch, write, write_partition
    from pyclient.spark.writing import WriteFailed

__all__ = [
    "SegmentGone",
    "WriteFailed",
    "foreach_batch",
    "offsets_behind_latest",
    "topic_to_dataframe",
    "write",
    "write_partition",
]

_MODULES = {
    "SegmentGone": "pyclient.spark.segments",
    "WriteFailed": "pyclient.spark.writing",
    "foreach_batch": "pyclient.spark.writer",
    "offsets_behind_latest": "pyclient.spark.offsets",
    "topic_to_dataframe": "pyclient.spark.segments",
    "write": "pyclient.spark.writer",
    "write_partition": "pyclient.spark.writer",
}

if not TYPE_CHECKING:  # to a type checker, a module with this function has every name
    __getattr__ = importer(__name__, _MODULES)
