"""How a group in the consumer protocol (KIP-848) behaves, over both faces, whatever broker serves it.

A module that has the fixtures `consumers` (with that protocol), `new_topic`, `produce`, `admin`, `producer` and
`cluster` runs them by a subclass named Test...; the broker should want heartbeats every 100 ms or so.
"""

from __future__ import annotations

import asyncio
import re
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
from tests.consumer.consumer_faces import PATIENCE, EventLog, Faces, partitions, poll_until, read, shares, values

NewTopic = Callable[..., str]
Produce = Callable[..., None]

_REGEX_SECONDS = 60  # Kafka matches a pattern anew every 10 s at the earliest, topics just made wait for that


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


def say_goodbye_for(member_id: str, group: str, servers: str) -> None:
    """Tells the coordinator that the member leaves, behind its back."""

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


class ConsumerProtocol:
    """The tests."""

    def test_a_member_alone_reads_everything(
        self, consumers: Faces, new_topic: NewTopic, produce: Produce, group: str
    ) -> None:
        topic = new_topic(3)
        for partition in range(3):
            produce(topic, b"%d" % partition, partition=partition)
        consumer = consumers(topic, group_id=group)
        assert sorted(values(read(consumer, 3))) == [b"0", b"1", b"2"]
        assert consumer.assignment() == set(partitions(topic, 0, 1, 2))
        assert consumer.subscription() == {topic}
        poll_until([consumer], lambda: consumer.health()["group_state"] == "stable")
        assert consumer.health()["generation"] > 0

    def test_a_new_member_takes_only_its_share_and_the_last_one_gets_all_back(
        self, consumers: Faces, new_topic: NewTopic, group: str
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

    def test_no_record_is_read_twice_while_members_come_and_go(
        self, consumers: Faces, new_topic: NewTopic, producer: Producer, group: str
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

    def test_what_is_committed_when_a_partition_is_revoked_is_where_its_next_owner_begins(
        self, consumers: Faces, new_topic: NewTopic, produce: Produce, group: str
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
        self, consumers: Faces, new_topic: NewTopic, produce: Produce, group: str
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

    def test_the_broker_assigns_as_it_is_told(self, consumers: Faces, new_topic: NewTopic, group: str) -> None:
        topics = [new_topic(2), new_topic(2)]
        members = [consumers(*topics, group_id=group, group_remote_assignor="range") for _ in range(2)]
        poll_until(members, lambda: sorted(shares(members)) == [[0, 0], [1, 1]])  # range: both topics side by side

    def test_an_assignor_that_the_broker_does_not_have_is_an_error(
        self, consumers: Faces, new_topic: NewTopic, group: str
    ) -> None:
        consumer = consumers(new_topic(), group_id=group, group_remote_assignor="best-of-all")
        with pytest.raises(errors.UnsupportedAssignor, match=r"group\.consumer\.assignors"):
            poll_until([consumer], lambda: False)

    def test_a_pattern_is_matched_by_the_broker_with_whole_names(
        self, consumers: Faces, admin: Admin, produce: Produce, group: str
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

    def test_a_pattern_that_makes_no_sense_is_an_error(self, consumers: Faces, group: str) -> None:
        consumer = consumers(group_id=group)
        consumer.subscribe(SubscriptionPattern("(a"))
        with pytest.raises(errors.InvalidRegularExpression, match="RE2"):
            poll_until([consumer], lambda: False)

    def test_a_compiled_pattern_is_matched_here(self, consumers: Faces, admin: Admin, group: str) -> None:
        stem = f"p-{uuid.uuid4().hex[:8]}"
        admin.create_topics([Topic(f"{stem}-a", 1), Topic(f"{stem}-ignored", 1)])
        consumer = consumers(group_id=group, metadata_max_age_ms=50)
        consumer.subscribe(re.compile(f"{stem}-(?!ignored).*"))
        poll_until([consumer], lambda: consumer.assignment() == {TopicPartition(f"{stem}-a", 0)})
        admin.create_topics([Topic(f"{stem}-z", 1)])
        poll_until([consumer], lambda: len(consumer.assignment()) == 2)

    def test_partitions_that_appear_are_shared_out(
        self, consumers: Faces, new_topic: NewTopic, admin: Admin, group: str
    ) -> None:
        topic = new_topic(1)
        consumer = consumers(topic, group_id=group, metadata_max_age_ms=50)
        poll_until([consumer], lambda: shares([consumer]) == [[0]])
        admin.create_partitions({topic: 3})
        poll_until([consumer], lambda: shares([consumer]) == [[0, 1, 2]])

    def test_subscribing_to_something_else_gives_the_old_up(
        self, consumers: Faces, new_topic: NewTopic, produce: Produce, group: str
    ) -> None:
        old, new = new_topic(), new_topic()
        produce(new, b"new")
        produce(old, b"old", b"never read")
        consumer = consumers(old, group_id=group)
        assert len(consumer.poll(30, max_records=1)) == 1
        consumer.subscribe(new)
        assert values(read(consumer, 1)) == [b"new"]
        assert consumer.assignment() == set(partitions(new, 0))

    def test_unsubscribing_leaves_the_group_and_another_subscription_joins_again(
        self, consumers: Faces, new_topic: NewTopic, group: str
    ) -> None:
        topic = new_topic(2)
        event_log = EventLog()
        first, second = consumers(group_id=group), consumers(topic, group_id=group)
        first.subscribe(topic, listener=event_log)
        poll_until([first, second], lambda: sorted(map(len, shares([first, second]))) == [1, 1])
        first.unsubscribe()
        assert event_log.lines[-1].startswith("-")
        poll_until([second], lambda: shares([second]) == [[0, 1]])
        first.subscribe(topic)
        poll_until([first, second], lambda: sorted(map(len, shares([first, second]))) == [1, 1])

    def test_a_member_that_the_coordinator_gave_up_loses_its_partitions_and_joins_again(
        self, consumers: Faces, new_topic: NewTopic, produce: Produce, group: str
    ) -> None:
        topic = new_topic(1)
        produce(topic, b"0", b"1")
        event_log = EventLog()
        consumer = consumers(group_id=group, enable_auto_commit=False)
        consumer.subscribe(topic, listener=event_log)
        read(consumer, 1)
        member_id = consumer.health()["member_id"]
        say_goodbye_for(member_id, group, consumers.bootstrap_servers)
        with pytest.raises(errors.CommitFailed, match=member_id):
            for _ in range(100):
                consumer.commit()
        again = poll_until([consumer], lambda: "!0" in event_log.lines)
        while values(again)[-2:] != [b"0", b"1"]:  # nothing was committed
            again += read(consumer, 1)
        assert consumer.health()["member_id"] == member_id
        consumer.commit()
        assert consumer.committed()[topic, 0].offset == 2

    def test_a_member_that_polls_too_late_leaves_loses_its_partitions_and_says_so(
        self, consumers: Faces, new_topic: NewTopic, produce: Produce, group: str
    ) -> None:
        topic = new_topic()
        produce(topic, b"x")
        event_log = EventLog()
        slow = consumers(group_id=group, max_poll_interval_ms=2000)
        slow.subscribe(topic, listener=event_log)
        read(slow, 1)
        other = consumers(topic, group_id=group)
        poll_until([other], lambda: shares([other]) == [[0]])  # it gets the partition although nobody closed the first
        with pytest.raises(errors.CommitFailed, match="poll overdue"):
            slow.commit()
        with pytest.raises(errors.PollIntervalExceeded, match="max_poll_interval_ms=2000"):
            slow.poll(0.1)
        assert event_log.lines[-1] == "!0"
        assert slow.assignment() == set()
        other.close()
        poll_until([slow], lambda: shares([slow]) == [[0]])

    def test_a_static_member_comes_back_to_its_partitions_and_the_others_keep_theirs(
        self, consumers: Faces, new_topic: NewTopic, group: str
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

    def test_a_second_consumer_of_one_instance_id_is_refused_until_the_first_has_gone(
        self, consumers: Faces, new_topic: NewTopic, group: str
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
