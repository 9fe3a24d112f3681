"""Spark keeps state for each key: orders are counted by customer, and every new count is written back to Kafka.

`transformWithStateInPandas` hands over rows of one key as pandas data frames. Its state needs the RocksDB provider.
"""

import tempfile
from collections.abc import Iterator

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from pyclient import Consumer, Producer, TopicPartition
from pyclient.broker_embedded import EmbeddedCluster

ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class CountOrders(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.orders = handle.getValueState("orders", "count long")

    def handleInputRows(self, key, rows: Iterator[pd.DataFrame], timerValues) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        count = self.orders.get()[0] if self.orders.exists() else 0
        count += sum(len(frame) for frame in rows)
        self.orders.update((count,))
        yield pd.DataFrame({"key": [key[0]], "value": [str(count)]})

    def close(self) -> None:
        pass


builder = SparkSession.builder.master("local[2]").config("spark.sql.streaming.stateStore.providerClass", ROCKS_DB)
builder = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")

with EmbeddedCluster() as cluster, tempfile.TemporaryDirectory() as checkpoint:
    spark = builder.getOrCreate()
    servers = {"kafka.bootstrap.servers": cluster.bootstrap_servers}

    def count_new_orders() -> None:
        orders = spark.readStream.format("pyclient").options(**servers, subscribe="orders", startingOffsets="earliest")
        counts = (
            orders.load()
            .selectExpr("cast(key as string) as customer", "value")
            .groupBy("customer")
            .transformWithStateInPandas(CountOrders(), "key string, value string", "Append", "None")
        )
        query = counts.writeStream.format("pyclient").options(**servers, topic="counts", checkpointLocation=checkpoint)
        query.trigger(availableNow=True).start().awaitTermination()

    with Producer(cluster.bootstrap_servers) as producer:
        producer.send_many("orders", [b"apples", b"pears", b"plums"], keys=[b"ann", b"bob", b"ann"])
        producer.flush()
        count_new_orders()
        producer.send("orders", b"nuts", key=b"ann")
        producer.flush()
        count_new_orders()  # another query: it goes on with the state in its checkpoint
    spark.stop()

    with Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("counts", 0)])
        counts = [(record.key.decode(), int(record.value)) for record in consumer.poll(timeout=10)]
        print(sorted(counts))
