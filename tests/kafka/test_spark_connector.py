"""Spark by `format("pyclient")` on a real Kafka, and Spark's own connector on the embedded broker."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyclient import Producer, TopicPartition
from pyclient.broker_embedded import EmbeddedCluster
from tests.kafka.conftest import Cluster
from tests.kafka.jars import NoKafka, spark_connector
from tests.reading import read_all
from tests.spark.conftest import create
from tests.waiting import until_decided

ROWS = 3000
OURS, SPARKS_OWN = "pyclient", "kafka"


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A session that has both connectors."""
    pytest.importorskip("pyspark.sql.datasource")
    from pyspark.sql import SparkSession

    try:
        jars = spark_connector()
    except NoKafka as reason:
        pytest.skip(str(reason))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.jars", jars)
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    builder = builder.config("spark.log.level", "ERROR").config("spark.ui.showConsoleProgress", "false")
    session = builder.getOrCreate()
    yield session
    session.stop()


def fill(servers: str, topic: str) -> list[bytes]:
    """Write rows to two partitions; return their values."""
    values = [b"row %d" % number for number in range(ROWS)]
    with Producer(servers) as producer:
        producer.send_many(topic, values, keys=[b"%d" % (number % 7) for number in range(ROWS)])
    return values


def copy_batch(spark: Any, servers: str, source: str, sink: str, *, reads: str, writes: str) -> None:
    """Copy a topic by a batch query."""
    df = spark.read.format(reads).option("kafka.bootstrap.servers", servers).option("subscribe", source).load()
    write = df.select("key", "value").write.format(writes).option("kafka.bootstrap.servers", servers)
    write.option("topic", sink).mode("append").save()


def copy_stream(spark: Any, servers: str, checkpoint: Path, source: str, sink: str, **formats: str) -> None:
    """Copy a topic by a streaming query in several micro-batches."""
    df = spark.readStream.format(formats["reads"]).option("kafka.bootstrap.servers", servers)
    df = df.option("subscribe", source).option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", ROWS // 2)
    write = df.load().select("key", "value").writeStream.format(formats["writes"])
    write = write.option("kafka.bootstrap.servers", servers).option("topic", sink)
    if formats.get("exactly_once"):
        write = write.option("exactlyOnce", "true")
    write.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()


def values(servers: str, topic: str) -> list[bytes]:
    until_decided(servers, [TopicPartition(topic, number) for number in range(2)])
    return sorted(record.value or b"" for record in read_all(servers, topic, 2, isolation_level="read_committed"))


@pytest.fixture(scope="module")
def embedded() -> Iterator[str]:
    """A cluster of three embedded brokers, to which Spark's own connector is a client as any other."""
    with EmbeddedCluster(brokers=3) as cluster:
        yield cluster.bootstrap_servers


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
class TestOnARealKafka:
    def test_batches_and_streams_by_our_connector(
        self, spark: Any, newest: Cluster, topic: str, tmp_path: Path
    ) -> None:
        servers = newest.bootstrap_servers
        source, batch, stream = (create(servers, f"{topic}-{name}", 2) for name in ("source", "batch", "stream"))
        sent = sorted(fill(servers, source))
        copy_batch(spark, servers, source, batch, reads=OURS, writes=OURS)
        assert values(servers, batch) == sent
        copy_stream(spark, servers, tmp_path, source, stream, reads=OURS, writes=OURS, exactly_once="yes")
        assert values(servers, stream) == sent


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
class TestOnTheEmbeddedBroker:
    def test_batches_by_sparks_own_connector(self, spark: Any, embedded: str, topic: str) -> None:
        source, there, back = (create(embedded, f"{topic}-{name}", 2) for name in ("source", "there", "back"))
        sent = sorted(fill(embedded, source))
        copy_batch(spark, embedded, source, there, reads=SPARKS_OWN, writes=SPARKS_OWN)
        assert values(embedded, there) == sent
        copy_batch(spark, embedded, there, back, reads=SPARKS_OWN, writes=OURS)
        assert values(embedded, back) == sent

    def test_streams_by_sparks_own_connector(self, spark: Any, embedded: str, topic: str, tmp_path: Path) -> None:
        source, sink = (create(embedded, f"{topic}-{name}", 2) for name in ("source", "sink"))
        sent = sorted(fill(embedded, source))
        copy_stream(spark, embedded, tmp_path, source, sink, reads=SPARKS_OWN, writes=SPARKS_OWN)
        assert values(embedded, sink) == sent

    def test_our_source_and_sparks_own_sink_in_one_stream(
        self, spark: Any, embedded: str, topic: str, tmp_path: Path
    ) -> None:
        source, sink = (create(embedded, f"{topic}-{name}", 2) for name in ("source", "sink"))
        sent = sorted(fill(embedded, source))
        copy_stream(spark, embedded, tmp_path, source, sink, reads=OURS, writes=SPARKS_OWN)
        assert values(embedded, sink) == sent
