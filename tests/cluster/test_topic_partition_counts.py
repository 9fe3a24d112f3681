"""Partition counts are unchanged by transient errors, shorter lists and outdated brokers."""

from __future__ import annotations

import uuid
from types import MappingProxyType

from hypothesis import given
from hypothesis import strategies as st

from pyclient import errors
from pyclient.cluster.metadata import ClusterMetadata, PartitionInfo, TopicInfo, TopicPartitionCounts

OLD, NEW, NONE = uuid.UUID(int=1), uuid.UUID(int=2), uuid.UUID(int=0)


def entry(count: int, topic_id: uuid.UUID = OLD, error: int = 0) -> TopicInfo:
    return TopicInfo("t", topic_id, tuple(PartitionInfo(number, 1) for number in range(count)), error_code=error)


def metadata(info: TopicInfo | None) -> ClusterMetadata:
    topics = {} if info is None else {"t": info}
    return ClusterMetadata("c", 1, MappingProxyType({}), MappingProxyType(topics), 0.0)


def count_after(*entries: TopicInfo | None) -> int:
    counts = TopicPartitionCounts()
    for info in entries:
        counts.update(metadata(info), {"t"})
    return counts.count("t")


def test_error_an_empty_or_a_missing_entry_changes_nothing() -> None:
    for error in (errors.UnknownTopicOrPartition, errors.LeaderNotAvailable, errors.TopicAuthorizationFailed):
        assert count_after(entry(3), entry(0, error=error.code)) == 3
    assert count_after(entry(3), entry(0)) == 3
    assert count_after(entry(3), None) == 3
    assert count_after(None, entry(0, error=3)) == 0


def test_topic_grows_under_its_id_and_never_shrinks() -> None:
    assert count_after(entry(3), entry(5)) == 5
    assert count_after(entry(5), entry(3)) == 5
    assert count_after(entry(5, NONE), entry(3, NONE)) == 5


def test_recreated_topic_has_its_own_count_and_the_old_id_never_returns() -> None:
    assert count_after(entry(5), entry(2, NEW)) == 2
    assert count_after(entry(5), entry(2, NEW), entry(5)) == 2
    assert count_after(entry(5), entry(2, NEW), entry(5), entry(3, NEW)) == 3


def test_entry_of_the_replaced_id_is_outdated() -> None:
    counts = TopicPartitionCounts()
    for info in (entry(2), entry(2, NEW)):
        counts.update(metadata(info), {"t"})
    assert counts.is_outdated(entry(2))
    assert not counts.is_outdated(entry(2, NEW))


def test_unwanted_topic_is_forgotten() -> None:
    counts = TopicPartitionCounts()
    counts.update(metadata(entry(3)), {"t"})
    counts.update(metadata(entry(3)), set())
    assert counts.count("t") == 0


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=30))
def test_any_answers_about_one_topic_end_with_the_largest_valid_count(answers: list[tuple[int, bool]]) -> None:
    found = count_after(*(entry(0 if failed else count, error=5 if failed else 0) for count, failed in answers))
    assert found == max((count for count, failed in answers if not failed), default=0)
