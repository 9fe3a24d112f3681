"""Records that are gone when a task reads them, and topics that are deleted while a query runs."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from pyclient import Admin, Producer
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.errors import OffsetOutOfRange
from pyclient.spark.offset_reader import OffsetsUnknown
from pyclient.spark.offsets import OffsetRange
from pyclient.spark.options import source_options
from pyclient.spark.reading import DataLoss, RangeReader
from pyclient.spark.source import BatchReader
from pyclient.spark.stream import StreamReader, stream_reader
from tests.spark.conftest import begun, create, delete_records, needs_java, run_query
from tests.waiting import until

FAR = {"kafka.allow.auto.create.topics": "false"}
"""Readers do not create a deleted topic again, as in clusters that create no topics by themselves."""


@pytest.fixture
def servers(kafka_cluster: EmbeddedCluster) -> str:
    return kafka_cluster.bootstrap_servers


@pytest.fixture
def ten(servers: str, kafka_topic: str) -> str:
    """Return a topic with ten records."""
    fill(servers, kafka_topic, 10)
    return kafka_topic


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count missing records as lost after a moment."""
    monkeypatch.setattr("pyclient.spark.stream.LOSS_SECONDS", 0.1)
    monkeypatch.setattr("pyclient.spark.reading.CHECK_SECONDS", 0.1)
    monkeypatch.setattr("pyclient.spark.reading.ANSWER_SECONDS", 0.5)


def fill(servers: str, topic: str, count: int) -> None:
    with Producer(servers) as producer:
        producer.send_many(topic, [str(number).encode() for number in range(count)])


def delete(servers: str, topic: str) -> None:
    with Admin(servers) as admin:
        admin.delete_topics([topic])


def task(servers: str, fails: bool, **options: str) -> RangeReader:
    client = {"bootstrap.servers": servers, "allow.auto.create.topics": "false", **options}
    return RangeReader(client, ("offset",), 20.0, fails)


def offsets(reader: RangeReader, topic: str, start: int, stop: int) -> list[int]:
    batches = reader.read(OffsetRange(topic, 0, start, stop))
    return [offset for batch in batches for offset in batch.column(0).to_pylist()]


def stream(servers: str, fails: bool = True, **options: str) -> StreamReader:
    given = {"kafka.bootstrap.servers": servers, "failOnDataLoss": str(fails), **FAR, **options}
    return stream_reader(source_options(given, "stream"), task(servers, fails))


@pytest.mark.usefixtures("quick")
class TestTasks:
    @pytest.mark.parametrize(
        ("start", "stop", "first", "said", "left"),
        [
            (0, 10, 6, "from offset 0 to 5 are lost: its log has 6 to 9", [6, 7, 8, 9]),
            (2, 5, 6, "from offset 2 to 4 are lost: its log has 6 to 9", []),
            (8, 14, 6, "from offset 10 to 13 are lost: its log has 6 to 9", [8, 9]),
            (12, 14, 6, "from offset 12 to 13 are lost: its log has 6 to 9", []),
            (0, 10, 10, "from offset 0 to 9 are lost: its log has no records, and ends at 10", []),
        ],
    )
    def test_records_that_are_gone_fail_the_task_or_are_left_out(
        self, servers: str, ten: str, start: int, stop: int, first: int, said: str, left: list[int]
    ) -> None:
        delete_records(servers, ten, first)
        with pytest.raises(DataLoss, match=f"records of {ten}-0 {said}, .* with failOnDataLoss=false a query goes on"):
            offsets(task(servers, True), ten, start, stop)
        assert offsets(task(servers, False), ten, start, stop) == left

    @pytest.mark.parametrize("fails", [True, False])
    def test_records_deleted_while_a_task_reads_are_lost(
        self, kafka_cluster: EmbeddedCluster, servers: str, ten: str, fails: bool
    ) -> None:
        batches = task(servers, fails).read(OffsetRange(ten, 0, 0, 15))
        assert next(batches).column(0).to_pylist() == [*range(10)]
        with kafka_cluster.requests.start() as requests:
            with kafka_cluster.faults.hold("Fetch", topic=ten, times=None) as held:
                held.wait()  # the consumer fetches from offset 10 by itself
                fill(servers, ten, 5)
                delete_records(servers, ten, 12)
            requests.wait_request("Fetch", error=OffsetOutOfRange)  # known before the task goes on to read
        if fails:
            with pytest.raises(DataLoss, match="from offset 10 to 11 are lost: its log has 12 to 14"):
                list(batches)
        else:
            assert [offset for batch in batches for offset in batch.column(0).to_pylist()] == [12, 13, 14]

    def test_a_topic_deleted_while_its_offsets_are_requested_is_lost(
        self, kafka_cluster: EmbeddedCluster, servers: str, ten: str
    ) -> None:
        batches = task(servers, True).read(OffsetRange(ten, 0, 0, 15))
        assert next(batches).column(0).to_pylist() == [*range(10)]
        with kafka_cluster.requests.start() as requests:
            with kafka_cluster.faults.hold("Fetch", topic=ten, times=None) as held:
                held.wait()
                fill(servers, ten, 5)
                delete_records(servers, ten, 12)
            requests.wait_request("Fetch", error=OffsetOutOfRange)
        with kafka_cluster.faults.hold("ListOffsets", times=None) as held:

            def delete_meanwhile() -> None:
                held.wait()
                delete(servers, ten)

            deleting = threading.Thread(target=delete_meanwhile)
            deleting.start()
            with pytest.raises(DataLoss, match="from offset 10 to 14 are lost: the topic does not exist any more"):
                list(batches)
            deleting.join()

    @pytest.mark.parametrize("fails", [True, False])
    def test_a_topic_deleted_after_planning_is_lost(self, servers: str, ten: str, fails: bool) -> None:
        batch = {"kafka.bootstrap.servers": servers, "subscribe": ten, **FAR}
        [planned] = BatchReader(source_options(batch, "batch"), task(servers, fails)).partitions()
        assert planned.value == OffsetRange(ten, 0, 0, 10)
        delete(servers, ten)
        if fails:
            with pytest.raises(DataLoss, match="from offset 0 to 9 are lost: the topic does not exist any more; with"):
                offsets(task(servers, True), ten, 0, 10)
        else:
            assert offsets(task(servers, False), ten, 0, 10) == []

    def test_a_broker_that_does_not_answer_is_no_loss(
        self, kafka_cluster: EmbeddedCluster, servers: str, ten: str
    ) -> None:
        from pyclient.errors import KafkaTimeout

        reader = RangeReader({"bootstrap.servers": servers}, ("offset",), 0.3, False)
        kafka_cluster.faults.hold(["Fetch", "ListOffsets"], times=None)
        with pytest.raises(KafkaTimeout, match=rf"no record of {ten}-0 \[0, 10\) came within 0\.3 s .* offset is 0"):
            offsets(reader, ten, 0, 10)


@pytest.mark.usefixtures("quick")
class TestQueries:
    def test_a_deleted_topic_of_a_pattern_fails_the_query(self, servers: str, ten: str) -> None:
        other = create(servers, f"{ten}-other", 1)
        reader = stream(servers, subscribePattern=f"{ten}.*")
        start = {ten: {"0": 4}, other: {"0": 0}}
        assert reader.latestOffset(start) == {ten: {"0": 10}, other: {"0": 0}}
        delete(servers, ten)
        with pytest.raises(DataLoss, match=f"the query has read {ten}-0 before, .* the topic was deleted"):
            while True:  # until the newest ends are asked for
                reader.latestOffset(start)
        reader.stop()

    def test_a_deleted_topic_of_a_pattern_is_left_out_on_request(self, servers: str, ten: str) -> None:
        other = create(servers, f"{ten}-other", 1)
        reader = stream(servers, fails=False, subscribePattern=f"{ten}.*")
        start = {ten: {"0": 4}, other: {"0": 0}}
        assert reader.latestOffset(start) == {ten: {"0": 10}, other: {"0": 0}}
        delete(servers, ten)
        fill(servers, other, 3)
        while ten in (end := reader.latestOffset(start)):
            pass
        assert end == {other: {"0": 3}}
        assert [each.value for each in reader.partitions(start, end)] == [OffsetRange(other, 0, 0, 3)]
        reader.stop()

    @pytest.mark.parametrize("fails", [True, False])
    def test_a_deleted_topic_of_subscribe_is_named(self, servers: str, ten: str, fails: bool) -> None:
        reader = stream(servers, fails, subscribe=ten, **{"kafkaConsumer.pollTimeoutMs": "300"})

        def first_end() -> dict[str, Any] | None:
            try:
                return reader.latestOffset({ten: {"0": 4}})
            except OffsetsUnknown:  # a new connection may take longer than that
                return None

        assert until(first_end) == {ten: {"0": 10}}
        delete(servers, ten)
        with pytest.raises(OffsetsUnknown, match=f"topic {ten} does not exist, or no broker answers"):
            while True:
                reader.latestOffset({ten: {"0": 4}})
        reader.stop()

    @pytest.mark.parametrize("query", ["batch", "stream"])
    def test_assigned_partitions_that_do_not_exist_are_named(self, servers: str, ten: str, query: Any) -> None:
        given = {"kafka.bootstrap.servers": servers, "assign": json.dumps({ten: [0, 3, 7]})}
        options = source_options({**given, "startingOffsets": "earliest"}, query)
        reader = stream_reader(options, task(servers, True))
        with pytest.raises(OffsetsUnknown, match=f"assign names partitions that do not exist: {ten}-3, {ten}-7$"):
            if query == "batch":
                BatchReader(options, task(servers, True)).partitions()
            else:
                reader.initialOffset()
        reader.stop()

    @pytest.mark.parametrize("fails", [True, False])
    def test_a_start_before_the_log_fails_a_task_or_goes_on(self, servers: str, ten: str, fails: bool) -> None:
        delete_records(servers, ten, 6)
        reader = stream(servers, fails, subscribe=ten, startingOffsets=json.dumps({ten: {"0": 2}}))
        start = reader.initialOffset()
        [planned] = reader.partitions(start, reader.latestOffset(start))
        if fails:
            with pytest.raises(DataLoss, match=f"records of {ten}-0 from offset 2 to 5 are lost: its log has 6 to 9"):
                list(reader.read(planned))
        else:
            assert [batch.column(0).to_pylist() for batch in reader.read(planned)] == [[6, 7, 8, 9]]
        reader.stop()


class TestInSpark:
    pytestmark = needs_java

    @pytest.mark.slow
    def test_lost_records_are_in_the_drivers_exception(
        self, spark: Any, servers: str, ten: str, tmp_path: Path
    ) -> None:
        from pyspark.errors import PySparkException

        delete_records(servers, ten, 6)
        source = spark.readStream.format("pyclient").option("kafka.bootstrap.servers", servers)
        source = source.option("subscribe", ten).option("startingOffsets", json.dumps({ten: {"0": 2}})).load()
        query = source.select("value").writeStream.format("pyclient").option("kafka.bootstrap.servers", servers)
        query = query.option("topic", create(servers, f"{ten}-sink", 1)).option("checkpointLocation", str(tmp_path))
        with pytest.raises(
            PySparkException, match=f"records of {ten}-0 from offset 2 to 5 are lost: its log has 6 to 9"
        ):
            run_query(query)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("option", "suffix", "said"),
        [
            ("subscribe", "", "topic {0} does not exist, or no broker answers"),
            ("subscribePattern", ".*", "the query has read {0}-0 before, .* the topic was deleted"),
        ],
    )
    def test_a_topic_deleted_during_a_query_is_in_the_drivers_exception(
        self, spark: Any, servers: str, ten: str, option: str, suffix: str, said: str, tmp_path: Path
    ) -> None:
        from pyspark.errors import PySparkException

        create(servers, f"{ten}-other", 1)
        given = {"kafka.bootstrap.servers": servers, option: f"{ten}{suffix}", **FAR, "startingOffsets": "earliest"}
        source = spark.readStream.format("pyclient").options(**given).option("kafkaConsumer.pollTimeoutMs", "10000")
        writer = source.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path))
        query = begun(writer, lambda: False)
        try:
            until(lambda: any(each["numInputRows"] == 10 for each in query.recentProgress))
            delete(servers, ten)
            with pytest.raises(PySparkException, match=said.format(ten)):
                query.awaitTermination(120)
        finally:
            query.stop()
