"""A job in Sail, an engine that runs Spark's Python data sources without a JVM.

`python program_in_sail.py SERVERS` reads the topic `orders` and writes to `read-again` by a batch, to `streamed` by a
stream, and to `by-write` and `by-rows` by the functions of pyclient.spark. It prints how often each key is in `orders`.
"""

from __future__ import annotations

import sys
import tempfile

from pysail.spark import SparkConnectServer
from pyspark.sql import SparkSession

from pyclient.spark import write, write_partition
from pyspark_pyclient import DefaultSource


def main(servers: str) -> None:
    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    _, port = server.listening_address
    spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    spark.dataSource.register(DefaultSource)
    options = {"kafka.bootstrap.servers": servers, "subscribe": "orders", "startingOffsets": "earliest"}
    orders = spark.read.format("pyclient").options(**options).load()
    assert dict(orders.dtypes)["timestamp"] == "timestamp"
    sink = orders.select("key", "value").write.format("pyclient").option("kafka.bootstrap.servers", servers)
    sink.option("topic", "read-again").mode("append").save()
    with tempfile.TemporaryDirectory() as checkpoint:
        stream = spark.readStream.format("pyclient").options(**options).load().select("value").writeStream
        stream = stream.format("pyclient").option("kafka.bootstrap.servers", servers).option("topic", "streamed")
        query = stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
    write(orders.select("value"), topic="by-write", bootstrap_servers=servers)
    orders.select("value").foreachPartition(write_partition(topic="by-rows", bootstrap_servers=servers))
    counts = orders.groupBy("key").count().collect()
    sys.stdout.write(f"{sorted((bytes(row[0]).decode(), row[1]) for row in counts)}\n")
    spark.stop()
    server.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
