"""ConsumerGroupHeartbeat (key 68): membership, subscription and assignment of a consumer group (KIP-848)."""

from pyclient.protocol.fields import Int16, Int32, Request, Response, Uuid, api, field, part


@part
class ConsumerGroupHeartbeatResponseTopicPartitions:
    topic_id: Uuid
    partitions: list[Int32]


@part
class Assignment:
    topic_partitions: list[ConsumerGroupHeartbeatResponseTopicPartitions]


@api(key=68, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = None


@part
class ConsumerGroupHeartbeatRequestTopicPartitions:
    topic_id: Uuid
    partitions: list[Int32]


@api(key=68, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatRequest(Request[ConsumerGroupHeartbeatResponse]):
    group_id: str
    member_id: str
    member_epoch: Int32
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: str | None = field(since=1, default=None)
    server_assignor: str | None = None
    topic_partitions: list[ConsumerGroupHeartbeatRequestTopicPartitions] | None = None
