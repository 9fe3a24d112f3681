"""Records of `__consumer_offsets`: committed positions, classic groups, and consumer groups (KIP-848)."""

from typing import Final

from pyclient.protocol.fields import (
    BLANK,
    ZERO_UUID,
    CoordinatorKey,
    Int8,
    Int32,
    Int64,
    Message,
    Uuid,
    field,
    message,
    part,
)


@message(key=0, versions=(0, 0), flexible=None)
class LegacyOffsetCommitKey(CoordinatorKey):
    group: str
    topic: str
    partition: Int32


@message(key=0, versions=(0, 0), flexible=None)
class LegacyOffsetCommitValue(Message):
    offset: Int64
    metadata: str
    commit_timestamp: Int64


@message(key=1, versions=(0, 0), flexible=None)
class OffsetCommitKey(CoordinatorKey):
    group: str
    topic: str
    partition: Int32


@message(key=1, versions=(0, 4), flexible=4)
class OffsetCommitValue(Message):
    offset: Int64
    leader_epoch: Int32 = field(since=3, default=-1, ignorable=True)
    metadata: str
    commit_timestamp: Int64
    expire_timestamp: Int64 = field(since=1, until=1, default=-1, ignorable=True)
    topic_id: Uuid = field(since=4, default=ZERO_UUID, tag=0, ignorable=True)


@message(key=2, versions=(0, 0), flexible=None)
class GroupMetadataKey(CoordinatorKey):
    group: str


@part
class MemberMetadata:
    member_id: str
    group_instance_id: str | None = field(since=3, default=None, ignorable=True)
    client_id: str
    client_host: str
    rebalance_timeout: Int32 = field(since=1, default=-1, ignorable=True)
    session_timeout: Int32
    subscription: bytes
    assignment: bytes


@message(key=2, versions=(0, 4), flexible=4)
class GroupMetadataValue(Message):
    protocol_type: str
    generation: Int32
    protocol: str | None
    leader: str | None
    current_state_timestamp: Int64 = field(since=2, default=-1, ignorable=True)
    members: list[MemberMetadata]


@message(key=3, versions=(0, 0), flexible=None)
class ConsumerGroupMetadataKey(CoordinatorKey):
    group_id: str


@message(key=3, versions=(0, 0), flexible=0)
class ConsumerGroupMetadataValue(Message):
    epoch: Int32
    metadata_hash: Int64 = field(default=0, tag=0)


@message(key=4, versions=(0, 0), flexible=None)
class ConsumerGroupPartitionMetadataKey(CoordinatorKey):
    group_id: str


@part
class PartitionMetadata:
    partition: Int32
    racks: list[str]


@part
class TopicMetadata:
    topic_id: Uuid
    topic_name: str
    num_partitions: Int32
    partition_metadata: list[PartitionMetadata]


@message(key=4, versions=(0, 0), flexible=0)
class ConsumerGroupPartitionMetadataValue(Message):
    topics: list[TopicMetadata]


@message(key=5, versions=(0, 0), flexible=None)
class ConsumerGroupMemberMetadataKey(CoordinatorKey):
    group_id: str
    member_id: str


@part
class ClassicProtocol:
    name: str
    metadata: bytes


@part
class ClassicMemberMetadata:
    session_timeout_ms: Int32
    supported_protocols: list[ClassicProtocol]


@message(key=5, versions=(0, 0), flexible=0)
class ConsumerGroupMemberMetadataValue(Message):
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: Int32 = -1
    server_assignor: str | None
    classic_member_metadata: ClassicMemberMetadata | None = field(default=BLANK, tag=0)


@message(key=6, versions=(0, 0), flexible=None)
class ConsumerGroupTargetAssignmentMetadataKey(CoordinatorKey):
    group_id: str


@message(key=6, versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMetadataValue(Message):
    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(default=0, tag=0, ignorable=True)


@message(key=7, versions=(0, 0), flexible=None)
class ConsumerGroupTargetAssignmentMemberKey(CoordinatorKey):
    group_id: str
    member_id: str


@part
class TopicPartition:
    topic_id: Uuid
    partitions: list[Int32]


@message(key=7, versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMemberValue(Message):
    topic_partitions: list[TopicPartition]


@message(key=8, versions=(0, 0), flexible=None)
class ConsumerGroupCurrentMemberAssignmentKey(CoordinatorKey):
    group_id: str
    member_id: str


@part
class TopicPartitions:
    topic_id: Uuid
    partitions: list[Int32]
    assignment_epochs: list[Int32] | None = field(default=[], tag=0)


@message(key=8, versions=(0, 0), flexible=0)
class ConsumerGroupCurrentMemberAssignmentValue(Message):
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions]
    partitions_pending_revocation: list[TopicPartitions]


@message(key=16, versions=(0, 0), flexible=None)
class ConsumerGroupRegularExpressionKey(CoordinatorKey):
    group_id: str
    regular_expression: str


@message(key=16, versions=(0, 0), flexible=0)
class ConsumerGroupRegularExpressionValue(Message):
    topics: list[str]
    version: Int64
    timestamp: Int64


KEYS: Final[dict[int, type[CoordinatorKey]]] = {
    key.api_key: key
    for key in (
        LegacyOffsetCommitKey,
        OffsetCommitKey,
        GroupMetadataKey,
        ConsumerGroupMetadataKey,
        ConsumerGroupPartitionMetadataKey,
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupRegularExpressionKey,
    )
}
"""Record type -> the class of its key."""

VALUES: Final[dict[int, type[Message]]] = {
    value.api_key: value
    for value in (
        LegacyOffsetCommitValue,
        OffsetCommitValue,
        GroupMetadataValue,
        ConsumerGroupMetadataValue,
        ConsumerGroupPartitionMetadataValue,
        ConsumerGroupMemberMetadataValue,
        ConsumerGroupTargetAssignmentMetadataValue,
        ConsumerGroupTargetAssignmentMemberValue,
        ConsumerGroupCurrentMemberAssignmentValue,
        ConsumerGroupRegularExpressionValue,
    )
}
"""Record type -> the class of its value."""
