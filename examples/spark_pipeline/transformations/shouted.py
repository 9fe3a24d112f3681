"""A flow of a declarative pipeline from Kafka to Kafka: Spark keeps the checkpoint, and starts the query again."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
servers = spark.conf.get("orders.servers")

dp.create_sink("shouted", "pyclient", {"kafka.bootstrap.servers": servers, "topic": "shouted"})


@dp.append_flow(target="shouted")
def shout() -> DataFrame:
    orders = spark.readStream.format("pyclient").option("kafka.bootstrap.servers", servers)
    orders = orders.option("subscribe", "orders").option("startingOffsets", "earliest").load()
    return orders.selectExpr("key", "upper(cast(value as string)) as value")
