"""A member that does not poll within max_poll_interval_ms leaves, raises, and commits nothing more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pyclient import errors
from tests.consumer.consumer_factory import (
    ConsumerFactory,
    EventLog,
    partitions,
    poll_until,
    read,
    read_although_late,
    shares,
    values,
)

NewTopic = Callable[..., str]
Produce = Callable[..., None]


def test_slow_handler_loses_its_partitions_and_cannot_commit(
    consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce, group: str
) -> None:
    topic = new_topic()
    (partition,) = partitions(topic, 0)
    produce(topic, *[b"%d" % n for n in range(10)])
    event_log = EventLog()
    auto_commit = consumers.name == "sync"
    slow = consumers(
        group_id=group, max_poll_interval_ms=2000, enable_auto_commit=auto_commit, auto_commit_interval_ms=0
    )
    slow.subscribe(topic, listener=event_log)
    assert values(read_although_late(slow, 3)) == [b"0", b"1", b"2"]
    successor = consumers(topic, group_id=group, enable_auto_commit=False)
    done = poll_until([successor], lambda: shares([successor]) == [[0]])
    done += read(successor, 10 - (0 if not done else len(done))) if not done or done[-1].offset < 9 else []
    successor.commit()
    refusals: list[BaseException | None] = []
    for offsets in (None, {partition: 3}):
        with pytest.raises(errors.CommitFailed, match=rf"{group}.*poll overdue.*max_poll_interval_ms"):
            slow.commit(offsets)
        slow.commit_async(offsets, lambda _, error: refusals.append(error))
    with pytest.raises(errors.PollIntervalExceeded, match="max_poll_interval_ms=2000"):
        poll_until([slow], lambda: False)
    assert event_log.lines[-1] == "!0"
    poll_until([slow, successor], lambda: len(refusals) == 2)
    assert {type(refusal) for refusal in refusals} == {errors.CommitFailed}
    slow.close()
    assert successor.committed([partition])[partition].offset == 10


def test_heartbeats_continue_while_the_handler_works_in_time(
    consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce, group: str
) -> None:
    topic = new_topic(2)
    produce(topic, b"x")
    event_log = EventLog()
    busy = consumers(group_id=group)
    busy.subscribe(topic, listener=event_log)
    read(busy, 1)
    other = consumers(topic, group_id=group)
    # the busy one never polls while the other one waits: nothing is taken from it
    for _ in range(20):
        other.poll(0.02)
        assert shares([other]) == [[]]
    assert shares([busy]) == [[0, 1]]
    poll_until([busy, other], lambda: sorted(map(len, shares([busy, other]))) == [1, 1])
    assert not any(line.startswith("!") for line in event_log.lines)


def test_poll_that_waits_longer_than_the_interval_counts_as_polling(
    consumers: ConsumerFactory, new_topic: NewTopic, group: str
) -> None:
    consumer = consumers(new_topic(), group_id=group, max_poll_interval_ms=900)
    for _ in range(20):
        try:
            poll_until([consumer], lambda: shares([consumer]) == [[0]])
            assert not consumer.poll(1.2)
            return
        except errors.PollIntervalExceeded as error:  # a busy machine may have looked too late
            late = error
    raise late
