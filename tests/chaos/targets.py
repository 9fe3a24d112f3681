"""The nodes and partitions that faults hit: leaders, coordinators and the controller, chosen by a seed."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from typing import Final

from pyclient import Admin
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.groups.partitioning import partition_for_id
from tests.chaos.copy_faults import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

INTERNAL_TOPICS: Final = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
HEALING_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.05


class Harmless(Exception):
    """A fault did not happen: it found nothing to harm, or came too early or too late."""


class Targets:
    """Chooses targets, by a random number generator. `topic` is the busy one."""

    def __init__(self, cluster: EmbeddedCluster, topic: str, partitions: int, chosen: random.Random) -> None:
        self.cluster, self.topic, self.partitions = cluster, topic, partitions
        self.random = chosen
        self.ids = [node.id for node in cluster.nodes]
        self.groups: Sequence[str] = ()
        self.transactional_ids: Sequence[str] = ()

    def node(self) -> int:
        """Return any node."""
        return self.random.choice(self.ids)

    def majority(self) -> list[int]:
        """Return two of the three nodes."""
        return self.random.sample(self.ids, 2)

    def other_than(self, node_id: int) -> int:
        """Return another node."""
        return self.random.choice([each for each in self.ids if each != node_id])

    def leader(self) -> int:
        """Return the leader of a partition of the busy topic; any node if there is none now."""
        return self._or_any(self.cluster.leader_of(self.topic, self.random.randrange(self.partitions)))

    def next_leader(self) -> tuple[int, int, int]:
        """Return a partition, its leader, and the node that leads when that one fails; if possible no controller.

        Then the link between the two can be slow, and both keep their sessions with the controller.
        """
        controller = self.controller()
        with Admin(self.cluster.bootstrap_servers) as admin:
            partitions = list(admin.describe_topics([self.topic])[self.topic].partitions)
        self.random.shuffle(partitions)
        found = []
        for each in partitions:
            follower = next(node for node in each.replicas if node != each.leader)
            found.append((each.partition, each.leader, follower))
        return min(found, key=lambda chosen: controller in chosen[1:])

    def coordinator(self) -> int:
        """Return the coordinator of one of the groups."""
        return self._leader_for(OFFSETS_TOPIC, self.random.choice(self.groups))

    def transaction_coordinator(self) -> int:
        """Return the coordinator of one of the transactional ids."""
        return self._leader_for(TRANSACTIONS_TOPIC, self.random.choice(self.transactional_ids))

    def partition_with_leader(self, topic: str) -> tuple[int, int]:
        """Return a partition of a topic and its leader, once there is one."""
        partition = self.random.randrange(self.count(topic))
        return partition, self.wait_leader(topic, partition)

    def controller(self) -> int:
        """Return the active controller; any node if there is none now."""
        return self._or_any(self.cluster.controller_id)

    def wait_controller(self, other_than: int | None = None) -> int:
        """Wait for an active controller, which is another node, and return it. Raise `TimeoutError`."""
        deadline = time.monotonic() + HEALING_SECONDS
        while (found := self.cluster.controller_id) is None or found == other_than:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the active controller is {found} after {HEALING_SECONDS:g} s")
            time.sleep(_LOOK_SECONDS)  # between two looks
        return found

    def wait_leader(self, topic: str, partition: int, other_than: int | None = None) -> int:
        """Wait until another node leads a partition, and return it. Raise `TimeoutError`."""
        deadline = time.monotonic() + HEALING_SECONDS
        while (found := self.cluster.leader_of(topic, partition)) is None or found == other_than:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic}-{partition} is led by {found} after {HEALING_SECONDS:g} s")
            time.sleep(_LOOK_SECONDS)  # between two looks
        return found

    def wait_in_sync(self, topics: Iterable[str] = ()) -> None:
        """Wait until all replicas of some topics are in sync, by default those of the busy one."""
        deadline = time.monotonic() + HEALING_SECONDS
        for topic in topics or [self.topic]:
            for partition in range(self.count(topic)):
                self.cluster.wait_isr(topic, partition, len(self.ids), timeout=max(0.0, deadline - time.monotonic()))

    def count(self, topic: str) -> int:
        """Return the number of partitions of a topic."""
        if topic == self.topic:
            return self.partitions
        with Admin(self.cluster.bootstrap_servers) as admin:
            return len(admin.describe_topics([topic])[topic].partitions)

    def _leader_for(self, topic: str, key: str) -> int:
        """Return the leader of the partition of an internal topic that has a key; any node if there is none now."""
        return self._or_any(self.cluster.leader_of(topic, partition_for_id(key, self.count(topic))))

    def _or_any(self, node_id: int | None) -> int:
        return self.node() if node_id is None else node_id
