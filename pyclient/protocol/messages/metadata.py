"""Metadata (key 3): brokers, topics and partition leaders."""

from pyclient.protocol.fields import ZERO_UUID, Int16, Int32, Request, Response, Uuid, api, field, part


@part
class MetadataResponseBroker:
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = field(since=1, default=None, ignorable=True)


@part
class MetadataResponsePartition:
    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = field(since=7, default=-1, ignorable=True)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    offline_replicas: list[Int32] = field(since=5, default=[], ignorable=True)


@part
class MetadataResponseTopic:
    error_code: Int16
    name: str | None = field(nullable=12)
    topic_id: Uuid = field(since=10, default=ZERO_UUID, ignorable=True)
    is_internal: bool = field(since=1, default=False, ignorable=True)
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: Int32 = field(since=8, default=-2147483648)


@api(key=3, versions=(0, 13), flexible=9)
class MetadataResponse(Response):
    """Added in v1: controller, racks; v5: offline replicas; v7: leader epochs; v10: topic ids.

    Added in v13: a top-level error (KIP-1102).
    """

    throttle_time_ms: Int32 = field(since=3, default=0, ignorable=True)
    brokers: list[MetadataResponseBroker]
    cluster_id: str | None = field(since=2, default=None, ignorable=True)
    controller_id: Int32 = field(since=1, default=-1, ignorable=True)
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: Int32 = field(since=8, until=10, default=-2147483648)
    error_code: Int16 = field(since=13, default=0, ignorable=True)


@part
class MetadataRequestTopic:
    topic_id: Uuid = field(since=10, default=ZERO_UUID, ignorable=True)
    name: str | None = field(nullable=10)


@api(key=3, versions=(0, 13), flexible=9, tolerant=True)
class MetadataRequest(Request[MetadataResponse]):
    """All topics: an empty list in v0, null from v1 on. Added in v4: auto-creation flag; v10: topic ids.

    Tolerant, like Kafka: librdkafka (2.16.1) appends three bytes to its request for all topics from v9 on.
    """

    topics: list[MetadataRequestTopic] | None = field(nullable=1)
    allow_auto_topic_creation: bool = field(since=4, default=True)
    include_cluster_authorized_operations: bool = field(since=8, until=10, default=False)
    include_topic_authorized_operations: bool = field(since=8, default=False)
