"""Tests of groups in the consumer protocol (KIP-848), with both APIs, for any broker.

A module that has the fixtures `consumers` (with that protocol), `new_topic`, `produce`, `admin`, `producer` and
`cluster` runs them by a subclass named Test...; the broker should want heartbeats every 100 ms or so.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from pyclient import Admin, Producer, SubscriptionPattern, errors
from pyclient import NewTopic as Topic
from pyclient.clock import SYSTEM_CLOCK
from pyclient.cluster.client import ClusterClient
from pyclient.config import ClientConfig
from pyclient.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pyclient.types import TopicPartition
from tests.consumer.consumer_factory import (
    PATIENCE,
    ConsumerFactory,
    EventLog,
    poll_until,
    read,
    read_although_late,
    shares,
    values,
)
from tests.consumer.group_scenarios import GroupScenarios, group

__all__ = ["ConsumerProtocol", "group"]

NewTopic = Callable[..., str]
Produce = Callable[..., None]

_REGEX_SECONDS = 60  # Kafka evaluates patterns at most every 10 s; new topics wait for that


def send_leave_for(member_id: str, group: str, servers: str) -> None:
    """Send a leave heartbeat for the member, without its knowledge."""

    async def main() -> None:
        cluster = ClusterClient(ClientConfig(bootstrap_servers=servers), clock=SYSTEM_CLOCK)  # type: ignore[arg-type]
        await cluster.start()
        try:
            node = await cluster.find_coordinator(group, timeout=30)
            request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=-1)
            response = await cluster.request(request, node_id=node)
            assert response.error_code == 0
        finally:
            await cluster.close()

    asyncio.run(main())


def lags(consumers: list[Any]) -> list[int | None]:
    return [lag for consumer in consumers for lag in consumer.lag().values()]


class ConsumerProtocol(GroupScenarios):
    def test_new_member_takes_only_its_share_and_the_last_one_gets_all_back(
        self, consumers: ConsumerFactory, new_topic: NewTopic, group: str
    ) -> None:
        topic = new_topic(4)
        event_log = EventLog()
        first, second = consumers(group_id=group), consumers(group_id=group)
        first.subscribe(topic, listener=event_log)
        poll_until([first], lambda: shares([first]) == [[0, 1, 2, 3]])
        second.subscribe(topic)
        poll_until([first, second], lambda: sorted(map(len, shares([first, second]))) == [2, 2])
        given_up = [line for line in event_log.lines if line.startswith("-")]
        assert len(given_up) == 1
        assert len(given_up[0].split()) == 2
        second.close()
        poll_until([first], lambda: shares([first]) == [[0, 1, 2, 3]])
        assert [line for line in event_log.lines if line.startswith("-")] == given_up
        assert not any(line.startswith("!") for line in event_log.lines)

    def test_records_are_read_once_while_members_come_and_go(
        self, consumers: ConsumerFactory, new_topic: NewTopic, producer: Producer, group: str
    ) -> None:
        topic = new_topic(6)
        members = [consumers(topic, group_id=group)]
        seen: Counter[bytes] = Counter()
        sent = 0

        def send_and_read(count: int) -> None:
            nonlocal sent
            for _ in range(count):
                producer.send(topic, b"%d" % sent, partition=sent % 6)
                sent += 1
            producer.flush()

            def done() -> bool:
                held = list(map(len, shares(members)))
                return sum(held) == 6 and max(held) - min(held) <= 1 and seen.total() >= sent

            deadline = time.monotonic() + PATIENCE
            while not done():
                assert time.monotonic() < deadline, (seen.total(), sent, shares(members))
                for member in members:
                    seen.update(values(member.poll(0.02)))

        send_and_read(60)
        for _ in range(2):
            members.append(consumers(topic, group_id=group))
            send_and_read(60)
        while len(members) > 1:
            members.pop(0).close()
            send_and_read(60)
        assert set(seen.values()) == {1}
        assert len(seen) == sent

    def test_next_owner_starts_at_the_commit_made_in_on_revoked(
        self, consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce, group: str
    ) -> None:
        class Committing(EventLog):
            consumer: Any

            def on_revoked(self, revoked: Any) -> Any:
                super().on_revoked(revoked)
                return self.consumer.raw.commit()

        topic = new_topic(2)
        for partition in range(2):
            produce(topic, *[b"%d" % n for n in range(10)], partition=partition)
        listener = Committing()
        first = consumers(group_id=group, enable_auto_commit=False)
        listener.consumer = first
        first.subscribe(topic, listener=listener)
        before = read(first, 7)
        second = consumers(topic, group_id=group, enable_auto_commit=False)
        after = poll_until([first, second], lambda: sorted(map(len, shares([first, second]))) == [1, 1])
        after += poll_until([first, second], lambda: all(lag == 0 for lag in lags([first, second])))
        seen = Counter((record.partition, record.offset) for record in [*before, *after])
        assert set(seen.values()) == {1}
        assert len(seen) == 20

    def test_commits_go_through_while_the_group_changes(
        self, consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce, group: str
    ) -> None:
        topic = new_topic(4)
        for partition in range(4):
            produce(topic, b"x", partition=partition)
        first = consumers(topic, group_id=group, enable_auto_commit=False)
        read(first, 4)
        for _ in range(3):
            other = consumers(topic, group_id=group, enable_auto_commit=False)

            def commit_and_see(other: Any = other) -> bool:
                first.commit()  # the member epoch may have moved on since: that is no error
                return sorted(map(len, shares([first, other]))) == [2, 2]

            poll_until([first, other], commit_and_see)
            other.close()
            poll_until([first], lambda: len(shares([first])[0]) == 4)
        first.commit()
        assert [offset.offset for offset in first.committed().values()] == [1, 1, 1, 1]

    def test_broker_uses_the_configured_remote_assignor(
        self, consumers: ConsumerFactory, new_topic: NewTopic, group: str
    ) -> None:
        topics = [new_topic(2), new_topic(2)]
        members = [consumers(*topics, group_id=group, group_remote_assignor="range") for _ in range(2)]
        poll_until(members, lambda: sorted(shares(members)) == [[0, 0], [1, 1]])  # range: both topics side by side

    def test_unknown_remote_assignor_raises(self, consumers: ConsumerFactory, new_topic: NewTopic, group: str) -> None:
        consumer = consumers(new_topic(), group_id=group, group_remote_assignor="best-of-all")
        with pytest.raises(errors.UnsupportedAssignor, match=r"group\.consumer\.assignors"):
            poll_until([consumer], lambda: False)

    def test_remote_pattern_is_matched_with_whole_names(
        self, consumers: ConsumerFactory, admin: Admin, produce: Produce, group: str
    ) -> None:
        stem = f"p-{uuid.uuid4().hex[:8]}"
        admin.create_topics([Topic(f"{stem}-{name}", 1) for name in ("a", "b", "bb", "c")])
        consumer = consumers(group_id=group)
        consumer.subscribe(SubscriptionPattern(f"{stem}-[ab]"))
        wanted = {TopicPartition(f"{stem}-{name}", 0) for name in ("a", "b")}
        poll_until([consumer], lambda: consumer.assignment() == wanted, seconds=_REGEX_SECONDS)
        assert consumer.subscription() == {f"{stem}-a", f"{stem}-b"}
        produce(f"{stem}-b", b"x")
        assert values(read(consumer, 1)) == [b"x"]
        consumer.subscribe([f"{stem}-c"])
        poll_until([consumer], lambda: consumer.assignment() == {TopicPartition(f"{stem}-c", 0)})
        consumer.subscribe(SubscriptionPattern(f"{stem}-b+"))
        wanted = {TopicPartition(f"{stem}-{name}", 0) for name in ("b", "bb")}
        poll_until([consumer], lambda: consumer.assignment() == wanted, seconds=_REGEX_SECONDS)

    def test_invalid_remote_pattern_raises(self, consumers: ConsumerFactory, group: str) -> None:
        consumer = consumers(group_id=group)
        consumer.subscribe(SubscriptionPattern("(a"))
        with pytest.raises(errors.InvalidRegularExpression, match="RE2"):
            poll_until([consumer], lambda: False)

    def test_removed_member_loses_its_partitions_and_rejoins(
        self, consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce, group: str
    ) -> None:
        topic = new_topic(1)
        produce(topic, b"0", b"1")
        event_log = EventLog()
        consumer = consumers(group_id=group, enable_auto_commit=False)
        consumer.subscribe(topic, listener=event_log)
        read(consumer, 1)
        member_id = consumer.health()["member_id"]
        send_leave_for(member_id, group, consumers.bootstrap_servers)
        with pytest.raises(errors.CommitFailed, match=member_id):
            for _ in range(100):
                consumer.commit()
        again = poll_until([consumer], lambda: "!0" in event_log.lines)
        while values(again)[-2:] != [b"0", b"1"]:  # nothing was committed
            again += read(consumer, 1)
        assert consumer.health()["member_id"] == member_id
        consumer.commit()
        assert consumer.committed()[topic, 0].offset == 2

    def test_overdue_member_leaves_loses_partitions_and_raises(
        self, consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce, group: str
    ) -> None:
        topic = new_topic()
        produce(topic, b"x")
        event_log = EventLog()
        slow = consumers(group_id=group, max_poll_interval_ms=2000)
        slow.subscribe(topic, listener=event_log)
        read_although_late(slow, 1)
        other = consumers(topic, group_id=group)
        poll_until([other], lambda: shares([other]) == [[0]])  # it gets the partition although the first was not closed
        with pytest.raises(errors.CommitFailed, match="poll overdue"):
            slow.commit()
        with pytest.raises(errors.PollIntervalExceeded, match="max_poll_interval_ms=2000"):
            slow.poll(0.1)
        assert event_log.lines[-1] == "!0"
        assert slow.assignment() == set()
        other.close()

        def slow_has_it() -> bool:
            try:
                slow.poll(0.02)
            except errors.PollIntervalExceeded:  # while the other one was closed on a busy machine
                return False
            return shares([slow]) == [[0]]

        poll_until([], slow_has_it)

    def test_second_consumer_of_an_instance_id_is_refused_while_first_lives(
        self, consumers: ConsumerFactory, new_topic: NewTopic, group: str
    ) -> None:
        topic = new_topic()
        first = consumers(topic, group_id=group, group_instance_id="same")
        poll_until([first], lambda: shares([first]) == [[0]])
        second = consumers(topic, group_id=group, group_instance_id="same")
        with pytest.raises(errors.UnreleasedInstanceId, match=r"group\.consumer\.session\.timeout\.ms"):
            poll_until([second], lambda: False)
        first.poll(0.1)
        assert shares([first]) == [[0]]
        first.close()

        def second_has_it() -> bool:
            try:
                second.poll(0.02)
            except errors.UnreleasedInstanceId:  # of an attempt before
                return False
            return shares([second]) == [[0]]

        poll_until([], second_has_it)
