"""A job for any release of pyspark: writes by every way of that release, and reads if it has data sources.

`python program_of_a_release.py SERVERS TOPIC FOLDER DATA` writes 0 to 99 by `write_partition`, 100 to 199 by `write`.
With data sources it writes the same numbers plus 1000 by a batch, and plus 2000 by a stream, that read what the first
two wrote. Then it writes 3000 to 3009 by `foreach_batch`, at least once and exactly once, each twice as the query is
started again; with data sources 4000 to 4009 exactly once by a batch with a write id, twice, and 5000 to 5009 by a
stream that repeats its micro-batch. It reads the topic `stored` from a broker's directory DATA, and prints the sum of
its values and the release.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from pyclient.spark import foreach_batch, topic_to_dataframe, write, write_partition
from tests.spark.conftest import run_query


def main(servers: str, topic: str, folder: str, data: str) -> None:
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
        through_source(spark, servers, topic, f"{folder}/checkpoint")
        once_through_source(spark, servers, topic, Path(folder))
    for exactly_once in (False, True):
        each = foreach_batch(topic=topic, bootstrap_servers=servers, exactly_once=exactly_once)
        twice(text_stream(spark, Path(folder), 3000).foreachBatch(each), Path(folder, f"each-{exactly_once}"))
    stored = topic_to_dataframe(spark, data, "stored").selectExpr("sum(cast(cast(value as string) as int)) as sum")
    sys.stdout.write(f"stored {stored.first().sum}\n")
    spark.stop()
    sys.stdout.write(f"pyspark {pyspark.__version__}\n")


def through_source(spark: Any, servers: str, topic: str, checkpoint: str) -> None:
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    stream = spark.readStream.format("pyclient").options(**options).load()
    query = stream.selectExpr("cast(cast(cast(value as string) as int) + 2000 as string) as value").writeStream
    query = query.format("pyclient").option("kafka.bootstrap.servers", servers).option("topic", topic)
    run_query(query.option("checkpointLocation", checkpoint))
    batch = spark.read.format("pyclient").options(**options).load().where("cast(cast(value as string) as int) < 1000")
    batch = batch.selectExpr("cast(cast(cast(value as string) as int) + 1000 as string) as value")
    batch.write.format("pyclient").option("kafka.bootstrap.servers", servers).option("topic", topic).mode(
        "append"
    ).save()


def once_through_source(spark: Any, servers: str, topic: str, folder: Path) -> None:
    options = {"kafka.bootstrap.servers": servers, "topic": topic, "exactlyOnce": "true"}
    rows = spark.range(4000, 4010).selectExpr("cast(id as string) as value").coalesce(1)
    for _ in range(2):
        rows.write.format("pyclient").options(**options, writeId=f"{topic}-batch").mode("append").save()
    twice(text_stream(spark, folder, 5000).format("pyclient").options(**options), folder / "once")


def text_stream(spark: Any, folder: Path, first: int) -> Any:
    """Return the writer of a stream with ten numbers in one partition."""
    source = folder / f"from-{first}"
    source.mkdir(exist_ok=True)
    (source / "numbers.txt").write_text("\n".join(str(number) for number in range(first, first + 10)))
    return spark.readStream.text(str(source)).writeStream


def twice(writer: Any, checkpoint: Path) -> None:
    """Run a query to its end, and again without Spark's note that the micro-batch has ended, so that it is repeated."""
    for _ in range(2):
        run_query(writer.option("checkpointLocation", str(checkpoint)))
        for note in (checkpoint / "commits").iterdir():
            note.unlink()


if __name__ == "__main__":
    main(*sys.argv[1:])
