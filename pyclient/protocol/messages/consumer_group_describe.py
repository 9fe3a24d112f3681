"""ConsumerGroupDescribe (key 69): state and members of consumer groups (KIP-848)."""

from pyclient.protocol.fields import Int8, Int16, Int32, Request, Response, Uuid, api, field, part


@part
class TopicPartitions:
    topic_id: Uuid
    topic_name: str
    partitions: list[Int32]


@part
class Assignment:
    topic_partitions: list[TopicPartitions]


@part
class Member:
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: Int32
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None = None
    assignment: Assignment
    target_assignment: Assignment
    member_type: Int8 = field(since=1, default=-1, ignorable=True)


@part
class DescribedGroup:
    error_code: Int16
    error_message: str | None = None
    group_id: str
    group_state: str
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: str
    members: list[Member]
    authorized_operations: Int32 = -2147483648


@api(key=69, versions=(0, 1), flexible=0)
class ConsumerGroupDescribeResponse(Response):
    throttle_time_ms: Int32
    groups: list[DescribedGroup]


@api(key=69, versions=(0, 1), flexible=0)
class ConsumerGroupDescribeRequest(Request[ConsumerGroupDescribeResponse]):
    group_ids: list[str]
    include_authorized_operations: bool
