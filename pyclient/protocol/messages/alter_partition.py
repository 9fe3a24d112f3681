"""AlterPartition (key 56): ask the controller to change the in-sync replicas of partitions."""

from pyclient.protocol.fields import ZERO_UUID, Int8, Int16, Int32, Int64, Request, Response, Uuid, api, field, part


@part
class AlterPartitionResponsePartitionData:
    partition_index: Int32
    error_code: Int16
    leader_id: Int32
    leader_epoch: Int32
    isr: list[Int32]
    leader_recovery_state: Int8 = field(default=0, ignorable=True)
    partition_epoch: Int32


@part
class AlterPartitionResponseTopicData:
    topic_id: Uuid = field(default=ZERO_UUID, ignorable=True)
    partitions: list[AlterPartitionResponsePartitionData]


@api(key=56, versions=(2, 3), flexible=0)
class AlterPartitionResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16
    topics: list[AlterPartitionResponseTopicData]


@part
class BrokerState:
    broker_id: Int32
    broker_epoch: Int64 = -1


@part
class AlterPartitionRequestPartitionData:
    partition_index: Int32
    leader_epoch: Int32
    new_isr: list[Int32] = field(until=2, default=[])
    new_isr_with_epochs: list[BrokerState] = field(since=3, default=[])
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32


@part
class AlterPartitionRequestTopicData:
    topic_id: Uuid = field(default=ZERO_UUID, ignorable=True)
    partitions: list[AlterPartitionRequestPartitionData]


@api(key=56, versions=(2, 3), flexible=0)
class AlterPartitionRequest(Request[AlterPartitionResponse]):
    broker_id: Int32
    broker_epoch: Int64 = -1
    topics: list[AlterPartitionRequestTopicData]
