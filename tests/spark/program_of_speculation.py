"""A job in which the first attempt at a task hangs until Spark's speculative copy of it has read all its rows.

`python program_of_speculation.py MASTER SERVERS DIRECTORY` copies the topic `numbers` to `at-least-once`, and exactly
once to `by-batch` and, by a stream, to `by-stream`. The executors are on hosts of different names: Spark starts no copy
of a task on the host where the task runs already. It prints how many copies have read their rows.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from tests.spark.conftest import run_query

PATIENCE = 120.0  # seconds
OPTIONS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.0",
    "spark.speculation.quantile": "0.5",
    "spark.ui.enabled": "false",
}


def hanging(directory: str, name: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for `mapInArrow`: the first attempt at task 0 hangs after its rows until a copy has them."""
    copy = Path(directory, name)

    def passed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        task = TaskContext.get()
        assert task is not None
        if task.partitionId() == 0 and task.attemptNumber() == 0:
            deadline = time.monotonic() + PATIENCE
            while not copy.exists():
                assert time.monotonic() < deadline, f"Spark has started no copy of the task within {PATIENCE:g} s"
                time.sleep(0.01)  # until Spark kills this attempt, or the copy has read its rows
        elif task.partitionId() == 0:
            copy.touch()

    return passed


def main(master: str, servers: str, directory: str) -> None:
    spark = SparkSession.builder.master(master).config(map=OPTIONS).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    source = {"kafka.bootstrap.servers": servers, "subscribe": "numbers", "startingOffsets": "earliest"}
    sink = {"kafka.bootstrap.servers": servers}
    once = {**sink, "exactlyOnce": "true"}

    def rows(reader: Any, name: str) -> Any:
        numbers = reader.format("pyclient").options(**source).load().select("key", "value")
        return numbers.mapInArrow(hanging(directory, name), "key binary, value binary")

    for name, options in (("at-least-once", sink), ("by-batch", {**once, "writeId": "a-batch"})):
        rows(spark.read, name).write.format("pyclient").options(**options, topic=name).mode("append").save()
    query = rows(spark.readStream, "by-stream").writeStream.format("pyclient").options(**once, topic="by-stream")
    query = query.option("checkpointLocation", str(Path(directory, "checkpoint")))
    run_query(query)
    spark.stop()
    copies = [name for name in ("at-least-once", "by-batch", "by-stream") if Path(directory, name).exists()]
    sys.stdout.write(f"{len(copies)} copies\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
