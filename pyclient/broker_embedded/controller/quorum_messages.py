"""The requests and responses of the metadata quorum: between the Raft core's form and that of the wire. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyclient.broker_embedded.controller.metadata_log import TOPIC, TOPIC_ID
from pyclient.broker_embedded.controller.raft import messages as raft
from pyclient.broker_embedded.controller.raft.replica_log import OffsetAndEpoch
from pyclient.broker_embedded.controller.raft.voters import ReplicaKey
from pyclient.broker_embedded.controller.voter_records import voters_in
from pyclient.errors import MalformedMessage
from pyclient.protocol.messages import begin_quorum_epoch as begin
from pyclient.protocol.messages import end_quorum_epoch as end
from pyclient.protocol.messages import fetch, fetch_snapshot, update_raft_voter, vote
from pyclient.records import check_crc, iter_batches

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from pyclient.broker_embedded.controller.quorum import Quorum
    from pyclient.broker_embedded.controller.quorum_network import QuorumAddresses
    from pyclient.protocol.fields import Request

NO_NODE: Final = -1
_LONGEST_WAIT: Final = 0.5
_MOST_EPOCHS: Final = 2**31 - 2


class Answered(NamedTuple):
    """The core's answer to another node's request, with the `data` that it names: batches or a part of a snapshot."""

    response: Any
    data: bytes = b""
    size: int = 0


class Converter:
    """Converts the messages of one node's replica; `cluster_id` goes with its requests."""

    def __init__(self, cluster_id: str, listener: str, address: tuple[str, int] | None, max_bytes: int) -> None:
        self.cluster_id = cluster_id
        self._endpoints = [] if address is None else [(listener, *address)]
        self._max_bytes = max_bytes

    def request(self, message: raft.Request) -> Request[Any]:
        """Return the request to send for a message of the core."""
        match message:
            case raft.Vote():
                return self._vote(message)
            case raft.BeginQuorumEpoch():
                return self._begin(message)
            case raft.EndQuorumEpoch():
                return self._end(message)
            case raft.Fetch():
                return self._fetch(message)
            case raft.FetchSnapshot():
                return self._fetch_snapshot(message)
            case raft.UpdateVoter():
                return self._update_voter(message)

    def _vote(self, message: raft.Vote) -> vote.VoteRequest:
        partition = vote.VoteRequestPartitionData(
            partition_index=0,
            replica_epoch=message.epoch,
            replica_id=message.candidate.id,
            replica_directory_id=message.candidate.directory_id,
            voter_directory_id=message.voter.directory_id,
            last_offset_epoch=message.last.epoch,
            last_offset=message.last.offset,
            pre_vote=message.pre_vote,
        )
        topics = [vote.VoteRequestTopicData(topic_name=TOPIC, partitions=[partition])]
        return vote.VoteRequest(cluster_id=self.cluster_id, voter_id=message.voter.id, topics=topics)

    def _update_voter(self, message: raft.UpdateVoter) -> update_raft_voter.UpdateRaftVoterRequest:
        voter = message.voter
        return update_raft_voter.UpdateRaftVoterRequest(
            cluster_id=self.cluster_id,
            current_leader_epoch=message.epoch,
            voter_id=voter.key.id,
            voter_directory_id=voter.key.directory_id,
            listeners=[
                update_raft_voter.Listener(name=each.name, host=each.host, port=each.port) for each in voter.endpoints
            ],
            kraft_version_feature=update_raft_voter.KRaftVersionFeature(
                min_supported_version=voter.min_kraft_version, max_supported_version=voter.max_kraft_version
            ),
        )

    def _begin(self, message: raft.BeginQuorumEpoch) -> begin.BeginQuorumEpochRequest:
        partition = begin.BeginQuorumEpochRequestPartitionData(
            partition_index=0,
            voter_directory_id=message.voter.directory_id,
            leader_id=message.leader_id,
            leader_epoch=message.epoch,
        )
        return begin.BeginQuorumEpochRequest(
            cluster_id=self.cluster_id,
            voter_id=message.voter.id,
            topics=[begin.BeginQuorumEpochRequestTopicData(topic_name=TOPIC, partitions=[partition])],
            leader_endpoints=[
                begin.LeaderEndpoint(name=name, host=host, port=port) for name, host, port in self._endpoints
            ],
        )

    def _end(self, message: raft.EndQuorumEpoch) -> end.EndQuorumEpochRequest:
        partition = end.EndQuorumEpochRequestPartitionData(
            partition_index=0,
            leader_id=message.leader_id,
            leader_epoch=message.epoch,
            preferred_successors=[key.id for key in message.preferred],
            preferred_candidates=[
                end.ReplicaInfo(candidate_id=key.id, candidate_directory_id=key.directory_id)
                for key in message.preferred
            ],
        )
        return end.EndQuorumEpochRequest(
            cluster_id=self.cluster_id,
            topics=[end.EndQuorumEpochRequestTopicData(topic_name=TOPIC, partitions=[partition])],
            leader_endpoints=[
                end.LeaderEndpoint(name=name, host=host, port=port) for name, host, port in self._endpoints
            ],
        )

    def _fetch(self, message: raft.Fetch) -> fetch.FetchRequest:
        partition = fetch.FetchPartition(
            partition=0,
            current_leader_epoch=message.epoch,
            fetch_offset=message.offset,
            last_fetched_epoch=message.last_epoch,
            log_start_offset=-1,
            partition_max_bytes=0,
            replica_directory_id=message.replica.directory_id,
            high_watermark=message.high_watermark,
        )
        return fetch.FetchRequest(
            cluster_id=self.cluster_id,
            replica_state=fetch.ReplicaState(replica_id=message.replica.id),
            max_wait_ms=round(message.max_wait * 1000),
            min_bytes=0,
            max_bytes=self._max_bytes,
            topics=[fetch.FetchTopic(topic=TOPIC, topic_id=TOPIC_ID, partitions=[partition])],
        )

    def _fetch_snapshot(self, message: raft.FetchSnapshot) -> fetch_snapshot.FetchSnapshotRequest:
        partition = fetch_snapshot.FetchSnapshotRequestPartitionSnapshot(
            partition=0,
            current_leader_epoch=message.epoch,
            snapshot_id=fetch_snapshot.FetchSnapshotRequestSnapshotId(
                end_offset=message.snapshot.offset, epoch=message.snapshot.epoch
            ),
            position=message.position,
            replica_directory_id=message.replica.directory_id,
        )
        return fetch_snapshot.FetchSnapshotRequest(
            cluster_id=self.cluster_id,
            replica_id=message.replica.id,
            max_bytes=self._max_bytes,
            topics=[fetch_snapshot.FetchSnapshotRequestTopicSnapshot(name=TOPIC, partitions=[partition])],
        )


# Responses of other nodes. Raise `MalformedMessage` or a `CorruptRecord` for what no replica would answer.


def response_of(response: Any, addresses: QuorumAddresses) -> raft.Response:
    """Return a node's response in the core's form; a leader that is no voter is refused.

    Where voters change, one that is unknown may be a new one: it counts as no known leader until there is its address.
    """
    found: raft.Response
    match response:
        case vote.VoteResponse():
            found = _vote_response(response)
        case begin.BeginQuorumEpochResponse() | end.EndQuorumEpochResponse():
            found = _epoch_response(response)
        case fetch.FetchResponse():
            found = _fetch_response(response)
        case fetch_snapshot.FetchSnapshotResponse():
            found = _snapshot_response(response)
        case update_raft_voter.UpdateRaftVoterResponse():
            leader = response.current_leader
            found = raft.VoterChangeResponse(response.error_code, leader.leader_epoch, _leader(leader.leader_id))
        case _:
            raise MalformedMessage(f"{type(response).__name__} answers no request of the quorum")
    if addresses.dynamic and found.leader_id is not None and found.leader_id not in addresses:
        found = replace(found, leader_id=None)
    check(found.epoch, found.leader_id, addresses)
    return found


def leader_endpoint_in(message: Any) -> tuple[int, str, int] | None:
    """Return node id, host and port of the leader in a response, None if it has none."""
    for each in getattr(message, "node_endpoints", ()):
        if each.node_id >= 0 and each.host and 0 < each.port < 1 << 16:
            return each.node_id, each.host, each.port
    return None


def check(epoch: int, leader_id: int | None, voters: Container[int]) -> None:
    """Raise `MalformedMessage` for an epoch or a leader that cannot be."""
    if not -1 <= epoch < _MOST_EPOCHS:
        raise MalformedMessage(f"epoch {epoch} of the metadata quorum is impossible")
    if leader_id is not None and leader_id not in voters:
        raise MalformedMessage(f"node {leader_id} is named as the leader of the metadata quorum, but is not a voter")


def _only(topics: Sequence[Any], what: str) -> Any:
    """Return the only partition of the only topic."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        raise MalformedMessage(f"{what} must be about {TOPIC}-0 alone")
    return topics[0].partitions[0]


def _leader(node_id: int) -> int | None:
    return node_id if node_id >= 0 else None


def _vote_response(response: vote.VoteResponse) -> raft.VoteResponse:
    if response.error_code:
        return raft.VoteResponse(response.error_code, 0, None, granted=False)
    each = _only(response.topics, "an answer to Vote")
    return raft.VoteResponse(each.error_code, each.leader_epoch, _leader(each.leader_id), each.vote_granted)


def _epoch_response(
    response: begin.BeginQuorumEpochResponse | end.EndQuorumEpochResponse,
) -> raft.QuorumEpochResponse:
    if response.error_code:
        return raft.QuorumEpochResponse(response.error_code, 0, None)
    each = _only(response.topics, "an answer to BeginQuorumEpoch or EndQuorumEpoch")
    return raft.QuorumEpochResponse(each.error_code, each.leader_epoch, _leader(each.leader_id))


def _fetch_response(response: fetch.FetchResponse) -> raft.FetchResponse:
    if response.error_code:
        return raft.FetchResponse(response.error_code, 0, None)
    each = _only(response.responses, "an answer to Fetch")
    diverging = snapshot = None
    if each.diverging_epoch.epoch >= 0:
        diverging = OffsetAndEpoch(each.diverging_epoch.end_offset, each.diverging_epoch.epoch)
    if each.snapshot_id.epoch >= 0:
        snapshot = OffsetAndEpoch(each.snapshot_id.end_offset, each.snapshot_id.epoch)
    return raft.FetchResponse(
        each.error_code,
        each.current_leader.leader_epoch,
        _leader(each.current_leader.leader_id),
        each.high_watermark,
        diverging,
        snapshot,
        () if each.error_code else batches_in(bytes(each.records or b"")),
    )


def _snapshot_response(response: fetch_snapshot.FetchSnapshotResponse) -> raft.FetchSnapshotResponse:
    if response.error_code:
        return raft.FetchSnapshotResponse(response.error_code, 0, None)
    each = _only(response.topics, "an answer to FetchSnapshot")
    return raft.FetchSnapshotResponse(
        each.error_code,
        each.current_leader.leader_epoch,
        _leader(each.current_leader.leader_id),
        OffsetAndEpoch(each.snapshot_id.end_offset, each.snapshot_id.epoch),
        each.position,
        each.size,
        bytes(each.unaligned_records),
    )


def batches_in(records: bytes) -> tuple[raft.Batch, ...]:
    """Return the record batches, whose checksums are checked; an incomplete one at the end is left out."""
    found = []
    for position, header in iter_batches(records):
        if position + header.size > len(records):
            break
        check_crc(records, position, header)
        data = records[position : position + header.size]
        voters = voters_in(records, position, header)
        found.append(raft.Batch(header.base_offset, header.next_offset, header.leader_epoch, data, voters))
    return tuple(found)


# Requests of other nodes, and the answers to them


def vote_of(request: vote.VoteRequest, quorum: Quorum) -> raft.Vote:
    """Return a request for a vote in the core's form; one that names no voter asks this node."""
    each = _only(request.topics, "Vote")
    check(each.replica_epoch, None if quorum.addresses.dynamic else each.replica_id, quorum.addresses)
    voter = quorum.me if request.voter_id == NO_NODE else ReplicaKey(request.voter_id, each.voter_directory_id)
    return raft.Vote(
        voter,
        ReplicaKey(each.replica_id, each.replica_directory_id),
        each.replica_epoch,
        OffsetAndEpoch(each.last_offset, each.last_offset_epoch),
        each.pre_vote,
    )


def vote_answer(answered: Answered) -> vote.VoteResponse:
    """Return the answer to Vote."""
    response: raft.VoteResponse = answered.response
    each = vote.VoteResponsePartitionData(
        partition_index=0,
        error_code=response.error,
        leader_id=NO_NODE if response.leader_id is None else response.leader_id,
        leader_epoch=response.epoch,
        vote_granted=response.granted,
    )
    topics = [vote.VoteResponseTopicData(topic_name=TOPIC, partitions=[each])]
    return vote.VoteResponse(error_code=0, topics=topics)


def begin_of(request: begin.BeginQuorumEpochRequest, quorum: Quorum) -> raft.BeginQuorumEpoch:
    """Return a BeginQuorumEpoch in the core's form."""
    each = _only(request.topics, "BeginQuorumEpoch")
    for at in request.leader_endpoints:
        if at.host and at.port:
            quorum.addresses.learn((each.leader_id, at.host, at.port))
            break
    check(each.leader_epoch, each.leader_id, quorum.addresses)
    voter = quorum.me if request.voter_id == NO_NODE else ReplicaKey(request.voter_id, each.voter_directory_id)
    return raft.BeginQuorumEpoch(voter, each.leader_id, each.leader_epoch)


def begin_answer(answered: Answered) -> begin.BeginQuorumEpochResponse:
    """Return the answer to BeginQuorumEpoch."""
    response: raft.QuorumEpochResponse = answered.response
    each = begin.BeginQuorumEpochResponsePartitionData(
        partition_index=0,
        error_code=response.error,
        leader_id=NO_NODE if response.leader_id is None else response.leader_id,
        leader_epoch=response.epoch,
    )
    topics = [begin.BeginQuorumEpochResponseTopicData(topic_name=TOPIC, partitions=[each])]
    return begin.BeginQuorumEpochResponse(error_code=0, topics=topics)


def end_of(request: end.EndQuorumEpochRequest, quorum: Quorum) -> raft.EndQuorumEpoch:
    """Return an EndQuorumEpoch in the core's form."""
    each = _only(request.topics, "EndQuorumEpoch")
    check(each.leader_epoch, each.leader_id, quorum.addresses)
    preferred = tuple(ReplicaKey(one.candidate_id, one.candidate_directory_id) for one in each.preferred_candidates)
    if not preferred:
        preferred = tuple(ReplicaKey(node_id) for node_id in each.preferred_successors)
    return raft.EndQuorumEpoch(each.leader_id, each.leader_epoch, preferred)


def end_answer(answered: Answered) -> end.EndQuorumEpochResponse:
    """Return the answer to EndQuorumEpoch."""
    response: raft.QuorumEpochResponse = answered.response
    each = end.EndQuorumEpochResponsePartitionData(
        partition_index=0,
        error_code=response.error,
        leader_id=NO_NODE if response.leader_id is None else response.leader_id,
        leader_epoch=response.epoch,
    )
    topics = [end.EndQuorumEpochResponseTopicData(topic_name=TOPIC, partitions=[each])]
    return end.EndQuorumEpochResponse(error_code=0, topics=topics)


def fetch_of(request: fetch.FetchRequest, quorum: Quorum) -> raft.Fetch:
    """Return a Fetch of the metadata log in the core's form, which is held for half a second at most."""
    each = _only(request.topics, "Fetch")
    if each.partition or request.topics[0].topic_id != TOPIC_ID:
        raise MalformedMessage(f"only {TOPIC}-0 is fetched from a controller")
    check(each.current_leader_epoch, None, quorum.addresses)
    replica_id = max(request.replica_state.replica_id, request.replica_id)
    return raft.Fetch(
        ReplicaKey(replica_id, each.replica_directory_id),
        each.current_leader_epoch,
        each.fetch_offset,
        each.last_fetched_epoch,
        each.high_watermark,
        min(max(request.max_wait_ms, 0) / 1000, _LONGEST_WAIT),
    )


def fetch_answer(answered: Answered) -> fetch.FetchResponse:
    """Return the answer to a Fetch."""
    response: raft.FetchResponse = answered.response
    each = fetch.PartitionData(
        partition_index=0,
        error_code=response.error,
        high_watermark=response.high_watermark,
        last_stable_offset=response.high_watermark,
        log_start_offset=-1,
        current_leader=fetch.LeaderIdAndEpoch(
            leader_id=NO_NODE if response.leader_id is None else response.leader_id, leader_epoch=response.epoch
        ),
        records=answered.data,
    )
    if response.diverging is not None:
        each.diverging_epoch = fetch.EpochEndOffset(
            epoch=response.diverging.epoch, end_offset=response.diverging.offset
        )
    if response.snapshot is not None:
        each.snapshot_id = fetch.SnapshotId(end_offset=response.snapshot.offset, epoch=response.snapshot.epoch)
    topics = [fetch.FetchableTopicResponse(topic=TOPIC, topic_id=TOPIC_ID, partitions=[each])]
    return fetch.FetchResponse(responses=topics)


def fetch_snapshot_of(request: fetch_snapshot.FetchSnapshotRequest, quorum: Quorum) -> raft.FetchSnapshot:
    """Return a FetchSnapshot in the core's form."""
    each = _only(request.topics, "FetchSnapshot")
    check(each.current_leader_epoch, None, quorum.addresses)
    return raft.FetchSnapshot(
        ReplicaKey(request.replica_id, each.replica_directory_id),
        each.current_leader_epoch,
        OffsetAndEpoch(each.snapshot_id.end_offset, each.snapshot_id.epoch),
        each.position,
    )


def fetch_snapshot_answer(answered: Answered) -> fetch_snapshot.FetchSnapshotResponse:
    """Return the answer to a FetchSnapshot."""
    response: raft.FetchSnapshotResponse = answered.response
    snapshot = response.snapshot if response.snapshot is not None else OffsetAndEpoch(-1, -1)
    each = fetch_snapshot.FetchSnapshotResponsePartitionSnapshot(
        index=0,
        error_code=response.error,
        snapshot_id=fetch_snapshot.FetchSnapshotResponseSnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        current_leader=fetch_snapshot.LeaderIdAndEpoch(
            leader_id=NO_NODE if response.leader_id is None else response.leader_id, leader_epoch=response.epoch
        ),
        size=answered.size,
        position=response.position,
        unaligned_records=answered.data,
    )
    topics = [fetch_snapshot.FetchSnapshotResponseTopicSnapshot(name=TOPIC, partitions=[each])]
    return fetch_snapshot.FetchSnapshotResponse(error_code=0, topics=topics)
