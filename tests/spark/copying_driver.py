"""The driver that tests/spark/kill_points.py starts, kills and starts again: it copies a topic to another.

A stream goes on from its checkpoint. Batches are writes of a range of the topic each, with a number; after a new start
the last one that has ended is repeated.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.spark.dying_daemon import NUMBER_OF_WRITE


def main(servers: str, mode: str, folder: str, failures: str, shape: str) -> None:
    """Copy the source of a mode to the topic `mode` until its end; a task may fail `failures` times.

    `shape` has the number of micro-batches or writes, of the topic's partitions, and of the rows that a task reads.
    """
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[2,{failures}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    builder = builder.config("spark.log.level", "ERROR").config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.python.daemon.module", "tests.spark.dying_daemon").getOrCreate()
    batches, partitions, rows = map(int, shape.split())
    if mode.endswith("batches"):
        copy_in_batches(spark, servers, mode, Path(folder), batches, partitions, rows)
    else:
        copy_in_stream(spark, servers, mode, folder, partitions * rows)
    spark.stop()


def source_of(mode: str) -> str:
    """Return the topic that is copied to the topic `mode`."""
    return f"{mode}-source"


def copy_in_stream(spark: Any, servers: str, mode: str, checkpoint: str, rows: int) -> None:
    """Copy in micro-batches of so many rows, by the sink or, in a mode of that name, by `foreach_batch`."""
    from pyclient.spark import foreach_batch

    once = mode.startswith("exactly-once")
    reader = spark.readStream.format("pyclient").option("kafka.bootstrap.servers", servers)
    reader = reader.option("subscribe", source_of(mode)).option("startingOffsets", "earliest")
    df = reader.option("maxOffsetsPerTrigger", str(rows)).load().select("value")
    if mode.endswith("function"):
        writer = df.writeStream.foreachBatch(foreach_batch(topic=mode, bootstrap_servers=servers, exactly_once=once))
    else:
        writer = df.writeStream.format("pyclient").option("kafka.bootstrap.servers", servers).option("topic", mode)
        writer = writer.option("exactlyOnce", str(once).lower())
    writer = writer.option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()


def copy_in_batches(
    spark: Any, servers: str, mode: str, folder: Path, batches: int, partitions: int, rows: int
) -> None:
    """Copy in writes of `rows` rows of each partition; at least once, every second one is made by `write`."""
    from pyclient.spark import write

    folder.mkdir(exist_ok=True)
    done = folder / "done"
    first = max(int(done.read_text()) - 1, 0) if done.exists() else 0
    for number in range(first, batches):
        bounds = [
            json.dumps({source_of(mode): dict.fromkeys(map(str, range(partitions)), offset)})
            for offset in (number * rows, (number + 1) * rows)
        ]
        spark.sparkContext.setLocalProperty(NUMBER_OF_WRITE, str(number))
        reader = spark.read.format("pyclient").option("kafka.bootstrap.servers", servers)
        reader = reader.option("subscribe", source_of(mode))
        df = reader.option("startingOffsets", bounds[0]).option("endingOffsets", bounds[1]).load().select("value")
        sink = df.write.format("pyclient").option("kafka.bootstrap.servers", servers).option("topic", mode)
        if mode.startswith("exactly-once"):
            sink = sink.option("exactlyOnce", "true").option("writeId", f"write-{number}")
        if mode.startswith("at-least-once") and number % 2:
            write(df, topic=mode, bootstrap_servers=servers)
        else:
            sink.mode("append").save()
        (folder / "ending").write_text(str(number + 1))
        (folder / "ending").replace(done)


if __name__ == "__main__":
    main(*sys.argv[1:])
