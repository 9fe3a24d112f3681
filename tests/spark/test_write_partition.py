"""Rows of a DataFrame become records; a task whose rows are not delivered fails."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from pyclient import Admin, Consumer, NewTopic, Record, TopicPartition, errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.spark import write_partition
from pyclient.spark.rows import to_record

needs_java = [pytest.mark.spark, pytest.mark.xdist_group("spark")]
if not (shutil.which("java") or os.environ.get("JAVA_HOME")) and os.environ.get("PYCLIENT_REQUIRE_ALL") != "1":
    needs_java.append(pytest.mark.skip(reason="Spark needs Java, and there is none here"))


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    session = builder.config("spark.log.level", "ERROR").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    yield session
    session.stop()


def read_all(servers: str, topic: str, partitions: int) -> list[Record]:
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        assigned = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(assigned)
        ends = consumer.end_offsets(assigned)
        records: list[Record] = []
        while any(consumer.position(partition) < ends[partition] for partition in assigned):
            records += consumer.poll(timeout=10)
        return records


class TestWithSpark:
    pytestmark = needs_java

    def test_every_row_is_written_once(self, spark: Any, kafka_cluster: EmbeddedCluster) -> None:
        servers, topic = kafka_cluster.bootstrap_servers, "spark-rows"
        with Admin(servers) as admin:
            admin.create_topics([NewTopic(topic, 3, 1)])
        rows = spark.range(20_000).selectExpr("cast(id as string) as key", "concat('row ', id) as value").repartition(4)
        rows.foreachPartition(write_partition(topic=topic, bootstrap_servers=servers))
        written = sorted(int(record.key) for record in read_all(servers, topic, 3))
        assert written == list(range(20_000))

    def test_all_columns_of_the_sink_are_used(
        self, spark: Any, kafka_cluster: EmbeddedCluster, kafka_topic: str
    ) -> None:
        rows = spark.sql(
            f"""select '{kafka_topic}' as topic, 0 as partition, cast('k' as binary) as key, 'v' as value,
                array(struct('h' as key, cast('1' as binary) as value)) as headers,
                timestamp'2026-01-02 03:04:05Z' as timestamp"""
        )
        rows.foreachPartition(write_partition(bootstrap_servers=kafka_cluster.bootstrap_servers))
        (record,) = read_all(kafka_cluster.bootstrap_servers, kafka_topic, 1)
        assert (record.key, record.value, record.headers) == (b"k", b"v", (("h", b"1"),))
        assert record.timestamp_ms == round(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp() * 1000)

    def test_a_job_whose_rows_are_not_delivered_fails(self, spark: Any, kafka_cluster: EmbeddedCluster) -> None:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        rows = spark.range(10).selectExpr("cast(id as string) as value")
        write = write_partition(
            topic="not a topic", bootstrap_servers=kafka_cluster.bootstrap_servers, max_block_ms=60_000
        )
        with pytest.raises((Py4JJavaError, PySparkException), match="InvalidTopic"):
            rows.foreachPartition(write)


def test_the_writer_pickles_and_hides_secrets() -> None:
    write = write_partition(topic="t", bootstrap_servers="h:1", ssl_keyfile="/secret/path", linger_ms=5)
    assert repr(pickle.loads(pickle.dumps(write))) == repr(write)
    assert "/secret" not in repr(write)
    assert "linger_ms=5" in repr(write)


@pytest.mark.parametrize("timeout", [-1, float("nan"), "10", None, True])
def test_flush_timeout_that_is_no_time_is_refused_before_rows_are_sent(timeout: Any) -> None:
    with pytest.raises(ValueError, match=r"flush_timeout=.* is not possible"):
        write_partition(topic="t", bootstrap_servers="h:1", flush_timeout=timeout)


def test_dicts_and_plain_tuples_are_rows_too() -> None:
    assert to_record({"value": "v", "key": None}, "t").value == b"v"
    assert to_record((b"k", b"v"), "t")[:3] == ("t", b"v", b"k")
    assert to_record(("v",), "t").key is None


@pytest.mark.parametrize(
    ("row", "error", "said"),
    [
        ({"key": b"k"}, errors.ConfigError, "value"),
        (("a", "b", "c"), errors.ConfigError, r"\(key, value\)"),
        ({"value": 5}, errors.SerializationError, "cast"),
        ({"value": "v"}, errors.ConfigError, "topic"),
    ],
)
def test_a_row_that_cannot_be_a_record_says_why(row: Any, error: type[Exception], said: str) -> None:
    topic = None if said == "topic" else "t"
    with pytest.raises(error, match=said):
        to_record(row, topic)
