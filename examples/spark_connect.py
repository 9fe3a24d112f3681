"""Spark Connect: the client sends plans, and the server's workers read and write Kafka.

Needs `pip install 'pyspark[connect]'`. `remote("local[2]")` starts a server on this machine; another one's address is
`sc://host:15002`. The server's Python has to have pyclient.
"""

from pyspark.sql import SparkSession

from pyclient import Producer
from pyclient.broker_embedded import EmbeddedCluster
from pyspark_pyclient import DefaultSource

with EmbeddedCluster() as cluster:
    with Producer(cluster.bootstrap_servers) as producer:
        producer.send_many("orders", [b"apples", b"pears", b"plums"], keys=[b"ann", b"bob", b"ann"])
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    spark.dataSource.register(DefaultSource)  # the server may not have found it by itself
    servers = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    orders = spark.read.format("pyclient").options(**servers, subscribe="orders").load()
    counts = orders.groupBy("key").count().selectExpr("key", "cast(count as string) as value")
    counts.write.format("pyclient").options(**servers, topic="counts").mode("append").save()
    written = spark.read.format("pyclient").options(**servers, subscribe="counts").load()
    print(sorted(map(tuple, written.selectExpr("cast(key as string)", "int(cast(value as string))").collect())))
    spark.stop()
