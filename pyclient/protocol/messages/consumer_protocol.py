"""The classic consumer protocol: subscriptions and assignments inside JoinGroup and SyncGroup."""

from pyclient.protocol.fields import Int32, Message, field, message, part


@part
class ConsumerProtocolSubscriptionTopicPartition:
    topic: str
    partitions: list[Int32]


@message(versions=(0, 3), flexible=None, tolerant=True)
class ConsumerProtocolSubscription(Message):
    topics: list[str]
    user_data: bytes | None = None
    owned_partitions: list[ConsumerProtocolSubscriptionTopicPartition] = field(since=1, default=[], ignorable=True)
    generation_id: Int32 = field(since=2, default=-1, ignorable=True)
    rack_id: str | None = field(since=3, default=None, ignorable=True)


@part
class ConsumerProtocolAssignmentTopicPartition:
    topic: str
    partitions: list[Int32]


@message(versions=(0, 3), flexible=None, tolerant=True)
class ConsumerProtocolAssignment(Message):
    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition]
    user_data: bytes | None = None
