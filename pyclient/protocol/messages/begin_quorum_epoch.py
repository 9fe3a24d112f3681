"""BeginQuorumEpoch (key 53): announce the leader of the metadata quorum to its voters (KIP-595)."""

from pyclient.protocol.fields import ZERO_UUID, Int16, Int32, Request, Response, UInt16, Uuid, api, field, part


@part
class BeginQuorumEpochResponsePartitionData:
    partition_index: Int32
    error_code: Int16
    leader_id: Int32
    leader_epoch: Int32


@part
class BeginQuorumEpochResponseTopicData:
    topic_name: str
    partitions: list[BeginQuorumEpochResponsePartitionData]


@part
class NodeEndpoint:
    node_id: Int32
    host: str
    port: UInt16


@api(key=53, versions=(0, 1), flexible=1)
class BeginQuorumEpochResponse(Response):
    error_code: Int16
    topics: list[BeginQuorumEpochResponseTopicData]
    node_endpoints: list[NodeEndpoint] = field(since=1, default=[], tag=0)


@part
class BeginQuorumEpochRequestPartitionData:
    partition_index: Int32
    voter_directory_id: Uuid = field(since=1, default=ZERO_UUID, ignorable=True)
    leader_id: Int32
    leader_epoch: Int32


@part
class BeginQuorumEpochRequestTopicData:
    topic_name: str
    partitions: list[BeginQuorumEpochRequestPartitionData]


@part
class LeaderEndpoint:
    name: str
    host: str
    port: UInt16


@api(key=53, versions=(0, 1), flexible=1)
class BeginQuorumEpochRequest(Request[BeginQuorumEpochResponse]):
    cluster_id: str | None = None
    voter_id: Int32 = field(since=1, default=-1, ignorable=True)
    topics: list[BeginQuorumEpochRequestTopicData]
    leader_endpoints: list[LeaderEndpoint] = field(since=1, default=[], ignorable=True)
