"""`format("pyclient")` in real Spark: batches and streams, with the semantics of Spark's own Kafka connector."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pyclient import Admin, Producer, TopicPartition, errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.spark import offsets_behind_latest, write
from tests.reading import read_all
from tests.spark.conftest import create, data_source, needs_java, run_query, schema_of

pytestmark = needs_java


@pytest.fixture
def servers(kafka_cluster: EmbeddedCluster) -> str:
    return kafka_cluster.bootstrap_servers


@pytest.fixture
def numbers(servers: str, request: pytest.FixtureRequest) -> str:
    """Return a topic with 100 records in each of two partitions: values are numbers, timestamps seconds from 1000."""
    topic = create(servers, f"numbers-{abs(hash(request.node.nodeid))}", 2)
    with Producer(servers) as producer:
        for partition in (0, 1):
            values = [str(number).encode() for number in range(100)]
            times = [1_000_000 + 1000 * number for number in range(100)]
            producer.send_many(topic, values, timestamps_ms=times, partition=partition)
    return topic


def reader(spark: Any, servers: str, topic: str, **options: Any) -> Any:
    made = spark.read.format("pyclient").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    return made.options(**{name: str(value) for name, value in options.items()})


REST = "topic string, partition int, offset bigint, timestamp timestamp, timestampType int"


class TestBatchRead:
    def test_all_columns_have_sparks_types_and_the_records_content(self, spark: Any, servers: str) -> None:
        topic = create(servers, "all-columns", 1)
        with Producer(servers) as producer:
            producer.send(topic, b"v", key=b"k", headers=[("h", b"1"), ("h", None)], timestamp_ms=1_767_323_045_678)
            producer.send(topic, None)
        df = reader(spark, servers, topic, includeHeaders=True).load()
        assert df.schema.simpleString() == (
            "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
            "timestampType:int,headers:array<struct<key:string,value:binary>>>"
        )
        first, second = df.orderBy("offset").collect()
        assert (first.key, first.value, first.topic, first.partition, first.offset) == (b"k", b"v", topic, 0, 0)
        assert first.timestamp.isoformat() == "2026-01-02T03:04:05.678000"
        assert (first.timestampType, [tuple(header) for header in first.headers]) == (0, [("h", b"1"), ("h", None)])
        assert (second.key, second.value, second.headers) == (None, None, [])

    def test_every_record_is_read_once_in_many_tasks(self, spark: Any, servers: str, numbers: str) -> None:
        df = reader(spark, servers, numbers, maxRecordsPerPartition=30, columns="offset,partition").load()
        assert df.rdd.getNumPartitions() == 8
        found = sorted((row.partition, row.offset) for row in df.collect())
        assert found == [(partition, offset) for partition in (0, 1) for offset in range(100)]

    def test_offsets_and_times_bound_what_is_read(self, spark: Any, servers: str, numbers: str) -> None:
        starts, ends = json.dumps({numbers: {"0": 90, "1": -2}}), json.dumps({numbers: {"0": -1, "1": 3}})
        df = reader(spark, servers, numbers, startingOffsets=starts, endingOffsets=ends).load()
        assert sorted(map(tuple, df.select("partition", "offset").collect())) == [
            *((0, offset) for offset in range(90, 100)),
            *((1, offset) for offset in range(3)),
        ]
        df = reader(spark, servers, numbers, startingTimestamp=1_050_000, endingTimestamp=1_052_000).load()
        assert sorted(map(tuple, df.select("partition", "offset").collect())) == [(0, 50), (0, 51), (1, 50), (1, 51)]

    def test_patterns_and_assigned_partitions(self, spark: Any, servers: str, numbers: str) -> None:
        base = spark.read.format("pyclient").option("kafka.bootstrap.servers", servers)
        assert base.option("subscribePattern", f"{numbers[:-1]}.").load().count() == 200
        base = spark.read.format("pyclient").option("kafka.bootstrap.servers", servers)
        assert base.option("assign", json.dumps({numbers: [1]})).load().count() == 100

    def test_an_empty_topic_has_no_rows(self, spark: Any, servers: str) -> None:
        assert reader(spark, servers, create(servers, "empty", 3)).load().count() == 0

    def test_pushed_filters_keep_the_result(self, spark: Any, servers: str, numbers: str) -> None:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
        try:
            df = reader(spark, servers, numbers, pushFilters=True).load()
            kept = df.where("partition = 1 and offset >= 97 and timestamp >= timestamp_millis(1098000)")
            assert kept.rdd.getNumPartitions() == 1
            assert sorted(row.offset for row in kept.collect()) == [98, 99]
        finally:
            spark.conf.unset("spark.sql.python.filterPushdown.enabled")

    def test_lost_records_fail_the_query_or_are_left_out(self, spark: Any, servers: str, numbers: str) -> None:
        from pyspark.errors import PySparkException

        starts = json.dumps({numbers: {"0": 95, "1": 0}})
        ends = json.dumps({numbers: {"0": 120, "1": 2}})
        bounds = {"startingOffsets": starts, "endingOffsets": ends}
        with pytest.raises(PySparkException, match=r"is not in the log, which has offsets 0 to 100"):
            reader(spark, servers, numbers, **bounds).load().count()
        assert reader(spark, servers, numbers, failOnDataLoss=False, **bounds).load().count() == 7

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"startingOfset": "earliest"}, "did you mean startingOffsets"),
            ({"startingOffsets": "latest"}, "cannot be latest"),
            ({"kafka.fetch.min.byte": "1"}, "unknown option fetch.min.byte"),
            ({"startingTimestamp": "9000000000000"}, "no record is that late"),
        ],
    )
    def test_invalid_offsets_are_refused_by_the_reader_or_its_plan(
        self, servers: str, numbers: str, options: dict[str, str], said: str
    ) -> None:
        source = data_source({"kafka.bootstrap.servers": servers, "subscribe": numbers, **options})
        with pytest.raises(errors.KafkaError, match=said):
            source.reader(schema_of("key binary, value binary, " + REST)).partitions()

    def test_invalid_offsets_are_refused_when_the_query_is_planned(
        self, spark: Any, servers: str, numbers: str
    ) -> None:
        from pyspark.errors import PySparkException

        with pytest.raises(PySparkException, match="no record is that late"):
            reader(spark, servers, numbers, startingTimestamp="9000000000000").load().count()


class TestBatchWrite:
    def test_columns_of_the_sink_become_records(self, spark: Any, servers: str) -> None:
        one, two = create(servers, "sink-one", 2), create(servers, "sink-two", 1)
        df = spark.sql(
            f"""select * from values
                ('{one}', 1, 'k', 'a', timestamp'2026-01-02 03:04:05Z', 'x'),
                ('{one}', null, null, 'b', null, 'x'),
                ('{two}', 0, 'k', null, null, 'x') as rows(topic, partition, key, value, timestamp, ignored)"""
        )
        df = df.selectExpr("*", "array(struct('h' as key, cast('1' as binary) as value)) as headers")
        df.write.format("pyclient").option("kafka.bootstrap.servers", servers).mode("append").save()
        written = {record.value: record for record in [*read_all(servers, one, 2), *read_all(servers, two, 1)]}
        assert set(written) == {b"a", b"b", None}
        assert (written[b"a"].partition, written[b"a"].key, written[b"a"].headers) == (1, b"k", (("h", b"1"),))
        assert written[b"a"].timestamp_ms == 1_767_323_045_000
        assert written[None].topic == two

    def test_write_returns_the_rows_by_partition(self, spark: Any, servers: str) -> None:
        topic = create(servers, "write-counts", 2)
        df = spark.range(1000).selectExpr("cast(id as string) as value", "id").repartition(3)
        counts = write(df, topic=topic, bootstrap_servers=servers)
        assert sorted(counts) == [0, 1, 2]
        assert sum(counts.values()) == 1000
        assert sorted(int(record.value) for record in read_all(servers, topic, 2)) == list(range(1000))

    @pytest.mark.parametrize(
        ("columns", "options", "said"),
        [
            ("id bigint", {"topic": "t"}, "it has no column value, only id"),
            ("value bigint", {"topic": "t"}, "column value is bigint: it takes binary or string"),
            ("value string", {}, "there is no topic"),
            ("value string", {"topic": "t", "kafka.linger": "5"}, "unknown option linger"),
            ("value string", {"topic": "t", "kafka.acks": "2"}, "acks"),
        ],
    )
    def test_invalid_columns_are_refused_when_the_writer_is_made(
        self, servers: str, columns: str, options: dict[str, str], said: str
    ) -> None:
        source = data_source({"kafka.bootstrap.servers": servers, **options})
        with pytest.raises(errors.KafkaError, match=said):
            source.writer(schema_of(columns), False)

    def test_invalid_columns_are_refused_when_the_query_is_planned(self, spark: Any, servers: str) -> None:
        from pyspark.errors import PySparkException

        writer = spark.range(3).selectExpr("id as value").write.format("pyclient").option("topic", "t")
        with pytest.raises(PySparkException, match="column value is bigint: it takes binary or string"):
            writer.option("kafka.bootstrap.servers", servers).mode("append").save()

    def test_rows_without_a_topic_fail_the_job(self, spark: Any, servers: str) -> None:
        from pyspark.errors import PySparkException

        df = spark.range(3).selectExpr("'v' as value", "cast(null as string) as topic")
        with pytest.raises(PySparkException, match="rows have no topic"):
            df.write.format("pyclient").option("kafka.bootstrap.servers", servers).mode("append").save()


class TestStreams:
    def test_a_query_goes_on_from_its_checkpoint(self, spark: Any, servers: str, tmp_path: Path) -> None:
        source, sink = create(servers, "stream-source", 2), create(servers, "stream-sink", 1)

        def run() -> Any:
            df = spark.readStream.format("pyclient").option("kafka.bootstrap.servers", servers)
            df = df.option("subscribe", source).option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 60)
            df = df.option("commitGroupId", "progress").load()
            query = df.selectExpr("value").writeStream.format("pyclient").option("kafka.bootstrap.servers", servers)
            query = query.option("topic", sink).option("checkpointLocation", str(tmp_path))
            return run_query(query)

        with Producer(servers) as producer:
            producer.send_many(source, [str(number).encode() for number in range(100)])
        first = run()
        assert [progress["numInputRows"] for progress in first.recentProgress if progress["numInputRows"]] == [60, 40]
        with Producer(servers) as producer:
            producer.send_many(source, [str(number).encode() for number in range(100, 130)])
        second = run()
        assert sum(progress["numInputRows"] for progress in second.recentProgress) == 30
        assert sorted(int(record.value) for record in read_all(servers, sink, 1)) == list(range(130))
        assert sum(offsets_behind_latest(first.recentProgress[0]).values()) == 40
        partitions = {TopicPartition(source, 0), TopicPartition(source, 1)}
        assert offsets_behind_latest(second.lastProgress) == dict.fromkeys(partitions, 0)
        with Admin(servers) as admin:
            committed = admin.list_group_offsets("progress")
        assert (
            sum(offset.offset for offset in committed.values()) == 100
        )  # Spark reports a batch's end with the next one
        assert set(committed) == partitions

    def test_new_partitions_are_read_from_their_start(self, spark: Any, servers: str, tmp_path: Path) -> None:
        source, sink = create(servers, "stream-grows", 1), create(servers, "stream-grown", 1)

        def run() -> None:
            df = spark.readStream.format("pyclient").option("kafka.bootstrap.servers", servers)
            df = df.option("subscribe", source).option("startingOffsets", "earliest").load()
            query = df.select("value").writeStream.format("pyclient").option("kafka.bootstrap.servers", servers)
            query = query.option("topic", sink).option("checkpointLocation", str(tmp_path))
            run_query(query)

        with Producer(servers) as producer:
            producer.send(source, b"a")
        run()
        with Admin(servers) as admin:
            admin.create_partitions({source: 2})
        with Producer(servers) as producer:
            producer.send(source, b"b", partition=1)
        run()
        assert [record.value for record in read_all(servers, sink, 1)] == [b"a", b"b"]


class TestRefusals:
    """Options that Spark or this release of it lacks are refused when a reader or writer is made."""

    SINK = {"kafka.bootstrap.servers": "h:9092", "topic": "t"}
    SOURCE = {"kafka.bootstrap.servers": "h:9092", "subscribe": "t"}

    @pytest.mark.parametrize(
        ("make", "said"),
        [
            ("writer", "mode overwrite is not possible: records in Kafka cannot be replaced; use append"),
            ("streamWriter", "output mode complete is not possible: records in Kafka cannot be replaced"),
        ],
    )
    def test_records_are_not_replaced(self, make: str, said: str) -> None:
        with pytest.raises(errors.ConfigError, match=said):
            getattr(data_source(self.SINK), make)(schema_of("value string"), True)

    @pytest.mark.parametrize("make", ["reader", "streamReader"])
    @pytest.mark.parametrize(
        "schema", ["value binary", "key binary, value string, " + REST, "value binary, key binary, " + REST]
    )
    def test_a_schema_of_the_users_is_refused(self, make: str, schema: str) -> None:
        with pytest.raises(errors.ConfigError, match=r"has the schema key binary, value binary, .* leave schema.* out"):
            getattr(data_source(self.SOURCE), make)(schema_of(schema))

    @pytest.mark.parametrize("option", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger"])
    def test_limits_of_micro_batches_need_a_newer_spark(self, monkeypatch: pytest.MonkeyPatch, option: str) -> None:
        schema = schema_of("key binary, value binary, " + REST)
        limited = data_source({**self.SOURCE, option: "5"})
        limited.streamReader(schema)
        monkeypatch.setattr("pyclient.spark.stream.ADMISSION_CONTROL", False)
        with pytest.raises(
            errors.ConfigError, match=r"maxOffsetsPerTrigger and minOffsetsPerTrigger need pyspark 4\.2"
        ):
            limited.streamReader(schema)
        data_source(self.SOURCE).streamReader(schema)

    def test_streams_are_not_written_before_spark_4_1(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pyclient.spark.sink.ARROW_STREAMS", False)
        with pytest.raises(
            errors.ConfigError, match=r"with pyspark 4\.1 or later; before, use foreachBatch with write"
        ):
            data_source(self.SINK).streamWriter(schema_of("value string"), False)
