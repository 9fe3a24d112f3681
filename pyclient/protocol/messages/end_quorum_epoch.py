"""EndQuorumEpoch (key 54): resign as leader of the metadata quorum (KIP-595)."""

from pyclient.protocol.fields import Int16, Int32, Request, Response, UInt16, Uuid, api, field, part


@part
class EndQuorumEpochResponsePartitionData:
    partition_index: Int32
    error_code: Int16
    leader_id: Int32
    leader_epoch: Int32


@part
class EndQuorumEpochResponseTopicData:
    topic_name: str
    partitions: list[EndQuorumEpochResponsePartitionData]


@part
class NodeEndpoint:
    node_id: Int32
    host: str
    port: UInt16


@api(key=54, versions=(0, 1), flexible=1)
class EndQuorumEpochResponse(Response):
    error_code: Int16
    topics: list[EndQuorumEpochResponseTopicData]
    node_endpoints: list[NodeEndpoint] = field(since=1, default=[], tag=0)


@part
class ReplicaInfo:
    candidate_id: Int32
    candidate_directory_id: Uuid


@part
class EndQuorumEpochRequestPartitionData:
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32
    preferred_successors: list[Int32] = field(until=0, default=[], ignorable=True)
    preferred_candidates: list[ReplicaInfo] = field(since=1, default=[], ignorable=True)


@part
class EndQuorumEpochRequestTopicData:
    topic_name: str
    partitions: list[EndQuorumEpochRequestPartitionData]


@part
class LeaderEndpoint:
    name: str
    host: str
    port: UInt16


@api(key=54, versions=(0, 1), flexible=1)
class EndQuorumEpochRequest(Request[EndQuorumEpochResponse]):
    cluster_id: str | None = None
    topics: list[EndQuorumEpochRequestTopicData]
    leader_endpoints: list[LeaderEndpoint] = field(since=1, default=[], ignorable=True)
