"""The driver that tests/spark/kill_points.py starts, kills and starts again: a query that copies a topic to another."""

from __future__ import annotations

import sys


def main(servers: str, mode: str, checkpoint: str, failures: str, rows: str) -> None:
    """Copy the topic source to the topic `mode` until its end; a task may fail `failures` times."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[2,{failures}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    builder = builder.config("spark.log.level", "ERROR").config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.python.daemon.module", "tests.spark.dying_daemon").getOrCreate()
    reader = spark.readStream.format("pyclient").option("kafka.bootstrap.servers", servers)
    reader = reader.option("subscribe", "source").option("startingOffsets", "earliest")
    df = reader.option("maxOffsetsPerTrigger", rows).load().select("value")
    writer = df.writeStream.format("pyclient").option("kafka.bootstrap.servers", servers).option("topic", mode)
    writer = writer.option("exactlyOnce", str(mode == "exactly-once").lower()).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
