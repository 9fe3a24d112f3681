"""librdkafka's consumers of the new group protocol (KIP-848), alone and with classic ones, on our broker."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from pyclient.broker_embedded import EmbeddedCluster

PARTITIONS = 6
PATIENCE = 60.0


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """Our broker."""
    with EmbeddedCluster() as cluster:
        yield cluster.bootstrap_servers


class Members:
    """Consumers of one group, polled in turn by one thread."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.topic, self.group = f"t{uuid.uuid4().hex}", f"g{uuid.uuid4().hex}"
        self.read: Counter[str] = Counter()
        self._all: list[Any] = []
        admin = AdminClient({"bootstrap.servers": servers})
        for created in admin.create_topics([NewTopic(self.topic, PARTITIONS, 1)]).values():
            created.result()

    def join(self, *, topics: list[str] | None = None, **config: str) -> Any:
        settings = {
            "bootstrap.servers": self.servers,
            "group.id": self.group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            **{name.replace("_", "."): value for name, value in config.items()},
        }
        consumer = Consumer(settings)
        consumer.subscribe(topics or [self.topic])
        self._all.append(consumer)
        return consumer

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, [len(consumer.assignment()) for consumer in self._all]
            for consumer in self._all:
                message = consumer.poll(0.02)
                if message is not None:
                    assert message.error() is None, message.error()
                    self.read[message.value().decode()] += 1

    def leave(self, consumer: Any) -> None:
        self._all.remove(consumer)
        consumer.close()

    def close(self) -> None:
        for consumer in self._all:
            consumer.close()

    def shares(self) -> list[int]:
        return [len(consumer.assignment()) for consumer in self._all]


@pytest.fixture
def members(servers: str) -> Iterator[Members]:
    """A topic with six partitions and an empty group."""
    made = Members(servers)
    yield made
    made.close()


def produce(servers: str, topic: str, values: range) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for value in values:
        producer.produce(topic, str(value).encode(), partition=value % PARTITIONS)
    assert producer.flush(PATIENCE) == 0


def test_members_come_and_go_and_each_record_is_read_once(members: Members, servers: str) -> None:
    produce(servers, members.topic, range(600))
    first = members.join()
    members.until(lambda: len(members.read) == 600)
    members.join()
    members.join(group_remote_assignor="uniform")
    members.until(lambda: sorted(members.shares()) == [2, 2, 2])
    produce(servers, members.topic, range(600, 1200))
    members.until(lambda: len(members.read) == 1200)
    first.commit(asynchronous=False)
    members.leave(first)
    members.until(lambda: sorted(members.shares()) == [3, 3])
    produce(servers, members.topic, range(1200, 1800))
    members.until(lambda: len(members.read) == 1800)
    assert set(members.read.values()) == {1}


def test_returning_static_member_keeps_its_assignment(members: Members) -> None:
    one = members.join(group_instance_id="one")
    two = members.join(group_instance_id="two")
    members.until(lambda: members.shares() == [3, 3])
    had = {partition.partition for partition in one.assignment()}
    members.leave(one)
    again = members.join(group_instance_id="one")
    members.until(lambda: len(again.assignment()) == 3)
    assert {partition.partition for partition in again.assignment()} == had
    assert len(two.assignment()) == 3


def test_topics_matching_pattern_are_found_when_created(members: Members, servers: str) -> None:
    consumer = members.join(topics=[f"^{members.topic}(-more)?"])
    members.until(lambda: len(consumer.assignment()) == PARTITIONS)
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(f"{members.topic}-more", 2, 1)])[f"{members.topic}-more"].result()
    members.until(lambda: len(consumer.assignment()) == PARTITIONS + 2)


def test_group_migrates_to_the_new_protocol_and_back_member_by_member(members: Members, servers: str) -> None:
    classic = {"group_protocol": "classic", "partition_assignment_strategy": "range", "heartbeat_interval_ms": "200"}
    old = [members.join(**classic), members.join(**classic)]
    members.until(lambda: sorted(members.shares()) == [3, 3])
    new = [members.join()]
    members.until(lambda: sorted(members.shares()) == [2, 2, 2])
    members.leave(old.pop())
    members.until(lambda: sorted(members.shares()) == [3, 3])
    members.leave(old.pop())
    members.until(lambda: members.shares() == [PARTITIONS])
    members.join(**classic)
    members.until(lambda: sorted(members.shares()) == [3, 3])
    members.leave(new.pop())
    members.until(lambda: members.shares() == [PARTITIONS])
    produce(servers, members.topic, range(60))
    members.until(lambda: len(members.read) == 60)
    admin = AdminClient({"bootstrap.servers": servers})
    groups = {group.group_id: group.type.name for group in admin.list_consumer_groups().result().valid}
    assert groups[members.group] == "CLASSIC"
