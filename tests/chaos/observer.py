"""The observer of a wide chaos run: the committed offsets of groups, and the ends of partitions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from pyclient import Admin, Consumer, TopicPartition
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.cluster.broker import Broker
from pyclient.broker_embedded.cluster.kafka_call import call
from pyclient.broker_embedded.groups.partitioning import partition_for_id
from pyclient.errors import KafkaError
from pyclient.protocol.kinds import ZERO_UUID
from pyclient.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)
from tests.chaos.history import Committed, Ends, Place
from tests.chaos.workload import Notes, Worker

_OFFSETS: Final = "__consumer_offsets"
_LOOK_SECONDS: Final = 0.3
_CALL_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 2.0


class Observer(Worker):
    """Notes the committed offsets of groups and the ends of partitions, several times a second.

    It asks each node that leads a group's partition by its own metadata, also one that was replaced.
    """

    def __init__(
        self, notes: Notes, cluster: EmbeddedCluster, topic: str, partitions: int, groups: Iterable[str]
    ) -> None:
        super().__init__("observer", notes)
        self.cluster, self.groups = cluster, list(groups)
        self.topic, self.partitions = topic, partitions
        self._topic_id = ZERO_UUID
        self._places = [TopicPartition(topic, index) for index in range(partitions)]

    def work(self) -> None:
        with Admin(self.cluster.bootstrap_servers) as admin:
            self._topic_id = admin.describe_topics([self.topic])[self.topic].topic_id
        with self._reader("read_committed") as reader, self._reader("read_uncommitted") as other:
            while not self.stopping.wait(_LOOK_SECONDS):
                for node in self.cluster.brokers:
                    with suppress(KafkaError):  # it was killed or frozen meanwhile
                        self._note_groups(node)
                with suppress(KafkaError):  # a leader is away
                    self._note_ends(reader, other)

    def _note_groups(self, node: Broker) -> None:
        """Ask a node for the offsets of the groups that it coordinates, and note those of the same leader epoch."""
        epochs = self._epochs(node)
        groups = [group for group in self.groups if group in epochs]
        if not groups:
            return
        began = time.monotonic()
        answered = call(node.config, self._request(groups), _ANSWER_SECONDS).groups
        at = time.monotonic()
        after = self._epochs(node)
        for each in answered:
            if not each.error_code and epochs[each.group_id] == after.get(each.group_id):
                self._note(each, node.id, epochs[each.group_id], began, at)

    def _epochs(self, node: Broker) -> Mapping[str, int]:
        """Return the groups that a node coordinates by its own metadata, with the epochs in which it does."""
        if not node.reachable:
            return {}
        partitions = node.call("GET", f"/topics/{_OFFSETS}")["partitions"]
        epochs = {each["partition"]: each["leader_epoch"] for each in partitions if each["leader"] == node.id}
        found = {group: epochs.get(partition_for_id(group, len(partitions))) for group in self.groups}
        return {group: epoch for group, epoch in found.items() if epoch is not None}

    def _request(self, groups: Iterable[str]) -> OffsetFetchRequest:
        """Return a request for stable offsets: a committed transaction may not have its markers yet."""
        topics = [OffsetFetchRequestTopics(topic_id=self._topic_id, partition_indexes=[*range(self.partitions)])]
        return OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=topics) for group in groups], require_stable=True
        )

    def _note(self, group: OffsetFetchResponseGroup, node: int, epoch: int, began: float, at: float) -> None:
        for topic in group.topics:
            for each in topic.partitions:
                if not each.error_code:
                    place = Place(self.topic, each.partition_index)
                    self.notes.add(Committed(group.group_id, place, each.committed_offset, began, at, node, epoch))

    def _note_ends(self, reader: Consumer[Any, Any], other: Consumer[Any, Any]) -> bool:
        """Note the ends. Return True if no transaction is open."""
        stable = reader.end_offsets(self._places, timeout=_CALL_SECONDS)
        ends = other.end_offsets(self._places, timeout=_CALL_SECONDS)
        at = time.monotonic()
        self.notes.add(*(Ends(Place(*each), stable[each], ends[each], at) for each in self._places))
        return stable == ends

    def _reader(self, isolation: Any) -> Consumer[Any, Any]:
        servers = self.cluster.bootstrap_servers
        return Consumer(bootstrap_servers=servers, isolation_level=isolation, request_timeout_ms=2_000)

    def settle(self, seconds: float) -> None:
        """Note the ends until no transaction is open, in the caller's thread, after all producers have ended."""
        deadline = time.monotonic() + seconds
        with self._reader("read_committed") as reader, self._reader("read_uncommitted") as other:
            while not self._note_ends(reader, other) and time.monotonic() < deadline:
                time.sleep(_LOOK_SECONDS)  # between two looks
