"""Rows that a task cannot deliver are counted in its error; a cluster that does not answer is found by the driver."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyclient import Admin, TopicPartition, errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.consumer import Consumer
from pyclient.spark import WriteFailed, foreach_batch, write, write_partition
from pyclient.spark.exactly_once import ExactlyOnceWriter
from pyclient.spark.writing import BatchWriter, check_cluster
from tests.reading import read_all
from tests.spark.conftest import create, data_source, needs_java, schema_of
from tests.waiting import until


@pytest.fixture
def servers(kafka_cluster: EmbeddedCluster) -> str:
    return kafka_cluster.bootstrap_servers


@pytest.fixture
def nowhere() -> Iterator[str]:
    """Yield an address at which nothing listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


def rows(*values: str, partition: int = 0) -> pa.RecordBatch:
    columns = {"value": pa.array(values), "partition": pa.array([partition] * len(values), pa.int32())}
    return pa.record_batch(columns)


def end_of(servers: str, topic: str) -> int:
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=servers) as consumer:
        return consumer.end_offsets([partition])[partition]


@pytest.fixture
def spark_connect_frame() -> Any:
    """Return the part of a Spark Connect DataFrame that `write` uses; its server has written three rows."""

    class DataFrame:
        __module__ = "pyspark.sql.connect.dataframe"
        schema = schema_of("value string")

        def mapInArrow(self, _function: Any, _schema: str) -> Any:  # noqa: N802, Spark's name
            return self

        def collect(self) -> list[tuple[int, int]]:
            return [(0, 3)]

    return DataFrame()


class TestCounts:
    def test_rows_that_a_broker_refuses_are_counted(self, kafka_cluster: EmbeddedCluster, servers: str) -> None:
        topic = create(servers, "counts-refused", 2)
        kafka_cluster.faults.fail("Produce", "InvalidRecord", topic=topic, partition=1, times=None)
        sink = BatchWriter(topic, 30.0, {"bootstrap.servers": servers})
        with pytest.raises(WriteFailed, match=r"^3 of 5 rows were not delivered; the first error: "):
            sink.write([rows("a", "b"), rows("c", "d", "e", partition=1)])
        assert [record.value for record in read_all(servers, topic, 2)] == [b"a", b"b"]

    def test_rows_not_confirmed_in_time_are_counted(self, kafka_cluster: EmbeddedCluster, servers: str) -> None:
        topic = create(servers, "counts-late", 1)

        def batches() -> Iterator[pa.RecordBatch]:
            yield rows("a", "b", "c")
            until(lambda: end_of(servers, topic) == 3)
            kafka_cluster.faults.hold("Produce", topic=topic, times=None)
            yield rows("d", "e")

        sink = BatchWriter(topic, 3.0, {"bootstrap.servers": servers})  # the first rows are confirmed in this time
        with pytest.raises(WriteFailed, match=r"^2 of 5 rows .* within 3 s \(flush_timeout, flushTimeoutMs\): 1 batch"):
            sink.write(batches())

    def test_the_next_task_counts_its_own_rows_only(self, kafka_cluster: EmbeddedCluster, servers: str) -> None:
        topic = create(servers, "counts-again", 1)
        task = write_partition(topic=topic, bootstrap_servers=servers, flush_timeout=0.5)
        write_partition(topic=topic, bootstrap_servers=servers, flush_timeout=30.0)([("k", "a"), ("k", "b")])
        kafka_cluster.faults.hold("Produce", topic=topic, times=None)
        with pytest.raises(WriteFailed, match=r"^1 of 1 rows were not delivered within 0\.5 s"):
            task([("k", "c")])

    def test_rows_of_a_transaction_are_counted(self, kafka_cluster: EmbeddedCluster, servers: str) -> None:
        topic = create(servers, "counts-once", 1)
        kafka_cluster.faults.delay("Produce", 3.0, topic=topic)
        task = ExactlyOnceWriter(topic, 0.2, {"bootstrap.servers": servers})
        with pytest.raises(WriteFailed, match=r"^2 of 2 rows were not delivered within 0\.2 s"):
            task.write([rows("a", "b")], "counts", 0, 0)
        ExactlyOnceWriter(topic, 30.0, {"bootstrap.servers": servers}).write([rows("a", "b")], "counts", 0, 0)
        committed = read_all(servers, topic, 1, isolation_level="read_committed")
        assert [record.value for record in committed] == [b"a", b"b"]


class TestUnreachableCluster:
    @pytest.mark.parametrize("query", ["writer", "streamWriter"])
    @pytest.mark.parametrize("topic", [{"topic": "t"}, {}])
    def test_cluster_is_asked_when_the_writer_is_made(self, nowhere: str, query: str, topic: dict[str, str]) -> None:
        source = data_source({"kafka.bootstrap.servers": nowhere, "kafka.max.block.ms": "200", **topic})
        make = getattr(source, query)
        with pytest.raises(
            errors.KafkaTimeout, match=rf"no row was written: .* {nowhere} did not answer within 0\.2 s"
        ):
            make(schema_of("topic string, value string"), False)

    def test_write_partition_does_not_ask_it(self, nowhere: str) -> None:
        write_partition(topic="t", bootstrap_servers=nowhere, max_block_ms=1)

    def test_client_of_spark_connect_does_not_ask_it(self, spark_connect_frame: Any, nowhere: str) -> None:
        counts = write(spark_connect_frame, topic="t", bootstrap_servers=nowhere, max_block_ms=1)
        assert counts == {0: 3}

    def test_secrets_of_the_executors_only_are_no_reason_to_fail(self, nowhere: str) -> None:
        check_cluster({"bootstrap.servers": nowhere, "max.block.ms": "1", "ssl.key.password": "env:NOT_HERE"}, "t")

    def test_a_topic_that_does_not_exist_passes_and_is_not_created(self, servers: str) -> None:
        check_cluster({"bootstrap.servers": servers}, "planned-only")
        with Admin(servers) as admin:
            assert "planned-only" not in admin.list_topics()

    def test_a_topic_that_is_refused_does_not_pass(self, servers: str) -> None:
        with pytest.raises(errors.InvalidTopic):
            check_cluster({"bootstrap.servers": servers}, "not a topic")

    def test_micro_batches_ask_once(self, kafka_cluster: EmbeddedCluster, servers: str) -> None:
        client = {"bootstrap.servers": servers, "client.id": "asks-once"}
        with kafka_cluster.requests.start() as requests:
            for _ in range(3):
                check_cluster(client, "t", once=True)
            assert len(requests.query("Metadata", client="asks-once", topic="t")) == 1
            check_cluster(client, "t")
            assert len(requests.query("Metadata", client="asks-once", topic="t")) == 2


class TestInSpark:
    pytestmark = needs_java

    def test_the_job_fails_with_the_count(self, spark: Any, kafka_cluster: EmbeddedCluster, servers: str) -> None:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        topic = create(servers, "counts-job", 1)
        kafka_cluster.faults.fail("Produce", "InvalidRecord", topic=topic, times=None)
        df = spark.range(10).selectExpr("cast(id as string) as value").coalesce(1)
        with pytest.raises((Py4JJavaError, PySparkException), match=r"WriteFailed: 10 of 10 rows were not delivered"):
            df.foreachPartition(write_partition(topic=topic, bootstrap_servers=servers))

    def test_a_write_to_nowhere_fails_before_its_tasks(self, spark: Any, nowhere: str, tmp_path: Path) -> None:
        from pyspark.errors import PySparkException

        ran = tmp_path / "ran"

        def mark(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            ran.touch()
            yield from batches

        df = spark.range(1).selectExpr("'v' as value").mapInArrow(mark, "value string")
        said = rf"no row was written: the cluster at {nowhere} did not answer within 0\.2 s"
        options = {"kafka.bootstrap.servers": nowhere, "kafka.max.block.ms": "200", "topic": "t"}
        with pytest.raises(PySparkException, match=said):
            df.write.format("pyclient").options(**options).mode("append").save()
        given = {"topic": "t", "bootstrap_servers": nowhere, "max_block_ms": 200}
        with pytest.raises(errors.KafkaTimeout, match=said):
            write(df, **given)
        for exactly_once in (False, True):
            with pytest.raises(errors.KafkaTimeout, match=said):
                foreach_batch(**given, exactly_once=exactly_once)(df, 0)
        stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        stream = stream.selectExpr("'v' as value").mapInArrow(mark, "value string").writeStream.format("pyclient")
        query = stream.options(**options, checkpointLocation=str(tmp_path / "checkpoint")).start()
        with pytest.raises(PySparkException, match=said):
            query.awaitTermination()
        assert not ran.exists()
