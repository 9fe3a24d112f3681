"""Starting and ending offsets of queries, which the driver finds by offsets, words and times."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyclient import Producer
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.spark.offset_reader import OffsetsUnknown
from pyclient.spark.options import source_options
from pyclient.spark.reading import RangeReader
from pyclient.spark.source import BatchReader
from pyclient.spark.stream import stream_reader
from tests.spark.conftest import create


@pytest.fixture
def seconds(kafka_cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> str:
    """Return a topic of two partitions with a record for each second: from 1000 to 1009, and from 1000 to 1004."""
    topic = create(kafka_cluster.bootstrap_servers, f"seconds-{abs(hash(request.node.nodeid))}", 2)
    with Producer(kafka_cluster.bootstrap_servers) as producer:
        for partition, count in ((0, 10), (1, 5)):
            times = [1_000_000 + 1000 * number for number in range(count)]
            producer.send_many(topic, [b"v"] * count, timestamps_ms=times, partition=partition)
    return topic


def options(cluster: EmbeddedCluster, topic: str, query: Any, given: dict[str, Any]) -> Any:
    texts = {
        name: value.replace("TOPIC", topic) if isinstance(value, str) else json.dumps({topic: value})
        for name, value in given.items()
    }
    return source_options({"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic, **texts}, query)


def ranges(cluster: EmbeddedCluster, topic: str, given: dict[str, Any]) -> dict[int, tuple[int, int]]:
    """Return the first and the last but one offset that a batch reads, by partition."""
    reader = BatchReader(options(cluster, topic, "batch", given), RangeReader({}, (), 1.0, True))
    pieces = [each.value for each in reader.partitions()]
    return {piece.partition: (piece.start, piece.stop) for piece in pieces}


def start(cluster: EmbeddedCluster, topic: str, given: dict[str, Any]) -> dict[str, int]:
    """Return where a new stream starts, by partition."""
    reader = stream_reader(options(cluster, topic, "stream", given), RangeReader({}, (), 1.0, True))
    try:
        return reader.initialOffset()[topic]
    finally:
        reader.stop()


LATE = {"0": 1_008_500, "1": 1_030_000}  # the second is after the last record


class TestBatches:
    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ({"startingOffsetsByTimestamp": {"0": 1_007_000, "1": 1_003_001}}, {0: (7, 10), 1: (4, 5)}),
            ({"endingOffsetsByTimestamp": {"0": 1_002_000, "1": 1_000_001}}, {0: (0, 2), 1: (0, 1)}),
            ({"endingOffsetsByTimestamp": LATE}, {0: (0, 9), 1: (0, 5)}),
            ({"endingTimestamp": "1007000"}, {0: (0, 7), 1: (0, 5)}),
            (
                {
                    "startingOffsetsByTimestamp": {"0": 1_002_000, "1": 1_001_000},
                    "endingOffsetsByTimestamp": {"0": 1_004_000, "1": 1_004_000},
                },
                {0: (2, 4), 1: (1, 4)},
            ),
            ({"startingOffsets": {"0": 4, "1": -2}, "endingOffsets": {"0": -1, "1": 3}}, {0: (4, 10), 1: (0, 3)}),
        ],
    )
    def test_offsets_and_times_of_partitions_bound_a_batch(
        self, kafka_cluster: EmbeddedCluster, seconds: str, given: dict[str, Any], expected: Any
    ) -> None:
        assert ranges(kafka_cluster, seconds, given) == expected

    def test_a_start_after_the_last_record_is_an_error_or_the_end(
        self, kafka_cluster: EmbeddedCluster, seconds: str
    ) -> None:
        late: dict[str, Any]
        for late in ({"startingOffsetsByTimestamp": LATE}, {"startingTimestamp": "1008500"}):
            with pytest.raises(OffsetsUnknown, match=f"no record is that late in {seconds}-1 "):
                ranges(kafka_cluster, seconds, late)
            late["startingOffsetsByTimestampStrategy"] = "latest"
            assert ranges(kafka_cluster, seconds, late) == {0: (9, 10)}


class TestStreams:
    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ({}, {"0": 10, "1": 5}),
            ({"startingOffsets": "latest"}, {"0": 10, "1": 5}),
            ({"startingOffsets": "earliest"}, {"0": 0, "1": 0}),
            ({"startingOffsets": {"0": 4, "1": -1}}, {"0": 4, "1": 5}),
            ({"startingOffsets": {"0": -2, "1": 3}}, {"0": 0, "1": 3}),
            ({"startingTimestamp": "1003500"}, {"0": 4, "1": 4}),
            ({"startingOffsetsByTimestamp": {"0": 1_002_000, "1": 1_001_000}}, {"0": 2, "1": 1}),
            (
                {"startingOffsetsByTimestamp": LATE, "startingOffsetsByTimestampStrategy": "latest"},
                {"0": 9, "1": 5},
            ),
            ({"startingOffsets": "earliest", "startingTimestamp": "1003500"}, {"0": 4, "1": 4}),
        ],
    )
    def test_a_new_stream_starts_at_its_starting_offsets(
        self, kafka_cluster: EmbeddedCluster, seconds: str, given: dict[str, Any], expected: dict[str, int]
    ) -> None:
        assert start(kafka_cluster, seconds, given) == expected

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"startingOffsetsByTimestamp": LATE}, "no record is that late in TOPIC-1 "),
            ({"startingOffsets": {"0": 4}}, "only in one of both: TOPIC-1"),
        ],
    )
    def test_a_start_that_is_not_possible_is_named(
        self, kafka_cluster: EmbeddedCluster, seconds: str, given: dict[str, Any], said: str
    ) -> None:
        with pytest.raises(OffsetsUnknown, match=said.replace("TOPIC", seconds)):
            start(kafka_cluster, seconds, given)
