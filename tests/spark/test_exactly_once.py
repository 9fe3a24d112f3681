"""The exactly-once sink: a repeated batch is recognised, an older attempt is fenced, other rows are an error."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient import GroupMetadata, OffsetAndMetadata, Producer, TopicPartition, errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.spark import foreach_batch
from pyclient.spark.exactly_once import Checksum, ExactlyOnceWriter, Marker, ReplayDiffers
from pyclient.spark.options import sink_options
from tests.reading import read_all
from tests.spark.conftest import create, needs_java, run_query

cells = st.none() | st.binary(max_size=5)
rows_of = st.lists(st.tuples(cells, cells), max_size=12)
texts = st.none() | st.text("abä", max_size=3)
headers = st.none() | st.lists(st.fixed_dictionaries({"key": st.text("ab", max_size=2), "value": cells}), max_size=3)
whole_rows_of = st.lists(
    st.fixed_dictionaries(
        {
            "key": cells,
            "value": texts,
            "topic": texts,
            "partition": st.none() | st.integers(0, 2),
            "timestamp": st.none() | st.integers(0, 2),
            "headers": headers,
        }
    ),
    max_size=8,
)
WHOLE = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
SERVERS = {"kafka.bootstrap.servers": "h:9092"}


def batch_of(rows: list[tuple[bytes | None, bytes | None]]) -> pa.RecordBatch:
    keys, values = [key for key, _ in rows], [value for _, value in rows]
    return pa.record_batch({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})


def marker_of(*batches: pa.RecordBatch, batch: int = 0, topics: bool = True) -> Marker:
    checksum = Checksum(topics=topics)
    for each in batches:
        checksum.add(each)
    return checksum.marker(batch)


@given(rows_of, st.integers(0, 12))
def test_a_checksum_does_not_depend_on_how_rows_are_divided(rows: list[Any], cut: int) -> None:
    whole = batch_of(rows)
    assert marker_of(whole) == marker_of(batch_of(rows[:cut]), whole.slice(min(cut, len(rows))))


@given(whole_rows_of, st.integers(0, 8))
def test_a_checksum_of_all_columns_does_not_depend_on_batches(rows: list[Any], cut: int) -> None:
    whole = pa.RecordBatch.from_pylist(rows, WHOLE)
    divided = pa.RecordBatch.from_pylist(rows[:cut], WHOLE), whole.slice(min(cut, len(rows)))
    assert marker_of(whole) == marker_of(*divided)


@given(rows_of, rows_of)
def test_a_checksum_differs_between_rows(one: list[Any], other: list[Any]) -> None:
    assert (marker_of(batch_of(one)) == marker_of(batch_of(other))) == (one == other)


@given(whole_rows_of, whole_rows_of)
def test_a_checksum_of_all_columns_differs_between_rows(one: list[Any], other: list[Any]) -> None:
    found = [marker_of(pa.RecordBatch.from_pylist(rows, WHOLE)) for rows in (one, other)]
    assert (found[0] == found[1]) == (one == other)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("topic", "u"),
        ("partition", 1),
        ("timestamp", 6),
        ("headers", [{"key": "h", "value": b"2"}]),
        ("headers", [{"key": "i", "value": b"1"}]),
        ("headers", []),
    ],
)
def test_a_checksum_covers_each_column_of_the_sink(name: str, other: Any) -> None:
    row = {"value": "a", "topic": "t", "partition": 0, "timestamp": 5, "headers": [{"key": "h", "value": b"1"}]}
    rows = [{**row, name: cell} for cell in (row[name], None, other)]
    found = [marker_of(pa.RecordBatch.from_pylist([each], WHOLE)) for each in rows]
    assert len({each.rest for each in found}) == 3
    assert not found[0].is_repeated_by(found[1])
    only = [marker_of(pa.RecordBatch.from_pylist([each], WHOLE).select(["value", name])) for each in rows]
    assert len({each.rest for each in only}) == 3


def test_a_checksum_leaves_out_topics_that_the_option_replaces() -> None:
    rows = [pa.record_batch({"value": [b"a"], "topic": [topic]}) for topic in ("t", "u")]
    assert marker_of(rows[0], topics=False) == marker_of(rows[1], topics=False) == marker_of(rows[0].select(["value"]))


def test_a_checksum_takes_columns_of_nulls_and_large_types() -> None:
    nulls = pa.record_batch({"value": [b"a"], **{name: pa.nulls(1) for name in ("key", "timestamp", "headers")}})
    assert marker_of(nulls).checksum == marker_of(batch_of([(None, b"a")])).checksum
    large = pa.record_batch({"key": pa.array([b"k"], pa.large_binary()), "value": pa.array(["v"], pa.large_string())})
    assert marker_of(large) == marker_of(batch_of([(b"k", b"v")]))


def test_a_marker_without_other_columns_is_that_of_earlier_versions() -> None:
    rows = batch_of([(b"k", b"a"), (None, b"b")])
    assert marker_of(rows, batch=7).to_offset() == OffsetAndMetadata(8, "2 4b7291b8")
    headers = pa.RecordBatch.from_pylist([{"value": "a"}, {"value": "b"}], WHOLE)
    earlier = Marker(0, 2, marker_of(headers).checksum)
    assert earlier.is_repeated_by(marker_of(headers))
    assert not marker_of(headers).is_repeated_by(earlier)


@given(st.integers(0, 2**40), st.integers(0, 2**40), *[st.integers(0, 2**32 - 1)] * 2, st.booleans())
def test_a_marker_is_kept_in_an_offset(batch: int, rows: int, checksum: int, rest: int, has_rest: bool) -> None:
    marker = Marker(batch, rows, checksum, rest if has_rest else None)
    assert Marker.of_offset(marker.to_offset()) == marker


@pytest.mark.parametrize("metadata", ["", "5", "x 0", "5 x", "5 0 x", "5 0 0 0"])
def test_an_offset_of_something_else_is_refused(metadata: str) -> None:
    with pytest.raises(errors.ConfigError, match="another write id"):
        Marker.of_offset(OffsetAndMetadata(3, metadata))


def test_options_of_exactly_once() -> None:
    assert sink_options({**SERVERS, "exactlyonce": "true"}, "stream").exactly_once
    for given_options, query, said in (
        ({"exactlyonce": "true"}, "batch", "needs writeId"),
        ({"writeid": "a b"}, "batch", "writeId=a b"),
        ({"exactlyonce": "true", "kafka.transactional.id": "x"}, "stream", "an id of its own"),
        ({"exactlyonce": "true", "kafka.transaction.timeout.ms": "1000"}, "stream", "is too short"),
    ):
        with pytest.raises(errors.ConfigError, match=said):
            sink_options({**SERVERS, **given_options}, query)  # type: ignore[arg-type]


def test_foreach_batch_refuses_what_excludes_its_transactions() -> None:
    options = {"topic": "t", "bootstrap_servers": "h:1", "exactly_once": True}
    with pytest.raises(errors.ConfigError, match=r"transaction\.timeout\.ms=60000 is too short .* 150000 ms"):
        foreach_batch(**options, transaction_timeout_ms=60_000)
    with pytest.raises(errors.ConfigError, match="an id of its own"):
        foreach_batch(**options, transactional_id="mine")
    foreach_batch(**options, transaction_timeout_ms=60_000, flush_timeout=59.0)


@pytest.fixture
def servers(kafka_cluster: EmbeddedCluster) -> str:
    return kafka_cluster.bootstrap_servers


def writer(servers: str, topic: str) -> ExactlyOnceWriter:
    return ExactlyOnceWriter(topic, 30.0, {"bootstrap.servers": servers})


def values(servers: str, topic: str) -> list[bytes | None]:
    return [record.value for record in read_all(servers, topic, 1, isolation_level="read_committed")]


class TestWithoutSpark:
    ROWS = batch_of([(b"k", b"a"), (None, b"b")])

    def test_a_repeated_batch_is_written_once(self, servers: str) -> None:
        topic = create(servers, "once-repeated", 1)
        sink = writer(servers, topic)
        first = sink.write([self.ROWS], "repeated", 0, 7)
        assert first == marker_of(self.ROWS, batch=7)
        assert sink.write([self.ROWS.slice(0, 1), self.ROWS.slice(1)], "repeated", 0, 7) == first
        assert sink.write([self.ROWS], "repeated", 0, 6) == first  # an older batch is done, too
        sink.write([self.ROWS], "repeated", 0, 8)
        sink.write([self.ROWS], "repeated", 1, 7)  # another partition of the same query
        assert values(servers, topic) == [b"a", b"b"] * 3

    @pytest.mark.parametrize("batch", [0, 1])
    def test_a_mark_that_is_not_decided_is_waited_for(self, batch: int) -> None:
        """A coordinator may let the next attempt begin before it counts the offsets of the last transaction."""
        mark = marker_of(self.ROWS, batch=batch)
        with EmbeddedCluster() as cluster, ThreadPoolExecutor(1) as thread:
            servers = cluster.bootstrap_servers
            sink = writer(servers, create(servers, "once-undecided", 1))
            for earlier in range(batch):
                sink.write([self.ROWS], "undecided", 0, earlier)
            with Producer(servers, transactional_id="last") as last, cluster.requests.start() as requests:
                last.init_transactions()
                last.begin_transaction()
                place = TopicPartition("once-undecided", 0)
                last.send_offsets_to_transaction({place: mark.to_offset()}, GroupMetadata("pyclient-sink-undecided-0"))
                repeated = thread.submit(sink.write, [self.ROWS], "undecided", 0, batch)
                requests.wait_request("OffsetFetch", error=errors.UnstableOffsetCommit)
                last.commit_transaction()
                assert repeated.result(60) == mark
            assert values(servers, "once-undecided") == [b"a", b"b"] * batch

    def test_a_repetition_with_other_rows_is_an_error(self, servers: str) -> None:
        topic = create(servers, "once-differs", 1)
        sink = writer(servers, topic)
        sink.write([self.ROWS], "differs", 0, 0)
        with pytest.raises(ReplayDiffers, match=r"2 rows .* repeats it with 1 rows"):
            sink.write([self.ROWS.slice(1)], "differs", 0, 0)
        assert values(servers, topic) == [b"a", b"b"]

    def test_a_repetition_with_other_headers_or_times_is_an_error(self, servers: str) -> None:
        topic = create(servers, "once-differs-elsewhere", 1)
        sink, row = writer(servers, topic), {"value": "a", "timestamp": 5_000}
        first = pa.RecordBatch.from_pylist([row], WHOLE)
        written = sink.write([first], "elsewhere", 0, 0)
        assert sink.write([first], "elsewhere", 0, 0) == written
        for other in ({"timestamp": 6_000}, {"headers": [{"key": "h", "value": b"1"}]}):
            with pytest.raises(
                ReplayDiffers, match=r"1 rows in Kafka \(checksums (\w+) \w+\).* 1 rows \(checksums \1 \w+\)"
            ):
                sink.write([pa.RecordBatch.from_pylist([{**row, **other}], WHOLE)], "elsewhere", 0, 0)
        sink.write([pa.RecordBatch.from_pylist([{**row, "topic": "ignored"}], WHOLE)], "elsewhere", 0, 0)
        assert values(servers, topic) == [b"a"]

    def test_a_failed_attempt_leaves_nothing_to_be_read(self, servers: str) -> None:
        topic = create(servers, "once-fails", 1)
        sink = writer(servers, topic)

        def breaks() -> Iterator[pa.RecordBatch]:
            yield self.ROWS
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            sink.write(breaks(), "fails", 0, 0)
        sink.write([self.ROWS], "fails", 0, 0)
        assert values(servers, topic) == [b"a", b"b"]

    def test_an_older_attempt_that_hangs_is_fenced(self, servers: str) -> None:
        topic = create(servers, "once-fenced", 1)
        sink = writer(servers, topic)
        with Producer(servers, transactional_id="pyclient-sink-fenced-0") as zombie:
            zombie.init_transactions()
            zombie.begin_transaction()
            zombie.send(topic, b"zombie").result(30)
            sink.write([self.ROWS], "fenced", 0, 0)
            with pytest.raises(errors.KafkaError):
                zombie.commit_transaction()
        assert values(servers, topic) == [b"a", b"b"]


class TestInSpark:
    pytestmark = needs_java

    @pytest.mark.slow
    def test_a_stream_whose_tasks_fail_and_repeat_writes_each_row_once(
        self, spark: Any, servers: str, tmp_path: Path
    ) -> None:
        source, sink = create(servers, "once-source", 2), create(servers, "once-sink", 1)
        with Producer(servers) as producer:
            producer.send_many(source, [str(number).encode() for number in range(200)])
        marks = tmp_path / "failed"
        marks.mkdir()

        def fail_once(batches: Any) -> Any:
            """Fail the first attempt of each task after its rows were handed to the sink."""
            from pyspark import TaskContext

            yield from batches
            task = TaskContext.get()
            mark = marks / f"{task.getLocalProperty('streaming.sql.batchId')}-{task.partitionId()}"
            if not mark.exists():
                mark.touch()
                raise RuntimeError("this attempt fails")

        def run() -> None:
            df = spark.readStream.format("pyclient").option("kafka.bootstrap.servers", servers)
            df = (
                df.option("subscribe", source).option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 100)
            )
            df = df.load().select("key", "value").mapInArrow(fail_once, "key binary, value binary")
            query = df.writeStream.format("pyclient").option("kafka.bootstrap.servers", servers).option("topic", sink)
            query = query.option("exactlyOnce", "true").option("checkpointLocation", str(tmp_path / "checkpoint"))
            run_query(query)

        for _attempt in range(20):  # local Spark does not repeat a task: the query is started again, as by a user
            try:
                run()
            except Exception as error:
                assert "this attempt fails" in str(error)
            else:
                break
        assert sorted(int(value or b"") for value in values(servers, sink)) == list(range(200))

    def test_a_batch_is_written_once_by_its_write_id(self, spark: Any, servers: str) -> None:
        topic = create(servers, "once-batch", 1)
        df = spark.range(50).selectExpr("cast(id as string) as value").repartition(2)
        for _ in range(2):
            write = df.write.format("pyclient").option("kafka.bootstrap.servers", servers).option("topic", topic)
            write.option("exactlyOnce", "true").option("writeId", "fifty").mode("append").save()
        assert sorted(int(value or b"") for value in values(servers, topic)) == list(range(50))

    def test_a_micro_batch_of_foreach_batch_is_written_once(self, spark: Any, servers: str) -> None:
        topic = create(servers, "once-function", 1)
        df = spark.range(20).selectExpr("cast(id as string) as value").coalesce(1)
        function = foreach_batch(topic=topic, bootstrap_servers=servers, exactly_once=True)
        spark.sparkContext.setLocalProperty("sql.streaming.queryId", "function")  # as Spark does for foreachBatch
        try:
            for batch in (0, 0, 1):
                function(df, batch)
        finally:
            spark.sparkContext.setLocalProperty("sql.streaming.queryId", None)
        assert sorted(int(value or b"") for value in values(servers, topic)) == sorted([*range(20)] * 2)

    def test_foreach_batch_writes_a_repeated_micro_batch_once(self, spark: Any, servers: str, tmp_path: Path) -> None:
        """Without its note of the end, Spark repeats the last micro-batch, as after a driver that was killed there."""
        source, sink = create(servers, "once-each-source", 2), create(servers, "once-each-sink", 1)
        batches: list[int] = []
        write = foreach_batch(topic=sink, bootstrap_servers=servers, exactly_once=True)

        def written(df: Any, batch: int) -> None:
            write(df, batch)
            batches.append(batch)

        def run() -> None:
            df = spark.readStream.format("pyclient").option("kafka.bootstrap.servers", servers)
            df = df.option("subscribe", source).option("startingOffsets", "earliest").option("includeHeaders", "true")
            df = df.load().select("key", "value", "timestamp", "headers")
            query = df.writeStream.foreachBatch(written).option("checkpointLocation", str(tmp_path))
            run_query(query)

        with Producer(servers) as producer:
            producer.send_many(source, [str(number).encode() for number in range(100)])
        run()
        for note in (tmp_path / "commits").iterdir():
            note.unlink()
        run()
        assert batches == [0, 0]
        assert sorted(int(value or b"") for value in values(servers, sink)) == list(range(100))
