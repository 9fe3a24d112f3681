"""`topic_to_dataframe`: the same rows from segment files as from a consumer's fetches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyclient import Admin, Consumer, NewTopic, Producer, TopicPartition, errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.spark import SegmentGone, topic_to_dataframe
from pyclient.spark.offsets import OffsetRange
from pyclient.spark.options import COLUMNS
from pyclient.spark.reading import RangeReader
from pyclient.spark.segments import IsolationLevel, SegmentReader, segments_of
from tests.spark.conftest import needs_java

NAMES = tuple(COLUMNS)
SMALL = {"internal.segment.bytes": "4000"}
LEVELS: tuple[IsolationLevel, ...] = ("read_uncommitted", "read_committed")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(data_dir=str(tmp_path)) as started:
        yield started


def create(cluster: EmbeddedCluster, **configs: str) -> None:
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("t", 2, 1, configs={**SMALL, **configs})])


def fill(cluster: EmbeddedCluster, rounds: int = 40, **options: Any) -> None:
    """Write rounds of 20 keys, a batch for each round, which make several segments of both partitions."""
    with Producer(cluster.bootstrap_servers, **options) as producer:
        for number in range(rounds):
            values = [b"%d-%d" % (number, key) * 5 for key in range(19)]
            producer.send_many(
                "t", [*values, None], keys=[b"%d" % key for key in range(20)], headers=[[("h", b"x")]] * 20
            )
            producer.flush()


def by_consumer(cluster: EmbeddedCluster, level: IsolationLevel = "read_uncommitted") -> pa.Table:
    """Return what `format("pyclient")` reads."""
    servers = {"bootstrap.servers": cluster.bootstrap_servers, "isolation.level": level}
    with Consumer(config=servers) as consumer:
        partitions = [TopicPartition("t", number) for number in range(2)]
        starts, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    reader = RangeReader(servers, NAMES, 30.0, True)
    batches = [
        batch
        for partition in partitions
        for batch in reader.read(OffsetRange(*partition, starts[partition], ends[partition]))
    ]
    return pa.Table.from_batches(batches).combine_chunks()


def by_segments(place: Any, level: IsolationLevel = "read_uncommitted") -> pa.Table:
    segments = segments_of(place, "t", level)
    reader = SegmentReader(segments, NAMES)
    numbers = pa.record_batch([pa.array(range(len(segments)), pa.int64())], names=["id"])
    return pa.Table.from_batches(reader([numbers])).combine_chunks()


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4", "snappy", "zstd"])
def test_rows_of_several_segments_equal_those_of_a_consumer(cluster: EmbeddedCluster, codec: str) -> None:
    create(cluster)
    fill(cluster, compression_type=codec)
    assert len(segments_of(cluster, "t", "read_uncommitted")) > 2
    table = by_segments(cluster)
    assert table.num_rows == 800
    assert table.equals(by_consumer(cluster))


def test_a_compacted_topic_equals_that_of_a_consumer(cluster: EmbeddedCluster) -> None:
    create(cluster, **{"cleanup.policy": "compact"})
    fill(cluster)
    cluster.compact_now("t")
    table = by_segments(cluster)
    assert 20 <= table.num_rows < 400
    assert table.equals(by_consumer(cluster))


def test_deleted_segments_are_left_out(cluster: EmbeddedCluster) -> None:
    create(cluster, **{"retention.bytes": "8000"})
    fill(cluster)
    cluster.retention_now()
    table = by_segments(cluster)
    assert 0 < table.num_rows < 800
    assert table.equals(by_consumer(cluster))


@pytest.mark.parametrize("level", LEVELS)
def test_aborted_and_undecided_transactions(cluster: EmbeddedCluster, level: IsolationLevel) -> None:
    create(cluster)
    servers = cluster.bootstrap_servers
    with Producer(servers, transactional_id="a", linger_ms=0) as one, Producer(servers, transactional_id="b") as two:
        one.init_transactions()
        two.init_transactions()
        for number in range(30):
            one.begin_transaction()
            one.send_many("t", [b"%d" % number * 30] * 10, partition=number % 2)
            one.flush()
            if number % 3:
                one.commit_transaction()
            else:
                one.abort_transaction()
        two.begin_transaction()
        two.send("t", b"undecided", partition=1)
        two.flush()
        fill(cluster, rounds=3)
        table = by_segments(cluster, level)
        assert table.equals(by_consumer(cluster, level))
        undecided = b"undecided" in table["value"].to_pylist()
        assert undecided == (level == "read_uncommitted")
        assert (b"0" * 30 in table["value"].to_pylist()) == undecided
        two.abort_transaction()


@pytest.mark.parametrize("level", LEVELS)
def test_the_directory_of_a_broker_that_was_stopped(tmp_path: Path, level: IsolationLevel) -> None:
    with EmbeddedCluster(data_dir=str(tmp_path)) as cluster:
        create(cluster)
        fill(cluster, rounds=5)
        with Producer(cluster.bootstrap_servers, transactional_id="a") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"aborted", partition=0)
            producer.flush()
            producer.abort_transaction()
        expected = by_consumer(cluster, level)
    assert by_segments(tmp_path, level).equals(expected)


def test_batches_that_are_larger_than_a_read(cluster: EmbeddedCluster) -> None:
    create(cluster, **{"internal.segment.bytes": "1073741824", "max.message.bytes": "30000000"})
    with Producer(cluster.bootstrap_servers, max_request_size=30_000_000) as producer:
        producer.send("t", b"x" * 9_000_000, partition=0)
        producer.send("t", b"y", partition=0)
    assert [len(value) for value in by_segments(cluster)["value"].to_pylist()] == [9_000_000, 1]


def test_invalid_arguments_raise_clear_errors(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    create(cluster)
    fill(cluster)
    with pytest.raises(errors.UnknownTopicOrPartition, match="the cluster has no topic nothing"):
        topic_to_dataframe(None, cluster, "nothing")
    with pytest.raises(errors.UnknownTopicOrPartition, match="there is no log of topic nothing"):
        topic_to_dataframe(None, tmp_path, "nothing")
    with pytest.raises(errors.ConfigError, match=r"is not a broker's data directory"):
        topic_to_dataframe(None, tmp_path / "t-0", "t")
    with pytest.raises(errors.ConfigError, match="it takes some of key, value"):
        topic_to_dataframe(None, cluster, "t", columns=["value", "size"])
    with pytest.raises(errors.ConfigError, match="isolation_level='serializable' is not possible"):
        topic_to_dataframe(None, cluster, "t", isolation_level="serializable")  # type: ignore[arg-type]
    first, *_ = segments_of(cluster, "t", "read_uncommitted")
    Path(first.path).rename(f"{first.path}.deleted")
    with pytest.raises(SegmentGone, match="was deleted, by retention or compaction"):
        list(SegmentReader((first,), NAMES).read(first))
    Path(f"{first.path}.deleted").rename(first.path)


def test_a_damaged_batch_is_an_error(cluster: EmbeddedCluster) -> None:
    create(cluster)
    fill(cluster, rounds=2)
    segment, *_ = segments_of(cluster, "t", "read_uncommitted")
    content = bytearray(Path(segment.path).read_bytes())
    content[-3] ^= 1
    Path(segment.path).write_bytes(content)
    with pytest.raises(errors.CorruptBatch, match="t-0"):
        list(SegmentReader((segment,), NAMES).read(segment))


@pytest.mark.parametrize("damage", ["length", "end"])
def test_batches_that_cannot_be_found_are_an_error(cluster: EmbeddedCluster, damage: str) -> None:
    create(cluster)
    fill(cluster, rounds=2)
    segment, *_ = segments_of(cluster, "t", "read_uncommitted")
    content = bytearray(Path(segment.path).read_bytes())
    second = 12 + int.from_bytes(content[8:12], "big")
    if damage == "length":
        content[second + 8 : second + 12] = b"\x7f\xff\xff\xff"
    else:
        del content[second + 20 :]
    Path(segment.path).write_bytes(content)
    with pytest.raises(errors.CorruptBatch, match=rf"from position {second} on are no batch"):
        list(SegmentReader((segment,), NAMES).read(segment))


class TestInSpark:
    pytestmark = needs_java

    def test_rows_equal_those_of_the_source(self, spark: Any, cluster: EmbeddedCluster) -> None:
        create(cluster)
        fill(cluster)
        df = topic_to_dataframe(spark, cluster, "t")
        source = spark.read.format("pyclient").option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        source = source.option("subscribe", "t").load()
        assert df.schema == source.schema
        assert df.count() == 800
        assert df.exceptAll(source).isEmpty()
        assert topic_to_dataframe(spark, cluster, "t", columns=["offset"]).columns == ["offset"]
