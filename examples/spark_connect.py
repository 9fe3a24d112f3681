"""Spark Connect: the client sends plans, and the server's workers read and write Kafka.

`python spark_connect.py sc://host:15002` uses the server there, whose Python has to have pyclient. Without an address
it starts one on this machine, at port 15002. Needs `pip install 'pyspark[connect]'`.
"""

import sys

from pyspark.sql import SparkSession

from pyclient import Producer
from pyclient.broker_embedded import EmbeddedCluster
from pyspark_pyclient import DefaultSource

server = sys.argv[1] if len(sys.argv) > 1 else "local[2]"

with EmbeddedCluster() as cluster:
    with Producer(cluster.bootstrap_servers) as producer:
        producer.send_many("orders", [b"apples", b"pears", b"plums"], keys=[b"ann", b"bob", b"ann"])
    spark = SparkSession.builder.remote(server).getOrCreate()
    spark.dataSource.register(DefaultSource)  # the server may not have found it by itself
    servers = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    orders = spark.read.format("pyclient").options(**servers, subscribe="orders").load()
    counts = orders.groupBy("key").count().selectExpr("key", "cast(count as string) as value")
    counts.write.format("pyclient").options(**servers, topic="counts").mode("append").save()
    written = spark.read.format("pyclient").options(**servers, subscribe="counts").load()
    print(sorted(map(tuple, written.selectExpr("cast(key as string)", "int(cast(value as string))").collect())))
    spark.stop()
