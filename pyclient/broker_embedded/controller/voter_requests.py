"""Requests that change the voters of the metadata quorum (KIP-853): checked, and handed to this node's replica."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyclient import errors
from pyclient.broker_embedded.controller.features import KRAFT_VERSION
from pyclient.broker_embedded.controller.raft import messages as raft
from pyclient.broker_embedded.controller.raft.voters import Endpoint, ReplicaKey, Voter
from pyclient.protocol.fields import ZERO_UUID
from pyclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyclient.broker_embedded.controller.quorum import Quorum
    from pyclient.broker_embedded.services import BrokerServices
    from pyclient.protocol.messages.add_raft_voter import AddRaftVoterRequest
    from pyclient.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
    from pyclient.protocol.messages.update_raft_voter import UpdateRaftVoterRequest

_PROBE: Final = ApiVersionsRequest(client_software_name="pyclient", client_software_version="0")
_MOST_LISTENERS: Final = 16
_LONGEST: Final = 3600.0


async def add_voter(services: BrokerServices, request: AddRaftVoterRequest) -> raft.VoterChangeResponse:
    """Make a replica a voter. Its node is asked first whether it supports the kraft.version in force."""
    _check_cluster(services, request)
    key = _key(request.voter_id, request.voter_directory_id)
    endpoints = _endpoints(request.listeners, services.configs.current.quorum.listener_name)
    quorum = _quorum(services)
    wait = min(max(request.timeout_ms, 0) / 1000, _LONGEST)
    change = raft.AddVoter(Voter(key, endpoints), wait, request.ack_when_committed)
    refused = quorum.refusal(change)
    if refused is not None:
        return refused
    least, most = await _kraft_versions(quorum, change.voter, wait)
    voter = Voter(key, endpoints, least, most)
    return await _changed(quorum, raft.AddVoter(voter, wait, request.ack_when_committed))


async def remove_voter(services: BrokerServices, request: RemoveRaftVoterRequest) -> raft.VoterChangeResponse:
    """Make a voter an observer."""
    _check_cluster(services, request)
    key = _key(request.voter_id, request.voter_directory_id)
    wait = services.configs.current.seconds("controller.quorum.request.timeout.ms")
    return await _changed(_quorum(services), raft.RemoveVoter(key, wait))


async def update_voter(services: BrokerServices, request: UpdateRaftVoterRequest) -> raft.VoterChangeResponse:
    """Change the addresses of a voter, and its range of kraft.version, to what it says of itself."""
    _check_cluster(services, request)
    feature = request.kraft_version_feature
    voter = Voter(
        _key(request.voter_id, request.voter_directory_id),
        _endpoints(request.listeners, services.configs.current.quorum.listener_name),
        feature.min_supported_version,
        feature.max_supported_version,
    )
    wait = services.configs.current.seconds("controller.quorum.request.timeout.ms")
    return await _changed(_quorum(services), raft.UpdateVoter(voter, request.current_leader_epoch, wait))


def _check_cluster(services: BrokerServices, request: Any) -> None:
    """Raise `InconsistentClusterId` for a request of another cluster."""
    if request.cluster_id not in (None, "", services.logs.directories.cluster_id):
        raise errors.InconsistentClusterId(f"the request is for cluster {request.cluster_id:.100}, not this one")


def _quorum(services: BrokerServices) -> Quorum:
    """Return this node's replica. Raise `UnsupportedVersion` on a node alone: Kafka, too, checks the request first."""
    if services.quorum is None:
        raise errors.UnsupportedVersion(
            f"Cluster doesn't support changing voters because the {KRAFT_VERSION} feature is 0: this node is alone"
        )
    return services.quorum


def _key(node_id: int, directory_id: Any) -> ReplicaKey:
    if node_id < 0 or directory_id == ZERO_UUID:
        raise errors.InvalidRequest(
            f"a voter has a node id from 0 and a directory id, not {node_id} and {directory_id}"
        )
    return ReplicaKey(node_id, directory_id)


def _endpoints(listeners: Sequence[Any], name: str) -> tuple[Endpoint, ...]:
    """Return the addresses of a voter, that of the listener called `name` first."""
    found = [Endpoint(each.name, each.host, each.port) for each in listeners]
    own = [each for each in found if each.name == name and each.host and each.port]
    if not own or len(found) > _MOST_LISTENERS:
        raise errors.InvalidRequest(f"Add voter request didn't include the endpoint for the default listener {name}")
    return (*own, *(each for each in found if each not in own))


async def _kraft_versions(quorum: Quorum, voter: Voter, wait: float) -> tuple[int, int]:
    """Return the range of kraft.version that a node supports."""
    at = voter.endpoints[0]
    channel = quorum.network.channels.to(voter.key.id, at.host, at.port)
    try:
        answer: ApiVersionsResponse = await channel.send(_PROBE, wait)
    except (errors.ConnectionFailed, errors.KafkaTimeout, errors.UnsupportedVersion) as error:
        raise errors.RequestTimedOut(f"New voter {voter.key} is not ready to receive requests: {error}") from error
    if answer.error_code:
        raise errors.InvalidRequest(
            f"Aborted add voter operation for {voter.key} at {at.host}:{at.port} since API_VERSIONS returned an error "
            f"{errors.for_code(answer.error_code).__name__}"
        )
    for feature in answer.supported_features:
        if feature.name == KRAFT_VERSION:
            return feature.min_version, feature.max_version
    return 0, 0


async def _changed(quorum: Quorum, change: raft.VoterChange) -> raft.VoterChangeResponse:
    response: raft.VoterChangeResponse = (await quorum.step(change)).response
    return response
