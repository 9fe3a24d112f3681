"""DescribeTopicPartitions (key 75): partitions of topics, page by page (KIP-966)."""

from pyclient.protocol.fields import ZERO_UUID, Int16, Int32, Request, Response, Uuid, api, field, part


@part
class DescribeTopicPartitionsResponsePartition:
    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = field(default=-1, ignorable=True)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    eligible_leader_replicas: list[Int32] | None = None
    last_known_elr: list[Int32] | None = None
    offline_replicas: list[Int32] = field(default=[], ignorable=True)


@part
class DescribeTopicPartitionsResponseTopic:
    error_code: Int16
    name: str | None
    topic_id: Uuid = field(default=ZERO_UUID, ignorable=True)
    is_internal: bool = field(default=False, ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: Int32 = -2147483648


@part
class DescribeTopicPartitionsResponseCursor:
    topic_name: str
    partition_index: Int32


@api(key=75, versions=(0, 0), flexible=0)
class DescribeTopicPartitionsResponse(Response):
    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic]
    next_cursor: DescribeTopicPartitionsResponseCursor | None = None


@part
class TopicRequest:
    name: str


@part
class DescribeTopicPartitionsRequestCursor:
    topic_name: str
    partition_index: Int32


@api(key=75, versions=(0, 0), flexible=0)
class DescribeTopicPartitionsRequest(Request[DescribeTopicPartitionsResponse]):
    topics: list[TopicRequest]
    response_partition_limit: Int32 = 2000
    cursor: DescribeTopicPartitionsRequestCursor | None = None
