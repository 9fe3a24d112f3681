"""Changes of the metadata whose controller is killed in the middle: they must be complete after that.

Each change is requested from the active controller, which is killed before it has answered, or while it has to wait for
a replica. The next controller completes the change, or it was not made, and is requested again when all nodes run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from pyclient import NewTopic
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.cluster.kafka_call import call, check_code
from pyclient.errors import ElectionNotNeeded, KafkaError, TopicAlreadyExists
from pyclient.protocol.fields import Request
from pyclient.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pyclient.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pyclient.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from pyclient.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from tests.chaos.probe import Probe
from tests.chaos.targets import Harmless, Targets

PARTITIONS: Final = 3
_COMMIT_MS: Final = 300  # one way: a change needs twice as long to be committed by a majority of the controllers
_LATEST_KILL: Final = 0.45  # seconds after the controller has begun with the change
_CALL_SECONDS: Final = 10.0


class MetadataChanges:
    """Changes the metadata while the active controller is killed."""

    def __init__(self, cluster: EmbeddedCluster, targets: Targets, probe: Probe) -> None:
        self.cluster, self.targets, self.probe = cluster, targets, probe
        self.random = targets.random
        self._made = 0

    # Creation of a topic

    def create_topic(self, _seconds: float) -> None:
        """Kill the controller before it has answered the creation of a topic, which is complete and writable then."""
        name = self._next_name("made")
        wanted = CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=3, assignments=[], configs=[])
        self._killed_in_the_middle("CreateTopics", CreateTopicsRequest(topics=[wanted], timeout_ms=10_000))
        self._heal()
        topic = NewTopic(name, PARTITIONS, 3)
        try:
            self.probe.create(topic)
        except TopicAlreadyExists:  # the next controller has completed it
            self.probe.note_created(topic)
        self.targets.wait_in_sync([name])
        if (count := self.targets.count(name)) != PARTITIONS:
            raise AssertionError(f"{name} has {count} partitions of {PARTITIONS}")
        self._check_writable(name)

    # Reassignment of a partition

    def reassign(self, _seconds: float) -> None:
        """Kill the controller while a partition moves to a node that replicates nothing. It is there after that."""
        name, (a, b, new) = self._next_name("moved"), self.random.sample(self.targets.ids, 3)
        if new == self.targets.controller():
            a, new = new, a
        self.probe.create(NewTopic(name, assignments={0: [a, b]}))
        self.probe.wait(name, lambda seen: sorted(seen["isr"]) == sorted([a, b]))
        sent = self.probe.send(name, [0])
        self.cluster.node(new).call("POST", "/replication/freeze")
        controller = self._reassign(name, 0, [b, new])
        if not self._is_moving(controller, name):
            raise Harmless(f"{name}-0 has moved to {[b, new]} before the controller was killed")
        self.cluster.kill(controller)
        successor = self.targets.wait_controller(other_than=controller)
        if new != controller and not self._is_moving(successor, name):
            raise AssertionError(f"controller {successor} does not know of the reassignment of {name}-0")
        self._heal()
        self.probe.wait(
            name, lambda seen: list(seen["replicas"]) == [b, new] and sorted(seen["isr"]) == sorted([b, new])
        )
        if self._is_moving(self.targets.wait_controller(), name):
            raise AssertionError(f"the reassignment of {name}-0 to {[b, new]} does not end")
        self.probe.check_has(name, sent)
        self._check_writable(name)

    def _reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> int:
        """Request other replicas from the active controller. Return its id."""
        controller = self.targets.wait_controller()
        wanted = ReassignablePartition(partition_index=partition, replicas=[*replicas])
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=10_000, topics=[ReassignableTopic(name=topic, partitions=[wanted])]
        )
        answer = call(self.cluster.node(controller).config, request, _CALL_SECONDS)
        check_code(answer.error_code, answer.error_message, "a reassignment")
        for each in answer.responses[0].partitions:
            check_code(each.error_code, each.error_message, f"a reassignment of {topic}-{partition}")
        return controller

    def _is_moving(self, node_id: int, topic: str) -> bool:
        answer = call(self.cluster.node(node_id).config, ListPartitionReassignmentsRequest(), _CALL_SECONDS)
        check_code(answer.error_code, answer.error_message, "the reassignments in progress")
        return topic in {each.name for each in answer.topics}

    # Election of a preferred leader

    def elect(self, _seconds: float) -> None:
        """Kill the controller before it has answered the election of a preferred leader, which leads after that."""
        topic, partition = self.targets.topic, self.random.randrange(self.targets.partitions)
        self.targets.wait_in_sync()
        preferred = self.targets.other_than(self.targets.wait_leader(topic, partition))
        replicas = [preferred, *(each for each in self.targets.ids if each != preferred)]
        self._reassign(topic, partition, replicas)
        self.probe.wait(topic, lambda seen: list(seen["replicas"]) == replicas, partition)
        request = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic=topic, partitions=[partition])])
        self._killed_in_the_middle("ElectLeaders", request)
        self._heal()
        self.targets.wait_in_sync()
        self.probe.until(
            lambda: self._elected(request, topic, partition, preferred), f"{preferred} leads {topic}-{partition}"
        )

    def _elected(self, request: ElectLeadersRequest, topic: str, partition: int, preferred: int) -> bool:
        answer = call(self.cluster.node(self.targets.wait_controller()).config, request, _CALL_SECONDS)
        check_code(answer.error_code, None, "an election")
        for each in answer.replica_election_results:
            for result in each.partition_result:
                with suppress(ElectionNotNeeded):  # it leads already
                    check_code(result.error_code, result.error_message, f"the election for {topic}-{partition}")
        return self.cluster.leader_of(topic, partition) == preferred

    # The parts of a change

    def _killed_in_the_middle(self, api: str, request: Request[Any]) -> None:
        """Request a change from the active controller, and kill it before a majority can have the change.

        Raise `Harmless` if it has answered before.
        """
        controller = self.targets.wait_controller()
        for other in self.targets.ids:
            if other != controller:
                self.cluster.slow(controller, other, latency_ms=_COMMIT_MS)
        config, answers = self.cluster.node(controller).config, list[object]()

        def ask() -> None:
            with suppress(KafkaError):  # the controller is killed
                answers.append(call(config, request, _CALL_SECONDS))

        asking = threading.Thread(target=ask, name=f"chaos-{api}", daemon=True)
        with self.cluster.faults.hold(api, node=controller) as held:
            asking.start()
            held.wait(1, _CALL_SECONDS)
            held.release()
            time.sleep(self.random.random() * _LATEST_KILL)  # the change is on its way to the other controllers
            self.cluster.kill(controller)
        asking.join(_CALL_SECONDS + 5)
        if answers:
            raise Harmless(f"controller {controller} has answered {api} before it was killed: {answers}")
        self.targets.wait_controller(other_than=controller)

    def _heal(self) -> None:
        self.cluster.heal()
        self.cluster.start()

    def _next_name(self, kind: str) -> str:
        self._made += 1
        return f"{kind}-{self._made}"

    def _check_writable(self, topic: str) -> None:
        self.probe.check_has(topic, self.probe.send(topic, range(self.targets.count(topic))))
