"""An admin client's calls about the metadata quorum (KIP-836, KIP-853), and their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from pyclient.config.addresses import format_address, parse_address
from pyclient.errors import ConfigError, MalformedMessage, from_code
from pyclient.protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from pyclient.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from pyclient.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest

if TYPE_CHECKING:
    from pyclient.admin.group_calls import Deadline
    from pyclient.cluster.client import ClusterClient
    from pyclient.protocol.messages.describe_quorum import DescribeQuorumResponse, ReplicaState

_TOPIC: Final = "__cluster_metadata"


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A replica of the metadata log as its leader knows it; times are None where the leader has seen none.

    `endpoints` are a voter's addresses (`host:port`) by the names of its listeners. `directory_id` is zero for voters
    of the configuration.
    """

    replica_id: int
    directory_id: UUID
    log_end_offset: int
    last_fetch_ms: int | None
    last_caught_up_ms: int | None
    endpoints: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The metadata quorum: its leader, its voters and its observers."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]


class QuorumCalls:
    """The admin client's calls about the metadata quorum."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    async def describe(self, deadline: Deadline) -> QuorumDescription:
        """Return the quorum."""
        partitions = [DescribeQuorumRequestPartitionData(partition_index=0)]
        topics = [DescribeQuorumRequestTopicData(topic_name=_TOPIC, partitions=partitions)]
        request = DescribeQuorumRequest(topics=topics)
        response = await self._cluster.request_controller(request, timeout=deadline.seconds)
        _raise(response, "describing the metadata quorum", request.name)
        if len(response.topics) != 1 or len(response.topics[0].partitions) != 1:
            raise MalformedMessage("the answer to DescribeQuorum is not about the one partition that was asked for")
        found = response.topics[0].partitions[0]
        _raise(found, "describing the metadata quorum", request.name)
        endpoints = _endpoints(response)
        return QuorumDescription(
            found.leader_id,
            found.leader_epoch,
            found.high_watermark,
            tuple(_replica(each, endpoints) for each in found.current_voters),
            tuple(_replica(each, {}) for each in found.observers),
        )

    async def add(self, voter_id: int, directory_id: UUID, endpoints: Mapping[str, str], deadline: Deadline) -> None:
        """Make a replica a voter."""
        request = AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=deadline.milliseconds,
            voter_id=voter_id,
            voter_directory_id=directory_id,
            listeners=[_listener(name, address) for name, address in endpoints.items()],
        )
        response = await self._cluster.request_controller(request, timeout=deadline.seconds)
        _raise(response, f"adding the voter {voter_id} to the metadata quorum", request.name)

    async def remove(self, voter_id: int, directory_id: UUID, deadline: Deadline) -> None:
        """Make a voter an observer."""
        request = RemoveRaftVoterRequest(cluster_id=None, voter_id=voter_id, voter_directory_id=directory_id)
        response = await self._cluster.request_controller(request, timeout=deadline.seconds)
        _raise(response, f"removing the voter {voter_id} from the metadata quorum", request.name)


def _raise(response: Any, what: str, api: str) -> None:
    if response.error_code:
        raise from_code(response.error_code, f"{what}: {response.error_message or 'it was refused'}", api)


def _listener(name: str, address: str) -> Listener:
    try:
        host, port = parse_address(address)
    except ValueError as error:
        raise ConfigError(f"endpoints: {name}: {error}") from None
    return Listener(name=name, host=host, port=port)


def _endpoints(response: DescribeQuorumResponse) -> dict[int, dict[str, str]]:
    return {
        node.node_id: {each.name: format_address(each.host, each.port) for each in node.listeners}
        for node in response.nodes
    }


def _replica(state: ReplicaState, endpoints: Mapping[int, Mapping[str, str]]) -> QuorumReplica:
    fetched, caught_up = state.last_fetch_timestamp, state.last_caught_up_timestamp
    return QuorumReplica(
        state.replica_id,
        state.replica_directory_id,
        state.log_end_offset,
        fetched if fetched >= 0 else None,
        caught_up if caught_up >= 0 else None,
        endpoints.get(state.replica_id, {}),
    )
