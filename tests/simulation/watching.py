"""Looks at the nodes of a simulated cluster while it runs and when it has healed, and notes what must hold of them."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final

from pyclient.records.batch import iter_batches
from tests.chaos.history import Batch, History, Place, ReplicaState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyclient.broker_embedded.broker import BrokerNode
    from pyclient.broker_embedded.replication.hosted_partitions import HostedPartition
    from tests.simulation.cluster import Cluster, Node

_EVERY: Final = 0.1


class Watcher:
    """Notes the states of all replicas ten times a second of virtual time, and violations that it sees at once."""

    def __init__(self, cluster: Cluster, history: History) -> None:
        self.violations: list[str] = []
        self._cluster = cluster
        self._history = history
        self._leaders: dict[tuple[str, int], int] = {}
        self._controllers: dict[int, int] = {}
        self._watermarks: dict[tuple[int, int], int] = {}
        self._states: dict[tuple[str, int], str] = {}

    def start(self) -> None:
        """Look from now on."""
        self.look()
        self._cluster.world.after(_EVERY, self.start)

    def look(self) -> None:
        """Note the states of all replicas."""
        self._changes()
        for node, broker in self._cluster.running():
            self._quorum(node, broker)
            for hosted in broker.replicas or ():
                if hosted.log is not None:
                    self._replica(node, hosted)

    def _changes(self) -> None:
        """Note changed leaders and in-sync replicas in the trace."""
        image = self._cluster.image()
        for topic in () if image is None else image.topics.values():
            for index, state in topic.partitions.items():
                text = f"leader {state.leader} epoch {state.leader_epoch} isr {state.isr} elr {list(state.elr)}"
                if self._states.get((topic.name, index)) != text:
                    self._states[topic.name, index] = text
                    self._cluster.world.note(f"{topic.name}-{index}: {text}")

    def _violated(self, text: str) -> None:
        if text not in self.violations:
            self._cluster.world.note(f"VIOLATED {text}")
            self.violations.append(text)

    def _quorum(self, node: Node, broker: BrokerNode) -> None:
        quorum = broker.quorum
        if quorum is None:
            return
        if quorum.is_active:
            leader = self._controllers.setdefault(quorum.epoch, node.node_id)
            if leader != node.node_id:
                self._violated(f"controller: epoch {quorum.epoch} has the leaders {leader} and {node.node_id}")
        key, applied = (node.node_id, node.life), quorum.applied
        if applied < self._watermarks.get(key, 0):
            self._violated(f"controller: node {node.node_id} applied {self._watermarks[key]}, then {applied}")
        self._watermarks[key] = applied

    def _replica(self, node: Node, hosted: HostedPartition) -> None:
        partition, log = hosted.partition, hosted.log
        assert log is not None
        if partition.leads:
            leader = self._leaders.setdefault((str(hosted.topic_partition), partition.leader_epoch), node.node_id)
            if leader != node.node_id:
                self._violated(
                    f"{hosted.topic_partition}: epoch {partition.leader_epoch} is led by {leader} and {node.node_id}"
                )
        self._history.add(
            ReplicaState(
                node=node.node_id,
                life=node.life,
                place=Place(*hosted.topic_partition),
                at=self._cluster.world.now,
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                isr=tuple(sorted(partition.isr)) if partition.leads else (partition.leader,),
                replicas=partition.replicas,
                high_watermark=log.high_watermark,
                end_offset=log.end_offset,
                stable_offset=log.last_stable_offset,
                partition_epoch=partition.partition_epoch,
            )
        )

    # At the end

    def unhealed(self) -> str | None:
        """Return what is not yet as it must be after the healing; None if all is well."""
        cluster = self._cluster
        brokers = {node.node_id: broker for node, broker in cluster.running()}
        if len(brokers) < len(cluster.nodes):
            return "not all nodes run"
        if cluster.controller is None:
            return "there is no active controller"
        offsets = {broker.metadata_offset for broker in brokers.values()}
        if len(offsets) > 1:
            return f"the nodes' metadata end at {sorted(offsets)}"
        image = cluster.image()
        if any(broker.fenced for broker in image.brokers.values()) or len(image.brokers) < len(brokers):
            return "a broker is fenced"
        for topic in image.topics.values():
            for state in topic.partitions.values():
                if (text := _unhealed_partition(topic.name, state, brokers)) is not None:
                    return text
        return None

    def at_end(self) -> None:
        """Compare the metadata and the logs of all nodes of a healed cluster."""
        self.look()
        images = {node.node_id: _described(broker) for node, broker in self._cluster.running()}
        first = next(iter(images.values()))
        for node_id, image in images.items():
            for name, value in image.items():
                if value != first.get(name):
                    self._violated(f"metadata: {name} differs at node {node_id}: {value} and {first.get(name)}")
        for node, broker in self._cluster.running():
            for hosted in broker.replicas or ():
                self._history.add(*_batches(node.node_id, hosted))


def _unhealed_partition(topic: str, state: Any, brokers: dict[int, BrokerNode]) -> str | None:
    at = f"{topic}-{state.partition}"
    if sorted(state.isr) != sorted(state.replicas):
        return f"{at}: the ISR is {state.isr}, leader {state.leader}"
    ends = set()
    for node_id in state.replicas:
        replicas = brokers[node_id].replicas
        hosted = None if replicas is None else replicas.find(topic, state.partition)
        if hosted is None or hosted.log is None:
            return f"{at}: node {node_id} has no log"
        ends.add((hosted.log.end_offset, hosted.log.high_watermark))
        if hosted.log.last_stable_offset < hosted.log.high_watermark:
            return f"{at}: the last stable offset of node {node_id} stays at {hosted.log.last_stable_offset}"
    if len(ends) > 1 or any(end != watermark for end, watermark in ends):
        return f"{at}: end offsets and high watermarks are {sorted(ends)}"
    return None


def _described(broker: BrokerNode) -> dict[str, object]:
    image = broker.image
    described: dict[str, object] = {
        f"{topic.name}-{index}": state for topic in image.topics.values() for index, state in topic.partitions.items()
    }
    described |= {f"broker {number}": each for number, each in image.brokers.items()}
    described |= {f"configs of {resource}": dict(each) for resource, each in image.configs.items()}
    return described


def _batches(node_id: int, hosted: HostedPartition) -> Iterator[Batch]:
    log = hosted.log
    if log is None:
        return
    for segment in log.segments:
        content = segment.records.file.pread(segment.size, 0) if segment.size else b""  # no file before the first write
        for position, header in iter_batches(content):
            whole = content[position : position + header.size]
            below = header.next_offset <= log.high_watermark
            yield Batch(
                node_id,
                Place(*hosted.topic_partition),
                header.base_offset,
                header.next_offset - 1,
                zlib.crc32(whole),
                below,
                header.leader_epoch,
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
            )
