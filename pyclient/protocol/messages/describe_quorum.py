"""DescribeQuorum (key 55): leader, voters and observers of the metadata quorum."""

from pyclient.protocol.fields import ZERO_UUID, Int16, Int32, Int64, Request, Response, UInt16, Uuid, api, field, part


@part
class ReplicaState:
    replica_id: Int32
    replica_directory_id: Uuid = field(since=2, default=ZERO_UUID)
    log_end_offset: Int64
    last_fetch_timestamp: Int64 = field(since=1, default=-1, ignorable=True)
    last_caught_up_timestamp: Int64 = field(since=1, default=-1, ignorable=True)


@part
class DescribeQuorumResponsePartitionData:
    partition_index: Int32
    error_code: Int16
    error_message: str | None = field(since=2, default="", ignorable=True)
    leader_id: Int32
    leader_epoch: Int32
    high_watermark: Int64
    current_voters: list[ReplicaState]
    observers: list[ReplicaState]


@part
class DescribeQuorumResponseTopicData:
    topic_name: str
    partitions: list[DescribeQuorumResponsePartitionData]


@part
class Listener:
    name: str
    host: str
    port: UInt16


@part
class Node:
    node_id: Int32
    listeners: list[Listener]


@api(key=55, versions=(0, 2), flexible=0)
class DescribeQuorumResponse(Response):
    error_code: Int16
    error_message: str | None = field(since=2, default="", ignorable=True)
    topics: list[DescribeQuorumResponseTopicData]
    nodes: list[Node] = field(since=2, default=[])


@part
class DescribeQuorumRequestPartitionData:
    partition_index: Int32


@part
class DescribeQuorumRequestTopicData:
    topic_name: str
    partitions: list[DescribeQuorumRequestPartitionData]


@api(key=55, versions=(0, 2), flexible=0)
class DescribeQuorumRequest(Request[DescribeQuorumResponse]):
    topics: list[DescribeQuorumRequestTopicData]
