"""Forged and stale requests of brokers at the controllers: one clear error each, and nothing changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from pyclient import errors
from pyclient.broker_embedded.broker import BrokerNode
from pyclient.broker_embedded.controller.topics import TopicPlan
from pyclient.broker_embedded.log.incremental_task import run_here
from pyclient.broker_embedded.network.node_channels import NodeChannels
from pyclient.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from pyclient.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from pyclient.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from pyclient.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from pyclient.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from pyclient.protocol.messages.controller_registration import ControllerRegistrationRequest
from pyclient.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.broker_embedded.quorum.several_nodes import STEADY, Nodes

STRANGER = 9
NO_TOPIC = UUID(int=999)


class Forger:
    """Requests in the name of brokers, with the metadata of the active controller where they are not forged."""

    def __init__(self, cluster_id: str, active: BrokerNode) -> None:
        self._cluster_id = cluster_id
        self._image = active.image

    def epoch(self, broker: int) -> int:
        """Return the epoch of a broker."""
        return self._image.brokers[broker].epoch

    def registration(self, broker: int = STRANGER, **fields: Any) -> BrokerRegistrationRequest:
        """Return a registration by a new process."""
        features = self._image.brokers[1].features
        values: dict[str, Any] = {
            "cluster_id": self._cluster_id,
            "incarnation_id": UUID(int=77),
            "listeners": [Listener(name="PLAINTEXT", host="127.0.0.1", port=1, security_protocol=0)],
            "features": [
                Feature(name=name, min_supported_version=first, max_supported_version=last)
                for name, first, last in features
            ],
            "rack": None,
            "log_dirs": [UUID(int=7000)],
        }
        return BrokerRegistrationRequest(broker_id=broker, **(values | fields))

    def heartbeat(self, broker: int, epoch: int) -> BrokerHeartbeatRequest:
        """Return a heartbeat that wants to be fenced."""
        return BrokerHeartbeatRequest(
            broker_id=broker, broker_epoch=epoch, current_metadata_offset=0, want_fence=True, want_shut_down=True
        )

    def isr(self, sender: int, epoch: int, topic_id: UUID | None = None, **fields: Any) -> AlterPartitionRequest:
        """Return a proposal that leaves the sender alone in sync."""
        topic = self._image.topics["t"]
        partition = topic.partitions[0]
        values: dict[str, Any] = {
            "partition_index": 0,
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
            "new_isr_with_epochs": [BrokerState(broker_id=sender, broker_epoch=-1)],
        }
        data = AlterPartitionRequestPartitionData(**(values | fields))
        topics = [AlterPartitionRequestTopicData(topic_id=topic_id or topic.topic_id, partitions=[data])]
        return AlterPartitionRequest(broker_id=sender, broker_epoch=epoch, topics=topics)

    @property
    def leader(self) -> int:
        """Return the leader of the partition."""
        return self._image.topics["t"].partitions[0].leader

    def requests(self) -> list[tuple[Any, type[errors.BrokerError]]]:
        """Return forged requests with the errors that they have to get."""
        leader = self.leader
        other = next(broker for broker in (1, 2, 3) if broker != leader)
        epoch, taken = self.epoch(leader), list(self._image.brokers[1].log_dirs)
        return [
            (self.registration(1), errors.DuplicateBrokerRegistration),
            (self.registration(cluster_id="another"), errors.InconsistentClusterId),
            (self.registration(-1), errors.InvalidRegistration),
            (self.registration(listeners=[]), errors.InvalidRegistration),
            (self.registration(log_dirs=taken), errors.InvalidRegistration),
            (self.registration(features=[]), errors.UnsupportedVersion),
            (self.heartbeat(leader, epoch - 1), errors.StaleBrokerEpoch),
            (self.heartbeat(STRANGER, epoch), errors.StaleBrokerEpoch),
            (self.isr(leader, epoch - 1), errors.StaleBrokerEpoch),
            (self.isr(STRANGER, epoch), errors.StaleBrokerEpoch),
            (self.isr(leader, epoch, NO_TOPIC), errors.UnknownTopicId),
            (self.isr(other, self.epoch(other)), errors.InvalidRequest),
            (self.isr(leader, epoch, partition_index=7), errors.UnknownTopicOrPartition),
            (self.isr(leader, epoch, leader_epoch=-1), errors.FencedLeaderEpoch),
            (self.isr(leader, epoch, partition_epoch=-1), errors.InvalidUpdateVersion),
            (self.isr(leader, epoch, new_isr_with_epochs=_members(leader, STRANGER)), errors.InvalidRequest),
            (AllocateProducerIdsRequest(broker_id=leader, broker_epoch=epoch - 1), errors.StaleBrokerEpoch),
            (
                AssignReplicasToDirsRequest(broker_id=leader, broker_epoch=epoch - 1, directories=[]),
                errors.StaleBrokerEpoch,
            ),
            (UnregisterBrokerRequest(broker_id=STRANGER), errors.BrokerIdNotRegistered),
            (
                ControllerRegistrationRequest(
                    controller_id=1, incarnation_id=UUID(int=77), zk_migration_ready=False, listeners=[], features=[]
                ),
                errors.InvalidRegistration,
            ),
        ]


def _members(*brokers: int) -> list[BrokerState]:
    return [BrokerState(broker_id=broker, broker_epoch=-1) for broker in brokers]


def code_in(answer: Any) -> int:
    """Return the error of an answer, or of the only partition in it."""
    code: int = answer.error_code
    if code == 0 and getattr(answer, "topics", None):
        code = answer.topics[0].partitions[0].error_code
    return code


def state_of(node: BrokerNode) -> Any:
    image = node.image
    topics = {name: dict(topic.partitions) for name, topic in image.topics.items()}
    return dict(image.brokers), dict(image.controllers), topics, image.next_producer_id


def run(path: Path, scenario: Callable[[Nodes, BrokerNode, NodeChannels], Any]) -> None:
    async def main() -> None:
        # on a busy machine in-sync replicas stay, too
        async with Nodes(path, replica_lag_time_max_ms=60_000, **STEADY) as nodes:
            active = await nodes.active()
            await nodes.all_have(lambda node: sum(each.active for each in node.image.brokers.values()) == 3, "brokers")
            await nodes.all_have(lambda node: len(node.image.controllers) == 3, "controllers")
            run_here(active.controller.create_topic(TopicPlan("t", 1, 3)))
            await nodes.all_have(lambda node: "t" in node.image.topics, "the topic")
            channels = NodeChannels(asyncio.get_running_loop(), "forger")
            try:
                await scenario(nodes, active, channels)
            finally:
                channels.close()

    asyncio.run(main())


def test_forged_and_stale_requests_of_brokers_change_nothing(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes, active: BrokerNode, channels: NodeChannels) -> None:
        channel = channels.to(active.node_id, *nodes.addresses[active.node_id])
        before = state_of(active)
        for number, (request, error) in enumerate(Forger(nodes.cluster_id, active).requests()):
            code = code_in(await channel.send(request, 20.0))
            assert (number, code) == (number, error.code), request
        assert state_of(active) == before

    run(tmp_path, scenario)


def test_controller_that_is_not_active_refuses_requests_of_brokers(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes, active: BrokerNode, channels: NodeChannels) -> None:
        other = next(node for node in nodes.running.values() if node is not active)
        channel = channels.to(other.node_id, *nodes.addresses[other.node_id])
        forger = Forger(nodes.cluster_id, active)
        leader = forger.leader
        epoch = forger.epoch(leader)
        for request in (
            forger.registration(),
            forger.heartbeat(leader, epoch),
            forger.isr(leader, epoch),
            AllocateProducerIdsRequest(broker_id=leader, broker_epoch=epoch),
            AssignReplicasToDirsRequest(broker_id=leader, broker_epoch=epoch, directories=[]),
            UnregisterBrokerRequest(broker_id=leader),
            ControllerRegistrationRequest(
                controller_id=1, incarnation_id=UUID(int=77), zk_migration_ready=False, listeners=[], features=[]
            ),
        ):
            assert code_in(await channel.send(request, 20.0)) == errors.NotController.code, request
        assert active.image.brokers[leader].active

    run(tmp_path, scenario)
