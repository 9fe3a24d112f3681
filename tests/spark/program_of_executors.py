"""A job on two executors, each a process of its own as on a cluster.

`python program_of_executors.py SERVERS CHECKPOINT` copies the topic `numbers` to `by-batch` and to `by-write`, and by a
stream to `by-stream`, exactly once. The producers' client id is in the environment of the executors only. It prints the
number of executors.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from pyclient.spark import write
from tests.spark.conftest import run_query

OPTIONS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executorEnv.ID_OF_EXECUTORS": "of-executors",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.ui.enabled": "false",
}


def parents(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the process that has started this one, the daemon of an executor, for each batch."""
    for _ in batches:
        yield pa.record_batch([pa.array([os.getppid()], pa.int64())], names=["parent"])


def main(servers: str, checkpoint: str) -> None:
    spark = SparkSession.builder.master("local-cluster[2,1,512]").config(map=OPTIONS).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    source = {"kafka.bootstrap.servers": servers, "subscribe": "numbers", "startingOffsets": "earliest"}
    sink = {"kafka.bootstrap.servers": servers, "kafka.client.id": "env:ID_OF_EXECUTORS"}
    numbers = spark.read.format("pyclient").options(**source).load().select("key", "value")
    numbers.write.format("pyclient").options(**sink, topic="by-batch").mode("append").save()
    counts = write(numbers, topic="by-write", bootstrap_servers=servers, client_id="env:ID_OF_EXECUTORS")
    assert len(counts) == 4, counts
    stream = spark.readStream.format("pyclient").options(**source, maxOffsetsPerTrigger="100").load()
    query = stream.select("key", "value").writeStream.format("pyclient").options(**sink, topic="by-stream")
    query = query.option("exactlyOnce", "true").option("checkpointLocation", checkpoint)
    run_query(query)
    executors = spark.range(8, numPartitions=8).mapInArrow(parents, "parent long").distinct().count()
    spark.stop()
    sys.stdout.write(f"{executors} executors\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
