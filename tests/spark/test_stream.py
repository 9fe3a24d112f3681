"""Offsets of streaming queries, as Spark asks for them in the driver: checkpoints that do not fit, and the lag."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from pyclient import Admin, NewTopic, Producer, TopicPartition, errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.spark import offsets_behind_latest
from pyclient.spark.offsets import OffsetRange
from pyclient.spark.options import source_options
from pyclient.spark.reading import DataLoss, RangeReader
from pyclient.spark.stream import StreamReader, stream_reader
from tests.spark.conftest import begun, create, needs_java, run_query
from tests.waiting import PATIENCE, until


def stream(cluster: EmbeddedCluster, topic: str, **options: str) -> StreamReader:
    """Return the reader of a streaming query."""
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic, **options}
    return stream_reader(source_options(given, "stream"), RangeReader({}, (), 1.0, True))


@pytest.fixture
def filled(kafka_cluster: EmbeddedCluster, kafka_topic: str) -> str:
    with Producer(kafka_cluster.bootstrap_servers) as producer:
        producer.send_many(kafka_topic, [b"a", b"b", b"c"])
    return kafka_topic


class FakeClock:
    """The planner's clock, which a test moves on."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    made = FakeClock()
    monkeypatch.setattr("pyclient.spark.stream.monotonic", made)
    return made


@pytest.fixture
def quick_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a partition count as lost after a moment."""
    monkeypatch.setattr("pyclient.spark.stream.LOSS_SECONDS", 0.1)


def test_topic_that_appears_late_is_not_lost(
    kafka_cluster: EmbeddedCluster, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the broker that is asked does not have the newest metadata."""
    monkeypatch.setattr("pyclient.spark.stream.LOSS_SECONDS", 60.0)  # a busy machine may create it after 5 s
    other = f"{filled}-late"

    def create() -> None:
        with Admin(kafka_cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(other, 1)])

    given = {"kafka.bootstrap.servers": kafka_cluster.bootstrap_servers, "subscribePattern": f"{filled}.*"}
    reader = stream_reader(source_options(given, "stream"), RangeReader({}, (), 1.0, True))
    assert reader.latestOffset({filled: {"0": 1}}) == {filled: {"0": 3}}  # the topics are known from now on
    later = threading.Timer(0.3, create)
    later.start()
    assert reader.latestOffset({filled: {"0": 1}, other: {"0": 0}}) == {filled: {"0": 3}, other: {"0": 0}}
    later.join()
    reader.stop()


@pytest.mark.usefixtures("quick_loss")
def test_checkpoint_of_another_query_fails_before_it_is_changed(kafka_cluster: EmbeddedCluster, filled: str) -> None:
    reader = stream(kafka_cluster, filled)
    with pytest.raises(DataLoss, match=r"has read other-0 before, .* checkpointLocation is that of another query"):
        reader.latestOffset({"other": {"0": 5}})
    reader.stop()


@pytest.mark.usefixtures("quick_loss")
def test_partitions_that_are_gone_are_left_out_on_request(kafka_cluster: EmbeddedCluster, filled: str) -> None:
    reader = stream(kafka_cluster, filled, failOnDataLoss="false")
    start = {filled: {"0": 1}, "deleted": {"0": 5}}
    end = reader.latestOffset(start)
    assert end == {filled: {"0": 3}}
    assert [each.value for each in reader.partitions(start, end)] == [OffsetRange(filled, 0, 1, 3)]
    reader.stop()


@pytest.mark.usefixtures("quick_loss")
def test_log_that_ends_before_the_start_fails_the_query(kafka_cluster: EmbeddedCluster, filled: str) -> None:
    reader = stream(kafka_cluster, filled)
    with pytest.raises(DataLoss, match="-0 ends at offset 3, before the offset 100 at which the query goes on"):
        reader.latestOffset({filled: {"0": 100}})
    reader.stop()


@pytest.mark.usefixtures("quick_loss")
def test_log_that_ends_before_the_start_goes_on_on_request(kafka_cluster: EmbeddedCluster, filled: str) -> None:
    reader = stream(kafka_cluster, filled, failOnDataLoss="false")
    start = {filled: {"0": 100}}
    end = reader.latestOffset(start)
    assert end == {filled: {"0": 3}}
    assert reader.partitions(start, end) == []
    with Producer(kafka_cluster.bootstrap_servers) as producer:
        producer.send(filled, b"d")
        producer.flush()
    until(lambda: reader.latestOffset(end) == {filled: {"0": 4}})
    reader.stop()


@pytest.mark.parametrize("fails", ["true", "false"])
def test_query_that_has_read_of_an_open_transaction_waits_for_its_end(
    kafka_cluster: EmbeddedCluster, filled: str, fails: str
) -> None:
    """As with another isolation level than before its restart."""
    committed = {"kafka.isolation.level": "read_committed", "failOnDataLoss": fails}
    reader, start = stream(kafka_cluster, filled, **committed), {filled: {"0": 5}}
    with Producer(kafka_cluster.bootstrap_servers, transactional_id=f"{filled}-{fails}") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send_many(filled, [b"d", b"e", b"f"])
            producer.flush()
            assert reader.latestOffset(start) == start
            assert [each.value.size for each in reader.partitions(start, start)] == []
    until(lambda: reader.latestOffset(start) == {filled: {"0": 7}})  # with the transaction's marker
    assert [each.value for each in reader.partitions(start, {filled: {"0": 7}})] == [OffsetRange(filled, 0, 5, 7)]
    reader.stop()


def test_micro_batch_waits_for_enough_offsets_or_the_delay(
    kafka_cluster: EmbeddedCluster, filled: str, clock: FakeClock
) -> None:
    reader = stream(kafka_cluster, filled, minOffsetsPerTrigger="3", maxTriggerDelay="60s")
    start = {filled: {"0": 1}}

    def end_after(seconds: float, start: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
        clock.now += seconds
        return reader.latestOffset(start)

    assert end_after(0, start) == start  # two of three
    assert end_after(59, start) == start
    assert end_after(1, start) == {filled: {"0": 3}}
    assert end_after(59, {filled: {"0": 2}}) == {filled: {"0": 2}}  # the delay begins with the last micro-batch
    assert end_after(1, {filled: {"0": 2}}) == {filled: {"0": 3}}
    assert end_after(1, {filled: {"0": 0}}) == {filled: {"0": 3}}  # enough
    assert end_after(3600, {filled: {"0": 3}}) == {filled: {"0": 3}}  # nothing to read
    reader.stop()


def test_query_that_reads_all_there_is_waits_for_no_more(
    kafka_cluster: EmbeddedCluster, filled: str, clock: FakeClock
) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

    reader = stream(kafka_cluster, filled, minOffsetsPerTrigger="10")
    assert reader.getDefaultReadLimit() == ReadMinRows(10)
    start = {filled: {"0": 1}}
    assert reader.latestOffset(start, reader.getDefaultReadLimit()) == start
    assert reader.latestOffset(start, ReadAllAvailable()) == {filled: {"0": 3}}
    reader.stop()
    both = stream(kafka_cluster, filled, minOffsetsPerTrigger="2", maxOffsetsPerTrigger="2")
    assert both.getDefaultReadLimit() == ReadMaxRows(2)
    assert both.latestOffset({filled: {"0": 0}}, ReadMaxRows(2)) == {filled: {"0": 2}}
    assert both.latestOffset({filled: {"0": 2}}, ReadMaxRows(2)) == {filled: {"0": 2}}
    both.prepareForTriggerAvailableNow()  # type: ignore[attr-defined]
    assert both.latestOffset({filled: {"0": 2}}, ReadMaxRows(2)) == {filled: {"0": 3}}
    both.stop()


@pytest.mark.parametrize("offsets", [{"rate": 5}, {"t": {"a": 1}}, [1]])
def test_offsets_of_other_sources_are_no_start(kafka_cluster: EmbeddedCluster, filled: str, offsets: Any) -> None:
    reader = stream(kafka_cluster, filled)
    for call in (lambda: reader.latestOffset(offsets), lambda: reader.partitions(offsets, offsets)):
        with pytest.raises(errors.ConfigError, match="give the query a checkpointLocation of its own"):
            call()
    reader.stop()


def test_lag_is_that_of_all_kafka_sources() -> None:
    def source(end: Any, latest: Any) -> dict[str, Any]:
        return {"endOffset": end, "latestOffset": latest}

    ours = source(json.dumps({"t": {"0": 7}}), json.dumps({"t": {"0": 10, "1": 4}}))
    other, before_4_2 = source("7", "9"), source(json.dumps({"u": {"0": 7}}), "None")
    lagging = source({"v": {"0": 1}}, {"v": {"0": 3}})
    progress = {"sources": [ours, other, before_4_2, lagging, source({"v": {"0": 3}}, {"v": {"0": 3}})]}
    expected = {TopicPartition("t", 0): 3, TopicPartition("t", 1): 4, TopicPartition("v", 0): 2}
    assert offsets_behind_latest(progress) == expected
    assert offsets_behind_latest(None) == {}


def test_cluster_that_does_not_answer_is_named_when_the_query_is_planned() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{held.getsockname()[1]}"
        given = {"kafka.bootstrap.servers": servers, "subscribe": "t", "kafkaConsumer.pollTimeoutMs": "500"}
        reader = stream_reader(source_options(given, "stream"), RangeReader({}, (), 1.0, True))
        with pytest.raises(errors.KafkaError, match=rf"topic t does not exist, or no broker answers: .*{servers}"):
            reader.initialOffset()
        reader.stop()


class TestInSpark:
    pytestmark = needs_java

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("options", "later", "tasks"),
        [
            ({"minOffsetsPerTrigger": "50", "maxTriggerDelay": "1h", "minPartitions": "6"}, 40, 6),
            ({"minOffsetsPerTrigger": "1000", "maxTriggerDelay": "1s"}, 0, 1),
        ],
        ids=["enough", "delay"],
    )
    def test_micro_batches_of_a_query_wait_for_enough_offsets_or_the_delay(
        self,
        spark: Any,
        kafka_cluster: EmbeddedCluster,
        options: dict[str, str],
        later: int,
        tasks: int,
        tmp_path: Path,
    ) -> None:
        from pyspark.sql.functions import spark_partition_id

        servers = kafka_cluster.bootstrap_servers
        topic = create(servers, f"waits-{later}", 2)
        batches: list[list[Any]] = []

        def collect(df: Any, _number: int) -> None:
            if rows := df.collect():  # the first micro-batch of a query is empty
                batches.append(rows)

        source = spark.readStream.format("pyclient").option("kafka.bootstrap.servers", servers)
        source = source.option("subscribe", topic).option("startingOffsets", "earliest").options(**options).load()
        rows = source.select(spark_partition_id().alias("task"), "partition")
        write = rows.writeStream.foreachBatch(collect)
        with kafka_cluster.requests.start() as requests:  # the query has asked for the offsets, and the topic is empty
            query = begun(
                write.option("checkpointLocation", str(tmp_path)), lambda: requests.query("ListOffsets", topic=topic)
            )
        try:
            with Producer(servers) as producer:
                producer.send_many(topic, [b"v"] * 20, partition=0)
                producer.flush()
                if later:
                    with kafka_cluster.requests.start() as requests:  # twenty are seen, and are too few
                        requests.wait_request("ListOffsets", count=3, timeout=PATIENCE)
                    assert batches == []
                    producer.send_many(topic, [b"v"] * later, partition=1)
            until(lambda: batches or not query.isActive)
        finally:
            query.stop()
        assert [sorted(row.partition for row in batch) for batch in batches] == [[0] * 20 + [1] * later]
        assert len({row.task for row in batches[0]}) == tasks

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("other", "said"),
        [
            ("topic", "has read {0}-0 before, .* its checkpointLocation is that of another query"),
            ("cluster", "{0}-0 ends at offset 0, before the offset 3 at which the query goes on"),
            (
                "source",
                "are not those of a query that reads from Kafka .* give the query a checkpointLocation of its own",
            ),
        ],
    )
    def test_checkpoint_of_another_query_is_named_in_the_drivers_exception(
        self, spark: Any, kafka_cluster: EmbeddedCluster, filled: str, other: str, said: str, tmp_path: Path
    ) -> None:
        from pyspark.errors import PySparkException

        def run(source: Any) -> None:
            query = source.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
            run_query(query)

        def read(servers: str, topic: str) -> Any:
            source = spark.readStream.format("pyclient").option("kafka.bootstrap.servers", servers)
            return source.option("subscribe", topic).option("startingOffsets", "earliest").load()

        servers = kafka_cluster.bootstrap_servers
        if other == "source":
            run(spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load())
        else:
            run(read(servers, filled))
        with EmbeddedCluster() as empty:
            servers = empty.bootstrap_servers if other == "cluster" else servers
            topic = filled if other == "cluster" else f"{filled}-next"
            create(servers, topic, 1)
            with pytest.raises(PySparkException, match=said.format(filled)):
                run(read(servers, topic))
