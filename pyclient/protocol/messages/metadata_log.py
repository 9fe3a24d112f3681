"""Records of `__cluster_metadata`: topics, partitions, brokers, configuration and the rest of a cluster's state."""

from typing import Final

from pyclient.protocol.fields import Float64, Int8, Int16, Int32, Int64, Message, UInt16, Uuid, field, message, part


@part
class BrokerEndpoint:
    name: str
    host: str
    port: UInt16
    security_protocol: Int16


@part
class BrokerFeature:
    name: str
    min_supported_version: Int16
    max_supported_version: Int16


@message(key=0, versions=(0, 4), flexible=0)
class RegisterBrokerRecord(Message):
    broker_id: Int32
    is_migrating_zk_broker: bool = field(since=2, default=False)
    incarnation_id: Uuid
    broker_epoch: Int64
    end_points: list[BrokerEndpoint]
    features: list[BrokerFeature]
    rack: str | None
    fenced: bool = True
    in_controlled_shutdown: bool = field(since=1, default=False)
    log_dirs: list[Uuid] = field(since=3, default=[], tag=0)
    cordoned_log_dirs: list[Uuid] | None = field(since=4, default=None, tag=1)


@message(key=1, versions=(0, 0), flexible=0)
class UnregisterBrokerRecord(Message):
    broker_id: Int32
    broker_epoch: Int64


@message(key=2, versions=(0, 0), flexible=0)
class TopicRecord(Message):
    name: str
    topic_id: Uuid


@message(key=3, versions=(0, 2), flexible=0)
class PartitionRecord(Message):
    partition_id: Int32 = -1
    topic_id: Uuid
    replicas: list[Int32]
    isr: list[Int32]
    removing_replicas: list[Int32]
    adding_replicas: list[Int32]
    leader: Int32 = -1
    leader_recovery_state: Int8 = field(default=0, tag=0)
    leader_epoch: Int32 = -1
    partition_epoch: Int32 = -1
    directories: list[Uuid] = field(since=1, default=[])
    eligible_leader_replicas: list[Int32] | None = field(since=2, default=None, tag=1)
    last_known_elr: list[Int32] | None = field(since=2, default=None, tag=2)


@message(key=4, versions=(0, 0), flexible=0)
class ConfigRecord(Message):
    resource_type: Int8
    resource_name: str
    name: str
    value: str | None


@message(key=5, versions=(0, 2), flexible=0)
class PartitionChangeRecord(Message):
    partition_id: Int32 = -1
    topic_id: Uuid
    isr: list[Int32] | None = field(default=None, tag=0)
    leader: Int32 = field(default=-2, tag=1)
    replicas: list[Int32] | None = field(default=None, tag=2)
    removing_replicas: list[Int32] | None = field(default=None, tag=3)
    adding_replicas: list[Int32] | None = field(default=None, tag=4)
    leader_recovery_state: Int8 = field(default=-1, tag=5)
    directories: list[Uuid] | None = field(since=1, default=None, tag=8)
    eligible_leader_replicas: list[Int32] | None = field(since=2, default=None, tag=6)
    last_known_elr: list[Int32] | None = field(since=2, default=None, tag=7)


@message(key=7, versions=(0, 0), flexible=0)
class FenceBrokerRecord(Message):
    id: Int32
    epoch: Int64


@message(key=8, versions=(0, 0), flexible=0)
class UnfenceBrokerRecord(Message):
    id: Int32
    epoch: Int64


@message(key=9, versions=(0, 0), flexible=0)
class RemoveTopicRecord(Message):
    topic_id: Uuid


@message(key=10, versions=(0, 0), flexible=0)
class DelegationTokenRecord(Message):
    owner: str
    requester: str
    renewers: list[str]
    issue_timestamp: Int64
    max_timestamp: Int64
    expiration_timestamp: Int64
    token_id: str


@message(key=11, versions=(0, 0), flexible=0)
class UserScramCredentialRecord(Message):
    name: str
    mechanism: Int8
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: Int32


@message(key=12, versions=(0, 0), flexible=0)
class FeatureLevelRecord(Message):
    name: str
    feature_level: Int16


@part
class EntityData:
    entity_type: str
    entity_name: str | None


@message(key=14, versions=(0, 0), flexible=0)
class ClientQuotaRecord(Message):
    entity: list[EntityData]
    key: str
    value: Float64
    remove: bool


@message(key=15, versions=(0, 0), flexible=0)
class ProducerIdsRecord(Message):
    broker_id: Int32
    broker_epoch: Int64 = -1
    next_producer_id: Int64


@message(key=17, versions=(0, 3), flexible=0)
class BrokerRegistrationChangeRecord(Message):
    broker_id: Int32
    broker_epoch: Int64
    fenced: Int8 = field(default=0, tag=0)
    in_controlled_shutdown: Int8 = field(since=1, default=0, tag=1)
    log_dirs: list[Uuid] = field(since=2, default=[], tag=2)
    cordoned_log_dirs: list[Uuid] | None = field(since=3, default=None, tag=3)


@message(key=18, versions=(0, 0), flexible=0)
class AccessControlEntryRecord(Message):
    id: Uuid
    resource_type: Int8
    resource_name: str
    pattern_type: Int8
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


@message(key=19, versions=(0, 0), flexible=0)
class RemoveAccessControlEntryRecord(Message):
    id: Uuid


@message(key=20, versions=(0, 0), flexible=0)
class NoOpRecord(Message):
    pass


@message(key=21, versions=(0, 0), flexible=0)
class ZkMigrationStateRecord(Message):
    zk_migration_state: Int8


@message(key=22, versions=(0, 0), flexible=0)
class RemoveUserScramCredentialRecord(Message):
    name: str
    mechanism: Int8


@message(key=23, versions=(0, 0), flexible=0)
class BeginTransactionRecord(Message):
    name: str | None = field(default=None, tag=0)


@message(key=24, versions=(0, 0), flexible=0)
class EndTransactionRecord(Message):
    pass


@message(key=25, versions=(0, 0), flexible=0)
class AbortTransactionRecord(Message):
    reason: str | None = field(default=None, tag=0)


@message(key=26, versions=(0, 0), flexible=0)
class RemoveDelegationTokenRecord(Message):
    token_id: str


@part
class ControllerEndpoint:
    name: str
    host: str
    port: UInt16
    security_protocol: Int16


@part
class ControllerFeature:
    name: str
    min_supported_version: Int16
    max_supported_version: Int16


@message(key=27, versions=(0, 0), flexible=0)
class RegisterControllerRecord(Message):
    controller_id: Int32
    incarnation_id: Uuid
    zk_migration_ready: bool
    end_points: list[ControllerEndpoint]
    features: list[ControllerFeature]


@message(key=28, versions=(0, 0), flexible=0)
class ClearElrRecord(Message):
    topic_name: str


RECORDS: Final[dict[int, type[Message]]] = {
    record.api_key: record
    for record in (
        RegisterBrokerRecord,
        UnregisterBrokerRecord,
        TopicRecord,
        PartitionRecord,
        ConfigRecord,
        PartitionChangeRecord,
        FenceBrokerRecord,
        UnfenceBrokerRecord,
        RemoveTopicRecord,
        DelegationTokenRecord,
        UserScramCredentialRecord,
        FeatureLevelRecord,
        ClientQuotaRecord,
        ProducerIdsRecord,
        BrokerRegistrationChangeRecord,
        AccessControlEntryRecord,
        RemoveAccessControlEntryRecord,
        NoOpRecord,
        ZkMigrationStateRecord,
        RemoveUserScramCredentialRecord,
        BeginTransactionRecord,
        EndTransactionRecord,
        AbortTransactionRecord,
        RemoveDelegationTokenRecord,
        RegisterControllerRecord,
        ClearElrRecord,
    )
}
"""Record type -> its class."""
