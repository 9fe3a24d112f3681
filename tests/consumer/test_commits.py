"""Committed offsets: stored values, timing and refusals, with both APIs."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from pyclient import Consumer, errors
from pyclient.types import OffsetAndMetadata
from tests.consumer.consumer_factory import ConsumerFactory, partitions, poll_until, read, values
from tests.consumer.parts import client_of
from tests.waiting import until

NewTopic = Callable[..., str]
Produce = Callable[..., None]


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic(new_topic: NewTopic, produce: Produce) -> str:
    """Return a topic with the values 0 to 9 in partition 0, and an empty partition 1."""
    name = new_topic(2)
    produce(name, *[b"%d" % n for n in range(10)])
    return name


def committed(consumers: ConsumerFactory, group: str, topic: str) -> int | None:
    """Return the committed offset of partition 0 as another client sees it."""
    consumer = consumers(group_id=group, enable_auto_commit=False)
    found = consumer.committed([(topic, 0)])[(topic, 0)]
    consumer.close()
    return None if found is None else found.offset


def test_commit_stores_positions_and_the_next_consumer_starts_there(
    consumers: ConsumerFactory, topic: str, group: str
) -> None:
    consumer = consumers(topic, group_id=group, enable_auto_commit=False)
    read(consumer, 4)
    assert consumer.committed() == dict.fromkeys(partitions(topic, 0, 1))
    consumer.commit()
    assert consumer.committed([(topic, 0)])[(topic, 0)].offset == 4
    read(consumer, 3)
    consumer.close()
    again = consumers(topic, group_id=group)
    assert values(again.poll(30, max_records=1)) == [b"4"]


def test_explicit_offsets_and_metadata_are_stored(consumers: ConsumerFactory, topic: str, group: str) -> None:
    consumer = consumers(group_id=group, enable_auto_commit=False)
    first, second = partitions(topic, 0, 1)
    consumer.assign([first, second])
    consumer.commit({first: 7, second: OffsetAndMetadata(3, "my note")})
    assert consumer.committed() == {first: OffsetAndMetadata(7), second: OffsetAndMetadata(3, "my note")}
    for wrong in (-1, "7", None):
        with pytest.raises(ValueError, match="an offset to commit"):
            consumer.commit({first: wrong})


def test_offset_that_was_read_is_committed_with_its_epoch(consumers: ConsumerFactory, topic: str, group: str) -> None:
    consumer = consumers(topic, group_id=group, enable_auto_commit=False)
    read(consumer, 4)
    place, other = partitions(topic, 0, 1)
    (epoch,) = {offset.leader_epoch for offset in consumer.poll(30, max_records=1).next_offsets().values()}
    assert epoch >= 0
    for given, stored in (
        (5, OffsetAndMetadata(5, "", epoch)),
        (OffsetAndMetadata(5, "mine"), OffsetAndMetadata(5, "mine", epoch)),
        (1_000, OffsetAndMetadata(1_000)),
    ):
        consumer.commit({place: given})
        assert consumer.committed([place]) == {place: stored}
        consumer.commit_async({other: 1_000, place: given})
        consumer.commit({other: 1_000})
        assert consumer.committed([place]) == {place: stored}


def test_next_offsets_of_records_can_be_committed(consumers: ConsumerFactory, topic: str, group: str) -> None:
    consumer = consumers(topic, group_id=group, enable_auto_commit=False)
    records = consumer.poll(30, max_records=6)
    consumer.poll(30, max_records=1)
    consumer.commit(records.next_offsets())
    assert consumer.committed([(topic, 0)])[(topic, 0)].offset == 6


def test_commit_inside_a_loop_includes_the_record_in_hand(consumers: ConsumerFactory, topic: str, group: str) -> None:
    consumer = consumers(topic, group_id=group, enable_auto_commit=False)
    for record in consumer:
        consumer.commit()
        assert consumer.committed([(topic, 0)])[(topic, 0)].offset == record.offset + 1
        if record.offset == 3:
            break


def test_asynchronous_commit_calls_back_in_a_later_poll(consumers: ConsumerFactory, topic: str, group: str) -> None:
    consumer = consumers(topic, group_id=group, enable_auto_commit=False)
    read(consumer, 2)
    outcomes: list[Any] = []
    consumer.commit_async(callback=lambda offsets, error: outcomes.append((offsets[(topic, 0)].offset, error)))
    assert outcomes == []
    poll_until([consumer], lambda: bool(outcomes))
    assert outcomes == [(2, None)]


def test_commits_are_stored_in_call_order(consumers: ConsumerFactory, topic: str, group: str) -> None:
    consumer = consumers(group_id=group, enable_auto_commit=False)
    (partition,) = partitions(topic, 0)
    consumer.assign([partition])
    outcomes: list[int] = []
    for offset in range(1, 9):
        consumer.commit_async(
            {partition: offset}, callback=lambda offsets, error: outcomes.append(offsets[partition].offset)
        )
    consumer.commit({partition: 9})
    assert outcomes == list(range(1, 9))
    assert consumer.committed()[partition].offset == 9


def test_close_commits_the_polled_records(consumers: ConsumerFactory, topic: str, group: str) -> None:
    consumer = consumers(topic, group_id=group)
    read(consumer, 4)
    consumer.close()
    assert committed(consumers, group, topic) == 4


def test_leaving_a_loop_and_closing_commits_up_to_the_record_in_hand(
    consumers: ConsumerFactory, topic: str, group: str
) -> None:
    with consumers(topic, group_id=group) as consumer:
        for record in consumer:
            if record.offset == 5:
                break
    assert committed(consumers, group, topic) == 6


def test_exit_after_an_error_does_not_commit_the_last_poll(consumers: ConsumerFactory, topic: str, group: str) -> None:
    with pytest.raises(RuntimeError, match="while processing"), consumers(topic, group_id=group) as consumer:
        read(consumer, 3)
        consumer.poll(30, max_records=2)
        raise RuntimeError("while processing")
    assert committed(consumers, group, topic) == 3


def test_close_without_auto_commit_commits_nothing(consumers: ConsumerFactory, topic: str, group: str) -> None:
    consumer = consumers(topic, group_id=group, enable_auto_commit=False)
    read(consumer, 4)
    consumer.close()
    assert committed(consumers, group, topic) is None


def test_assigned_partitions_with_a_group_commit_without_membership(
    consumers: ConsumerFactory, topic: str, group: str
) -> None:
    consumer = consumers(group_id=group)
    consumer.assign(partitions(topic, 0))
    read(consumer, 4)
    consumer.close()
    again = consumers(group_id=group)
    again.assign(partitions(topic, 0))
    assert values(again.poll(30, max_records=1)) == [b"4"]


def test_commit_without_a_group_raises(consumers: ConsumerFactory, topic: str) -> None:
    consumer = consumers()
    consumer.assign(partitions(topic, 0))
    for call in (consumer.commit, consumer.commit_async, consumer.committed):
        with pytest.raises(errors.ConfigError, match="group_id"):
            call()


def test_partition_of_another_member_cannot_be_committed(consumers: ConsumerFactory, topic: str, group: str) -> None:
    consumer = consumers(topic, group_id=group, enable_auto_commit=False)
    read(consumer, 1)
    with pytest.raises(errors.CommitFailed, match=f"elsewhere-0 cannot be committed.*this one has {topic}-0"):
        consumer.commit({("elsewhere", 0): 1})


def test_commit_before_joining_is_refused(consumers: ConsumerFactory, topic: str, group: str) -> None:
    consumer = consumers(topic, group_id=group, enable_auto_commit=False)
    # by then it may have begun to join, in the background
    with pytest.raises(errors.CommitFailed, match=r"poll|this one has no partitions"):
        consumer.commit({(topic, 0): 1})


def test_metadata_that_is_too_large_is_refused_by_the_broker(
    consumers: ConsumerFactory, topic: str, group: str
) -> None:
    consumer = consumers(group_id=group)
    consumer.assign(partitions(topic, 0))
    with pytest.raises(errors.OffsetMetadataTooLarge):
        consumer.commit({(topic, 0): OffsetAndMetadata(1, "x" * 10_000)})


def test_commit_callback_error_is_raised_with_a_note(consumers: ConsumerFactory, new_topic: NewTopic) -> None:
    def fail(offsets: Any, error: Exception | None) -> None:
        raise ZeroDivisionError

    topic = new_topic()
    consumer = consumers(group_id=f"g-{topic}")
    consumer.assign(partitions(topic, 0))
    consumer.commit_async({partitions(topic, 0)[0]: 0}, fail)
    with pytest.raises(ZeroDivisionError) as caught:
        poll_until([consumer], lambda: False)
    assert caught.value.__notes__ == ["raised by a callback of commit_async, after the commit itself had completed"]


def test_raising_commit_callback_does_not_prevent_the_others(
    consumers: ConsumerFactory, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    (partition,) = partitions(topic, 0)
    consumer = consumers(group_id=group, enable_auto_commit=False)
    consumer.assign([partition])
    called: list[int] = []

    def note(offsets: Any, error: Exception | None) -> None:
        called.append(offsets[partition].offset)
        if called[-1] != 2:
            raise ZeroDivisionError(f"of commit {called[-1]}")

    for offset in (1, 2, 3):
        consumer.commit_async({partition: offset}, note)
    with pytest.raises(ZeroDivisionError, match="of commit 1") as caught:
        consumer.close()
    assert called == [1, 2, 3]
    assert len(caught.value.__notes__) == 1
    assert "of commit 3" in caplog.text
    assert consumer.raw.closed


def test_recommitting_callback_does_not_block_poll_or_close(
    consumers: ConsumerFactory, topic: str, group: str, new_topic: NewTopic
) -> None:
    """The commit fails without a broker, so that it may complete before the callback returns."""
    (elsewhere,) = partitions(new_topic(), 0)
    consumer = consumers(topic, group_id=group, enable_auto_commit=False)
    read(consumer, 1)
    called: list[Exception | None] = []

    def again(offsets: Any, error: Exception | None) -> None:
        called.append(error)
        consumer.raw.commit_async(offsets, again)
        if isinstance(consumer.raw, Consumer):  # an asyncio consumer calls back on the loop, which does nothing else
            until(lambda: not client_of(consumer).coordinator.commits.waiting)

    consumer.commit_async({elsewhere: 1}, again)
    poll_until([consumer], lambda: bool(called))
    assert len(called) == 1
    consumer.poll(0)
    assert len(called) <= 2
    so_far = len(called)
    consumer.close()
    assert so_far < len(called) <= so_far + 3
    assert all(isinstance(error, errors.KafkaError) for error in called)


def test_commit_of_an_otherwise_unused_consumer_completes_at_close(
    consumers: ConsumerFactory, topic: str, group: str
) -> None:
    called: list[Exception | None] = []
    consumer = consumers(group_id=group, enable_auto_commit=False)
    consumer.commit_async({partitions(topic, 0)[0]: 3}, lambda offsets, error: called.append(error))
    consumer.close()
    assert [type(error) for error in called] == [errors.CommitFailed]  # it has no partitions: commit() says so, too
