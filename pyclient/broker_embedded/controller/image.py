"""The replayed state of the metadata log: topics, configurations, brokers, features, quotas, producer ids."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from pyclient.broker_embedded.controller.acls import acl_in
from pyclient.broker_embedded.controller.delegation_tokens import token_in
from pyclient.broker_embedded.controller.scram import Credential
from pyclient.protocol.fields import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from pyclient.acls import AclBinding
    from pyclient.broker_embedded.controller.client_quotas import Entity
    from pyclient.broker_embedded.controller.delegation_tokens import Token
    from pyclient.broker_embedded.controller.scram import Key
    from pyclient.protocol.messages.metadata_log import (
        AccessControlEntryRecord,
        BrokerRegistrationChangeRecord,
        ClearElrRecord,
        ClientQuotaRecord,
        ConfigRecord,
        DelegationTokenRecord,
        FeatureLevelRecord,
        FenceBrokerRecord,
        PartitionChangeRecord,
        PartitionRecord,
        ProducerIdsRecord,
        RegisterBrokerRecord,
        RegisterControllerRecord,
        RemoveAccessControlEntryRecord,
        RemoveDelegationTokenRecord,
        RemoveTopicRecord,
        RemoveUserScramCredentialRecord,
        TopicRecord,
        UnregisterBrokerRecord,
        UserScramCredentialRecord,
    )

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
LOGGER_RESOURCE: Final = 8
METRICS_RESOURCE: Final = 16
GROUP_RESOURCE: Final = 32
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2
RECOVERED: Final = 0
RECOVERING: Final = 1


@dataclass(slots=True)
class PartitionImage:
    """One partition; `leader` is -1 if it has none. A change replaces the object, so that images can share it.

    `leader_recovery_state` is `RECOVERING` from an unclean election until that leader reports `RECOVERED`. `elr` are
    the eligible leader replicas (KIP-966): outside the ISR, but with all committed records. `last_known_elr` is the
    last leader of a partition whose ISR became empty.
    """

    partition: int
    replicas: list[int]
    isr: list[int]
    leader: int
    leader_epoch: int
    partition_epoch: int = 0
    removing: list[int] = field(default_factory=list)
    adding: list[int] = field(default_factory=list)
    directories: list[UUID] = field(default_factory=list)
    leader_recovery_state: int = RECOVERED
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    @property
    def preferred(self) -> int:
        """Return the preferred leader, which is the first replica."""
        return self.replicas[0] if self.replicas else NO_LEADER

    @property
    def reassigning(self) -> bool:
        """True while replicas are added or removed."""
        return bool(self.adding or self.removing)

    def directory_of(self, node_id: int) -> UUID | None:
        """Return the id of the log directory with a node's replica; None if unknown."""
        if node_id not in self.replicas or len(self.directories) != len(self.replicas):
            return None
        return self.directories[self.replicas.index(node_id)]


@dataclass(slots=True)
class TopicImage:
    """One topic and its partitions by number."""

    name: str
    topic_id: UUID
    partitions: dict[int, PartitionImage] = field(default_factory=dict)

    @property
    def internal(self) -> bool:
        """True for a topic that the brokers use internally."""
        return self.name in INTERNAL_TOPICS


@dataclass(slots=True)
class BrokerImage:
    """One registered broker; `epoch` is the offset of its registration, `incarnation` the id of its process.

    A change replaces the object.

    `endpoints` are name, host and port of its listeners, and `protocols` their security protocols' numbers.
    `log_dirs` are its online log directories, `cordoned` those that get no new replicas. A broker of an old
    metadata.version reports no directories. `features` are the names of features with the first and last level that it
    supports.
    """

    node_id: int
    epoch: int
    endpoints: list[tuple[str, str, int]]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool = False
    incarnation: UUID = ZERO_UUID
    log_dirs: tuple[UUID, ...] = ()
    cordoned: tuple[UUID, ...] = ()
    protocols: tuple[int, ...] = ()
    features: tuple[tuple[str, int, int], ...] = ()

    def endpoint(self, listener: str) -> tuple[str, int] | None:
        """Return host and port of a listener; None if the broker has none of that name."""
        return next(((host, port) for name, host, port in self.endpoints if name == listener), None)

    @property
    def active(self) -> bool:
        """True for a broker that may lead partitions and be in their ISR."""
        return not self.fenced and not self.in_controlled_shutdown

    @property
    def usable(self) -> bool:
        """True for a broker that new replicas may be placed on.

        One in controlled shutdown is not, until it is fenced: then it gets replicas as every stopped broker does.
        """
        return self.fenced or not self.in_controlled_shutdown


@dataclass(frozen=True, slots=True)
class ControllerImage:
    """One registered controller (KIP-919); `incarnation` is the id of its process.

    `endpoints` are name, host, port and the security protocol's number of its listeners. `features` are the names of
    features with the first and last level that it supports.
    """

    node_id: int
    incarnation: UUID
    endpoints: tuple[tuple[str, str, int, int], ...]
    features: tuple[tuple[str, int, int], ...]


class NewPartitions:
    """Partitions of one topic from its records, collected one by one so that they can be added to an image at once."""

    __slots__ = ("directories", "partitions", "topic_id")

    def __init__(self, topic_id: UUID) -> None:
        self.topic_id = topic_id
        self.partitions: dict[int, PartitionImage] = {}
        self.directories: Counter[UUID] = Counter()

    def add(self, record: PartitionRecord) -> None:
        """Collect a partition."""
        self.partitions[record.partition_id] = _partition_of(record)
        self.directories.update(record.directories)


def _partition_of(record: PartitionRecord) -> PartitionImage:
    return PartitionImage(
        record.partition_id,
        list(record.replicas),
        list(record.isr),
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        list(record.removing_replicas),
        list(record.adding_replicas),
        list(record.directories),
        record.leader_recovery_state,
        tuple(record.eligible_leader_replicas or ()),
        tuple(record.last_known_elr or ()),
    )


class MetadataImage:
    """The replayed state. `apply` is called with the log's records in order; `version` counts them."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicImage] = {}
        self.topics_by_id: dict[UUID, TopicImage] = {}
        self._colliding: dict[str, set[str]] = {}  # topic names with `.` or `_`, by their name in metrics
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.brokers: dict[int, BrokerImage] = {}
        self.controllers: dict[int, ControllerImage] = {}
        self.features: dict[str, int] = {}
        self.client_quotas: dict[Entity, dict[str, float]] = {}
        self.scram_credentials: dict[Key, Credential] = {}
        self.scram_iterations: Counter[tuple[int, int]] = Counter()
        """(mechanism, iterations) -> number of credentials with them."""
        self.delegation_tokens: dict[str, Token] = {}
        """The tokens by their ids."""
        self.acls: dict[UUID, AclBinding] = {}
        self.acls_version = 0
        self.next_producer_id = 0
        self.version = 0
        """Rises with every record that is applied, and when the metadata quorum has another leader."""
        self.directory_sizes: Counter[UUID] = Counter()
        """Number of replicas in each log directory."""

    def __repr__(self) -> str:
        return f"<MetadataImage {len(self.topics)} topics, {len(self.brokers)} brokers, version {self.version}>"

    def copy(self) -> MetadataImage:
        """Return an image that changes independently of this one."""
        made = MetadataImage()
        made.topics = {name: replace(topic, partitions=dict(topic.partitions)) for name, topic in self.topics.items()}
        made.topics_by_id = {topic.topic_id: topic for topic in made.topics.values()}
        made._colliding = {name: set(topics) for name, topics in self._colliding.items()}
        made.configs = {resource: dict(options) for resource, options in self.configs.items()}
        made.brokers = dict(self.brokers)
        made.controllers = dict(self.controllers)
        made.features = dict(self.features)
        made.client_quotas = {entity: dict(quotas) for entity, quotas in self.client_quotas.items()}
        made.scram_credentials = dict(self.scram_credentials)
        made.scram_iterations = self.scram_iterations.copy()
        made.delegation_tokens = dict(self.delegation_tokens)
        made.acls = dict(self.acls)
        made.acls_version = self.acls_version
        made.next_producer_id = self.next_producer_id
        made.version = self.version
        made.directory_sizes = self.directory_sizes.copy()
        return made

    def become(self, other: MetadataImage) -> None:
        """Take over the contents of another image; every reader of this one sees them from now on."""
        for name, value in vars(other).items():
            own = getattr(self, name)
            if isinstance(own, dict):  # kept: others refer to it
                own.clear()
                own.update(value)
        self.next_producer_id = other.next_producer_id
        self.version += 1
        self.acls_version += 1

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with an id; None if there is none."""
        topic = self.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def topic_configs(self, topic: str) -> dict[str, str]:
        """Return the options set on the topic itself."""
        return self.configs.get((TOPIC_RESOURCE, topic), {})

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        """Return the partition, None if the topic or partition does not exist."""
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(index)

    def colliding_topic(self, topic: str) -> str | None:
        """Return a topic whose name differs only by `.` and `_`, so that their metric names collide."""
        return next((other for other in self._colliding.get(topic.replace(".", "_"), ()) if other != topic), None)

    def apply(self, record: Any) -> None:
        """Apply a record. Types that are not interpreted change nothing."""
        change = _CHANGES.get(record.api_key)
        if change is not None:
            change(self, record)
        self.version += 1

    def add_partitions(self, new: NewPartitions) -> None:
        """Apply the records of new partitions of an existing topic at once."""
        self.topics_by_id[new.topic_id].partitions.update(new.partitions)
        self.directory_sizes.update(new.directories)
        self.version += len(new.partitions)

    def _register_broker(self, record: RegisterBrokerRecord) -> None:
        endpoints = [(point.name, point.host, point.port) for point in record.end_points]
        protocols = tuple(point.security_protocol for point in record.end_points)
        self.brokers[record.broker_id] = BrokerImage(
            record.broker_id,
            record.broker_epoch,
            endpoints,
            record.rack,
            record.fenced,
            record.in_controlled_shutdown,
            record.incarnation_id,
            tuple(record.log_dirs),
            tuple(record.cordoned_log_dirs or ()),
            protocols,
            tuple((each.name, each.min_supported_version, each.max_supported_version) for each in record.features),
        )

    def _unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self.brokers.pop(record.broker_id, None)

    def _register_controller(self, record: RegisterControllerRecord) -> None:
        self.controllers[record.controller_id] = ControllerImage(
            record.controller_id,
            record.incarnation_id,
            tuple((each.name, each.host, each.port, each.security_protocol) for each in record.end_points),
            tuple((each.name, each.min_supported_version, each.max_supported_version) for each in record.features),
        )

    def _change_registration(self, record: BrokerRegistrationChangeRecord) -> None:
        known = self.brokers.get(record.broker_id)
        if known is None:
            return
        broker = self.brokers[record.broker_id] = replace(known)
        if record.fenced:
            broker.fenced = record.fenced > 0
        if record.in_controlled_shutdown:
            broker.in_controlled_shutdown = record.in_controlled_shutdown > 0
        if record.log_dirs:
            broker.log_dirs = tuple(record.log_dirs)
        if record.cordoned_log_dirs is not None:
            broker.cordoned = tuple(record.cordoned_log_dirs)

    def _fence_broker(self, record: FenceBrokerRecord) -> None:
        self._set_fenced(record.id, True)

    def _unfence_broker(self, record: FenceBrokerRecord) -> None:
        self._set_fenced(record.id, False)

    def _set_fenced(self, node_id: int, fenced: bool) -> None:
        broker = self.brokers.get(node_id)
        if broker is not None:
            self.brokers[node_id] = replace(broker, fenced=fenced)

    def _add_topic(self, record: TopicRecord) -> None:
        topic = TopicImage(record.name, record.topic_id)
        self.topics[record.name] = topic
        self.topics_by_id[record.topic_id] = topic
        if "." in topic.name or "_" in topic.name:
            self._colliding.setdefault(topic.name.replace(".", "_"), set()).add(topic.name)

    def _add_partition(self, record: PartitionRecord) -> None:
        self.topics_by_id[record.topic_id].partitions[record.partition_id] = _partition_of(record)
        self.directory_sizes.update(record.directories)

    def _change_partition(self, record: PartitionChangeRecord) -> None:
        partitions = self.topics_by_id[record.topic_id].partitions
        partition = replace(partitions[record.partition_id])
        if record.replicas is not None:
            partition.replicas = list(record.replicas)
        if record.isr is not None:
            partition.isr = list(record.isr)
        if record.removing_replicas is not None:
            partition.removing = list(record.removing_replicas)
        if record.adding_replicas is not None:
            partition.adding = list(record.adding_replicas)
        if record.directories is not None:
            self.directory_sizes.subtract(partition.directories)
            partition.directories = list(record.directories)
            self.directory_sizes.update(partition.directories)
        if record.leader != NO_LEADER_CHANGE:
            partition.leader = record.leader
            partition.leader_epoch += 1
        if record.leader_recovery_state >= 0:
            partition.leader_recovery_state = record.leader_recovery_state
        if record.eligible_leader_replicas is not None:
            partition.elr = tuple(record.eligible_leader_replicas)
        if record.last_known_elr is not None:
            partition.last_known_elr = tuple(record.last_known_elr)
        partition.partition_epoch += 1
        partitions[record.partition_id] = partition

    def _clear_elr(self, record: ClearElrRecord) -> None:
        """Forget the eligible leader replicas of a topic, or with an empty name of all."""
        if record.topic_name:
            topic = self.topics.get(record.topic_name)
            topics = [] if topic is None else [topic]
        else:
            topics = list(self.topics.values())
        for each in topics:
            for index, partition in each.partitions.items():
                if partition.elr or partition.last_known_elr:
                    each.partitions[index] = replace(partition, elr=(), last_known_elr=())

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        topic = self.topics_by_id.pop(record.topic_id)
        for partition in topic.partitions.values():
            self.directory_sizes.subtract(partition.directories)
        del self.topics[topic.name]
        names = self._colliding.get(topic.name.replace(".", "_"), set())
        names.discard(topic.name)
        if not names:
            self._colliding.pop(topic.name.replace(".", "_"), None)
        self.configs.pop((TOPIC_RESOURCE, topic.name), None)

    def _set_config(self, record: ConfigRecord) -> None:
        key = (record.resource_type, record.resource_name)
        options = self.configs.setdefault(key, {})
        if record.value is None:
            options.pop(record.name, None)
        else:
            options[record.name] = record.value
        if not options:
            del self.configs[key]

    def _set_feature(self, record: FeatureLevelRecord) -> None:
        if record.feature_level == 0:
            self.features.pop(record.name, None)
        else:
            self.features[record.name] = record.feature_level

    def _set_client_quota(self, record: ClientQuotaRecord) -> None:
        entity = tuple(sorted((each.entity_type, each.entity_name) for each in record.entity))
        quotas = self.client_quotas.setdefault(entity, {})
        if record.remove:
            quotas.pop(record.key, None)
        else:
            quotas[record.key] = record.value
        if not quotas:
            del self.client_quotas[entity]

    def _set_scram_credential(self, record: UserScramCredentialRecord) -> None:
        self._uncount_iterations(record.name, record.mechanism)
        self.scram_iterations[record.mechanism, record.iterations] += 1
        self.scram_credentials[record.name, record.mechanism] = Credential(
            record.iterations, bytes(record.salt), bytes(record.stored_key), bytes(record.server_key)
        )

    def _remove_scram_credential(self, record: RemoveUserScramCredentialRecord) -> None:
        self._uncount_iterations(record.name, record.mechanism)
        self.scram_credentials.pop((record.name, record.mechanism), None)

    def _uncount_iterations(self, name: str, mechanism: int) -> None:
        found = self.scram_credentials.get((name, mechanism))
        if found is not None:
            self.scram_iterations[mechanism, found.iterations] -= 1
            self.scram_iterations += Counter()  # without those of no credential

    def _set_delegation_token(self, record: DelegationTokenRecord) -> None:
        self.delegation_tokens[record.token_id] = token_in(record)

    def _remove_delegation_token(self, record: RemoveDelegationTokenRecord) -> None:
        self.delegation_tokens.pop(record.token_id, None)

    def _set_acl(self, record: AccessControlEntryRecord) -> None:
        self.acls[record.id] = acl_in(record)
        self.acls_version += 1

    def _remove_acl(self, record: RemoveAccessControlEntryRecord) -> None:
        self.acls.pop(record.id, None)
        self.acls_version += 1

    def _set_producer_ids(self, record: ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id


_CHANGES: Final[dict[int, Callable[[MetadataImage, Any], None]]] = {
    0: MetadataImage._register_broker,
    1: MetadataImage._unregister_broker,
    2: MetadataImage._add_topic,
    3: MetadataImage._add_partition,
    4: MetadataImage._set_config,
    5: MetadataImage._change_partition,
    7: MetadataImage._fence_broker,
    8: MetadataImage._unfence_broker,
    9: MetadataImage._remove_topic,
    10: MetadataImage._set_delegation_token,
    11: MetadataImage._set_scram_credential,
    12: MetadataImage._set_feature,
    14: MetadataImage._set_client_quota,
    15: MetadataImage._set_producer_ids,
    17: MetadataImage._change_registration,
    18: MetadataImage._set_acl,
    19: MetadataImage._remove_acl,
    22: MetadataImage._remove_scram_credential,
    26: MetadataImage._remove_delegation_token,
    27: MetadataImage._register_controller,
    28: MetadataImage._clear_elr,
}
"""The method that applies each record type."""
