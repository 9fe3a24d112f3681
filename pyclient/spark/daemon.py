"""A daemon for Python workers of Spark that have pyclient loaded when they begin.

    spark = SparkSession.builder.config("spark.python.daemon.module", "pyclient.spark.daemon")...

Spark's own daemon forks workers that import what their first task needs, which takes some tenths of a second in each
of them. This one imports it once, before it forks; the workers share that memory.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from typing import Final

_FOR_TASKS: Final = (
    "pyarrow.compute",
    "pyclient.consumer.consumer",
    "pyclient.producer.producer",
    "pyclient.spark.columns",
    "pyclient.spark.data_source",
    "pyclient.spark.decoding",
    "pyclient.spark.exactly_once",
    "pyclient.spark.sink",
    "pyclient.spark.source",
    "pyclient.spark.stream",
    "pyclient.spark.writer",
)


def main() -> None:
    """Load what workers need, and serve Spark as its own daemon does. Starts no thread, which forks would not have."""
    from pyspark.daemon import manager

    for name in (sys.argv[1], *_FOR_TASKS):
        import_module(name)
    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
