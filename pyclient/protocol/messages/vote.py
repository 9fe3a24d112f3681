"""Vote (key 52): ask for a vote in an election of the metadata quorum (KIP-595)."""

from pyclient.protocol.fields import ZERO_UUID, Int16, Int32, Int64, Request, Response, UInt16, Uuid, api, field, part


@part
class VoteResponsePartitionData:
    partition_index: Int32
    error_code: Int16
    leader_id: Int32
    leader_epoch: Int32
    vote_granted: bool


@part
class VoteResponseTopicData:
    topic_name: str
    partitions: list[VoteResponsePartitionData]


@part
class NodeEndpoint:
    node_id: Int32
    host: str
    port: UInt16


@api(key=52, versions=(0, 2), flexible=0)
class VoteResponse(Response):
    error_code: Int16
    topics: list[VoteResponseTopicData]
    node_endpoints: list[NodeEndpoint] = field(since=1, default=[], tag=0)


@part
class VoteRequestPartitionData:
    partition_index: Int32
    replica_epoch: Int32
    replica_id: Int32
    replica_directory_id: Uuid = field(since=1, default=ZERO_UUID, ignorable=True)
    voter_directory_id: Uuid = field(since=1, default=ZERO_UUID, ignorable=True)
    last_offset_epoch: Int32
    last_offset: Int64
    pre_vote: bool = field(since=2, default=False)


@part
class VoteRequestTopicData:
    topic_name: str
    partitions: list[VoteRequestPartitionData]


@api(key=52, versions=(0, 2), flexible=0)
class VoteRequest(Request[VoteResponse]):
    cluster_id: str | None = None
    voter_id: Int32 = field(since=1, default=-1, ignorable=True)
    topics: list[VoteRequestTopicData]
