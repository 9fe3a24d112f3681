"""Scenarios of groups in either protocol, with both APIs, on any broker.

A module that has the fixtures `consumers`, `new_topic`, `produce` and `admin` runs these tests by a subclass.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable

import pytest

from pyclient import Admin, errors
from pyclient import NewTopic as Topic
from pyclient.types import TopicPartition
from tests.consumer.consumer_factory import ConsumerFactory, EventLog, partitions, poll_until, read, shares, values

NewTopic = Callable[..., str]
Produce = Callable[..., None]


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


class GroupScenarios:
    def test_member_alone_reads_everything(
        self, consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce, group: str
    ) -> None:
        topic = new_topic(3)
        for partition in range(3):
            produce(topic, b"%d" % partition, partition=partition)
        consumer = consumers(topic, group_id=group)
        assert sorted(values(read(consumer, 3))) == [b"0", b"1", b"2"]
        assert consumer.assignment() == set(partitions(topic, 0, 1, 2))
        assert consumer.subscription() == {topic}
        poll_until([consumer], lambda: consumer.health()["group_state"] == "stable")
        assert f"group '{group}' stable reading {topic}-0" in repr(consumer)
        assert consumer.health()["generation"] > 0

    def test_compiled_pattern_is_matched_by_the_client(
        self, consumers: ConsumerFactory, admin: Admin, group: str
    ) -> None:
        stem = f"p-{uuid.uuid4().hex[:8]}"
        admin.create_topics([Topic(f"{stem}-{name}", 1) for name in ("a", "ignored", "ignored-b")])
        consumer = consumers(group_id=group, metadata_max_age_ms=50)
        consumer.subscribe(re.compile(f"{stem}-(?!ignored$)[a-z]+"))
        poll_until([consumer], lambda: consumer.assignment() == {TopicPartition(f"{stem}-a", 0)})
        admin.create_topics([Topic(f"{stem}-z", 1)])
        poll_until([consumer], lambda: len(consumer.assignment()) == 2)
        assert consumer.subscription() == {f"{stem}-a", f"{stem}-z"}

    def test_new_partitions_are_assigned(
        self, consumers: ConsumerFactory, new_topic: NewTopic, admin: Admin, group: str
    ) -> None:
        topic = new_topic(1)
        consumer = consumers(topic, group_id=group, metadata_max_age_ms=50)
        poll_until([consumer], lambda: shares([consumer]) == [[0]])
        admin.create_partitions({topic: 3})
        poll_until([consumer], lambda: shares([consumer]) == [[0, 1, 2]])

    def test_new_subscription_revokes_the_old_one(
        self, consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce, group: str
    ) -> None:
        old, new = new_topic(), new_topic()
        produce(new, b"new")
        produce(old, b"old", b"never read")
        consumer = consumers(old, group_id=group)
        assert len(consumer.poll(30, max_records=1)) == 1
        consumer.subscribe(new)
        assert values(read(consumer, 1)) == [b"new"]
        assert consumer.assignment() == set(partitions(new, 0))

    def test_unsubscribe_leaves_the_group_and_another_subscription_joins_again(
        self, consumers: ConsumerFactory, new_topic: NewTopic, group: str
    ) -> None:
        topic = new_topic(2)
        event_log = EventLog()
        first, second = consumers(group_id=group), consumers(topic, group_id=group)
        first.subscribe(topic, listener=event_log)
        poll_until([first, second], lambda: sorted(map(len, shares([first, second]))) == [1, 1])
        first.unsubscribe()
        assert (first.assignment(), first.subscription()) == (set(), set())
        assert event_log.lines[-1].startswith("-")
        with pytest.raises(errors.NotAssigned, match="subscribe"):
            first.poll(0.01)
        poll_until([second], lambda: shares([second]) == [[0, 1]])
        first.subscribe(topic)
        poll_until([first, second], lambda: sorted(map(len, shares([first, second]))) == [1, 1])
        first.unsubscribe()
        first.assign(partitions(topic, 0))

    def test_static_member_returns_to_its_partitions_others_keep_theirs(
        self, consumers: ConsumerFactory, new_topic: NewTopic, group: str
    ) -> None:
        topic = new_topic(2)
        event_log = EventLog()
        static = consumers(topic, group_id=group, group_instance_id="one")
        other = consumers(group_id=group, group_instance_id="two")
        other.subscribe(topic, listener=event_log)
        poll_until([static, other], lambda: sorted(map(len, shares([static, other]))) == [1, 1])
        held, lines = static.assignment(), len(event_log.lines)
        static.close()
        again = consumers(topic, group_id=group, group_instance_id="one")
        poll_until([again, other], lambda: again.assignment() == held)
        assert len(event_log.lines) == lines
