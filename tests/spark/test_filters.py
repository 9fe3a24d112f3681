"""Pushed filters leave out offsets that no matching row can have, and none that one can have."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient import TopicPartition
from pyclient.spark.filters import pruned
from pyclient.spark.offsets import OffsetRange

datasource = pytest.importorskip("pyspark.sql.datasource")
WHOLE = [OffsetRange("t", 0, 10, 20), OffsetRange("t", 1, 0, 5), OffsetRange("u", 0, 3, 9)]

KINDS = {
    "EqualTo": lambda given, value: given == value,
    "GreaterThan": lambda given, value: given > value,
    "GreaterThanOrEqual": lambda given, value: given >= value,
    "LessThan": lambda given, value: given < value,
    "LessThanOrEqual": lambda given, value: given <= value,
    "In": lambda given, value: given in value,
}


def no_times(times: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
    raise AssertionError("no filter asks for times")


def rows(ranges: list[OffsetRange]) -> set[tuple[str, int, int]]:
    return {(part.topic, part.partition, offset) for part in ranges for offset in range(part.start, part.stop)}


conditions_of = st.tuples(st.sampled_from(sorted(KINDS)), st.sampled_from(["offset", "partition"]), st.integers(-2, 25))


@given(st.lists(conditions_of))
def test_no_matching_row_is_left_out(conditions: list[tuple[str, str, int]]) -> None:
    filters, matching = [], rows(WHOLE)
    for kind, column, number in conditions:
        value = (number, number + 3) if kind == "In" else number
        filters.append(getattr(datasource, kind)((column,), value))
        matching = {row for row in matching if KINDS[kind](row[2 if column == "offset" else 1], value)}
    left = pruned(WHOLE, filters, no_times)
    assert matching <= rows(left) <= rows(WHOLE)
    if conditions and all(kind != "In" for kind, _, _ in conditions):
        assert rows(left) == matching


def test_topics_and_partitions_are_left_out_whole() -> None:
    left = pruned(WHOLE, [datasource.EqualTo(("topic",), "t"), datasource.In(("partition",), (1, 2))], no_times)
    assert left == [OffsetRange("t", 1, 0, 5)]


def test_a_lower_limit_of_time_moves_the_start() -> None:
    asked: dict[TopicPartition, int] = {}

    def first_at(times: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        asked.update(times)
        return {partition: 4 if partition.topic == "t" else 9 for partition in times}

    time = datetime(2026, 1, 2, tzinfo=UTC)
    left = pruned(WHOLE, [datasource.GreaterThanOrEqual(("timestamp",), time)], first_at)
    assert left == [OffsetRange("t", 0, 10, 20), OffsetRange("t", 1, 4, 5)]
    assert set(asked.values()) == {int(time.timestamp() * 1000)}
    assert pruned(WHOLE, [datasource.LessThan(("timestamp",), time)], no_times) == WHOLE


@pytest.mark.parametrize(
    "unused",
    [
        datasource.IsNotNull(("offset",)),
        datasource.Not(datasource.EqualTo(("offset",), 11)),
        datasource.EqualTo(("key",), b"k"),
        datasource.EqualNullSafe(("offset",), None),
        datasource.StringStartsWith(("topic",), "x"),
    ],
)
def test_other_filters_leave_nothing_out(unused: Any) -> None:
    assert pruned(WHOLE, [unused], no_times) == WHOLE
