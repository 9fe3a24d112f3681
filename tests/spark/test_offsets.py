"""Offsets of Spark queries: JSON forms, ranges of tasks, and what a micro-batch takes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient import TopicPartition
from pyclient.spark.offsets import (
    OffsetRange,
    from_json,
    lag_of,
    limited,
    parse_offsets,
    parse_partitions,
    split,
    to_json,
)

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b.c", "d"]), st.integers(0, 5))
ranges = st.builds(
    lambda partition, start, size: OffsetRange(partition.topic, partition.partition, start, start + size),
    partitions,
    st.integers(0, 1000),
    st.integers(0, 1000),
)


@given(st.dictionaries(partitions, st.integers(0, 2**63 - 1)))
def test_offsets_survive_their_json_form(offsets: dict[TopicPartition, int]) -> None:
    assert from_json(json.loads(json.dumps(to_json(offsets)))) == offsets


def test_offsets_are_written_as_spark_writes_them() -> None:
    offsets = {TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("a", 0): 3}
    assert json.dumps(to_json(offsets)) == '{"a": {"0": 3}, "b": {"9": 2, "10": 1}}'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x", "not JSON"),
        ("[]", "not an object of topics"),
        ("{}", "names no partition"),
        ('{"t": 1}', "not an object of partitions"),
        ('{"": {"0": 1}}', "not an object of partitions"),
        ('{"t": {"x": 1}}', "not a number from 0"),
        ('{"t": {"-1": 1}}', "not a number from 0"),
        ('{"t": {"²": 1}}', "not a number from 0"),
        ('{"t": {"0": "1"}}', "not an integer"),
        ('{"t": {"0": true}}', "not an integer"),
        ('{"t": {"0": 1.5}}', "not an integer"),
        ('{"t": {"0": -3}}', "below -2"),
    ],
)
def test_wrong_offsets_say_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_offsets(text, -2)


def test_assigned_partitions() -> None:
    assert parse_partitions('{"t": [1, 0, 1], "u": [3]}') == (("t", 1), ("t", 0), ("u", 3))
    for text in ("{}", "[]", '{"t": 0}', '{"t": ["0"]}', '{"t": [-1]}', '{"t": [true]}', '{"t": []}', "{"):
        with pytest.raises(ValueError, match=r"it is|it names|has"):
            parse_partitions(text)


@given(st.lists(ranges), st.none() | st.integers(1, 40), st.none() | st.integers(1, 400))
def test_splitting_keeps_every_offset_in_order(
    whole: list[OffsetRange], min_partitions: int | None, max_records: int | None
) -> None:
    pieces = split(whole, min_partitions, max_records)
    assert all(piece.size > 0 for piece in pieces)
    covered = [(p.topic, p.partition, offset) for p in pieces for offset in range(p.start, p.stop)]
    assert covered == [(p.topic, p.partition, offset) for p in whole for offset in range(p.start, p.stop)]
    if max_records is not None:
        assert all(piece.size <= max_records for piece in pieces)


def test_min_partitions_splits_in_proportion_to_size() -> None:
    pieces = split([OffsetRange("t", 0, 0, 900), OffsetRange("t", 1, 0, 100)], 10, None)
    assert [piece.partition for piece in pieces] == [0] * 9 + [1]
    assert {piece.size for piece in pieces} == {100}


@given(st.dictionaries(partitions, st.tuples(st.integers(0, 100), st.integers(0, 1000))), st.integers(1, 2000))
def test_a_limited_batch_advances_and_stays_inside_the_log(
    places: dict[TopicPartition, tuple[int, int]], limit: int
) -> None:
    start = {partition: first for partition, (first, _) in places.items()}
    end = {partition: first + size for partition, (first, size) in places.items()}
    until = limited(start, end, limit)
    assert until.keys() == end.keys()
    assert all(start[partition] <= until[partition] <= end[partition] for partition in end)
    waiting = sum(lag_of(start, end).values())
    taken = sum(until[partition] - start[partition] for partition in end)
    assert taken <= limit + len(places)  # small partitions get one offset more
    assert taken >= min(1, waiting)
    if waiting <= limit:
        assert until == end
    assert all(
        until[partition] > start[partition]
        for partition in end
        if end[partition] > start[partition] and limit <= waiting < 10
    )


def test_a_limit_is_split_in_proportion() -> None:
    start = {TopicPartition("t", 0): 0, TopicPartition("t", 1): 0, TopicPartition("t", 2): 5}
    end = {TopicPartition("t", 0): 900, TopicPartition("t", 1): 100, TopicPartition("t", 2): 5}
    assert limited(start, end, 100) == {("t", 0): 90, ("t", 1): 10, ("t", 2): 5}


def test_lag_is_by_partition() -> None:
    partition, new = TopicPartition("t", 0), TopicPartition("t", 1)
    assert lag_of({partition: 7}, {partition: 10, new: 4}) == {partition: 3, new: 4}
