"""A job for any release of pyspark: writes by every way of that release, and reads if it has data sources.

`python program_of_a_release.py SERVERS TOPIC CHECKPOINT` writes 0 to 99 by `write_partition` and 100 to 199 by `write`.
With data sources it writes the same numbers plus 1000 by a batch, and plus 2000 by a stream, that read what the first
two wrote. It prints the release.
"""

from __future__ import annotations

import sys
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from pyclient.spark import write, write_partition


def main(servers: str, topic: str, checkpoint: str) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    rows = spark.range(100).selectExpr("cast(id as string) as value", "'k' as key")
    rows.foreachPartition(write_partition(bootstrap_servers=servers, topic=topic))
    more = spark.range(100, 200).selectExpr("cast(id as string) as value")
    counts = write(more, topic=topic, bootstrap_servers=servers)
    assert sum(counts.values()) == 100, counts
    if pyspark.__version__ >= "4.1":
        through_source(spark, servers, topic, checkpoint)
    spark.stop()
    sys.stdout.write(f"pyspark {pyspark.__version__}\n")


def through_source(spark: Any, servers: str, topic: str, checkpoint: str) -> None:
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    stream = spark.readStream.format("pyclient").options(**options).load()
    query = stream.selectExpr("cast(cast(cast(value as string) as int) + 2000 as string) as value").writeStream
    query = query.format("pyclient").option("kafka.bootstrap.servers", servers).option("topic", topic)
    query.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    batch = spark.read.format("pyclient").options(**options).load().where("cast(cast(value as string) as int) < 1000")
    batch = batch.selectExpr("cast(cast(cast(value as string) as int) + 1000 as string) as value")
    batch.write.format("pyclient").option("kafka.bootstrap.servers", servers).option("topic", topic).mode(
        "append"
    ).save()


if __name__ == "__main__":
    main(*sys.argv[1:])
