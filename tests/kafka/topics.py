"""Topics of a real Kafka that all its nodes serve when a test gets them, and waiting for what the nodes say of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from pyclient import errors
from pyclient.admin import Admin, NewTopic
from pyclient.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker_embedded.groups.raw import RawConnection

if TYPE_CHECKING:
    from collections.abc import Callable

LATEST: Final = -1
PATIENCE: Final = 90.0
"""Seconds that a test waits for what takes a Kafka one or two when the machine has nothing else to do."""


def wait_until(reached: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    """Check again and again until it is so; raise AssertionError with `what` after so many seconds."""
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)  # between two looks


def create(servers: str, *topics: NewTopic) -> None:
    """Create topics that every node of `servers` knows and whose leaders lead when it returns.

    Kafka answers CreateTopics once its controller has decided, and its nodes hear of that one after the other: one of
    them that is asked at once may answer that there is no such topic, or that the leader does not lead. A client asks
    again; a test that asks once, or has a short time limit, fails on a busy machine.
    """
    with Admin(servers) as admin:
        admin.create_topics(list(topics))
    names = [topic.name for topic in topics]
    for address in servers.split(","):
        with RawConnection(address) as node:
            wait_until(
                lambda node=node, address=address: _serves(node, address, names),  # type: ignore[misc]
                f"{address} does not serve {names}",
            )


def delete(servers: str, name: str) -> None:
    """Delete a topic; when it returns no node of `servers` knows it any more."""
    with Admin(servers) as admin:
        admin.delete_topics([name])
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    for address in servers.split(","):
        with RawConnection(address) as node:
            wait_until(
                lambda node=node: node.ask(asked, 4).topics[0].error_code == errors.UnknownTopicOrPartition.code,  # type: ignore[misc]
                f"{address} still knows {name}",
            )


def _serves(node: RawConnection, address: str, names: list[str]) -> bool:
    """Return True if the node knows a leader of every partition, and serves those that it leads itself."""
    asked = [MetadataRequestTopic(name=name) for name in names]
    answer = node.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False), 4)
    own_ids = [broker.node_id for broker in answer.brokers if f"{broker.host}:{broker.port}" == address]
    mine = []
    for topic in answer.topics:
        if topic.error_code or any(partition.error_code for partition in topic.partitions):
            return False
        led = [part.partition_index for part in topic.partitions if part.leader_id in own_ids]
        ends = [ListOffsetsPartition(partition_index=number, timestamp=LATEST) for number in led]
        mine.append(ListOffsetsTopic(name=topic.name, partitions=ends))
    answer = node.ask(ListOffsetsRequest(replica_id=-1, topics=mine), 5)
    return not any(partition.error_code for topic in answer.topics for partition in topic.partitions)


def leaders_of(servers: str, topic: str) -> list[int]:
    """The leader of each partition, -1 where there is none; asks until the node that answers knows the topic."""
    found: list[int] = []

    def known() -> bool:
        try:
            with Admin(servers) as admin:
                partitions = admin.describe_topics([topic])[topic].partitions
        except errors.UnknownTopicOrPartition:
            return False
        found[:] = [partition.leader for partition in partitions]
        return True

    wait_until(known, f"no node knows {topic}")
    return found
