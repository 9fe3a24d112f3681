"""The controller of a cluster: validates metadata changes and appends them to the metadata log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from pyclient import errors
from pyclient.broker_embedded.controller import delegation_tokens, scram, topics
from pyclient.broker_embedded.controller.features import ELR_VERSION, METADATA_VERSION, check_update, initial_levels
from pyclient.broker_embedded.controller.image import TOPIC_RESOURCE
from pyclient.broker_embedded.controller.topics import Brokers, Defaults, TopicPlan
from pyclient.protocol.fields import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from random import Random

    from pyclient.acls import AclBinding
    from pyclient.broker_embedded.config.broker_config import BrokerConfig
    from pyclient.broker_embedded.controller.client_quotas import Entity
    from pyclient.broker_embedded.controller.cluster_control import ClusterControl
    from pyclient.broker_embedded.controller.features import OtherNode
    from pyclient.broker_embedded.controller.image import MetadataImage, TopicImage
    from pyclient.broker_embedded.controller.metadata_log import MetadataLog
    from pyclient.broker_embedded.controller.partition_elections import Election
    from pyclient.broker_embedded.controller.replication_control import ReplicationControl
    from pyclient.broker_embedded.controller.session_watch import SessionWatch
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask

log = logging.getLogger("pyclient.broker_embedded")

PRODUCER_ID_BLOCK: Final = 1000
_MIN_ISR: Final = "min.insync.replicas"


def _no_quota(_partitions: int) -> None:
    """Charge nothing: topics that the broker creates itself have no client."""


def _levels_of(release: str | None) -> Mapping[str, int] | None:
    """Return the highest feature levels of a release that the broker emulates, None for this broker's own."""
    if release is None:
        return None
    from pyclient.broker_embedded.releases import release_of

    return release_of(release).features


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A created topic, or with `validate_only` the topic that would be created."""

    name: str
    topic_id: UUID
    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True)
class MetadataCallbacks:
    """Called after metadata changes: with the created or removed topic, or the type and name of a changed resource."""

    topic_created: Callable[[TopicImage], None] = lambda topic: None
    topic_removed: Callable[[TopicImage], None] = lambda topic: None
    configs_changed: Callable[[int, str], None] = lambda resource_type, name: None


class Controller:
    """Performs every metadata change: validate, append to the metadata log, apply.

    `directories` returns the ids of the online log directories, each with True if it is cordoned.
    """

    def __init__(
        self,
        config: BrokerConfig,
        image: MetadataImage,
        log: MetadataLog,
        rng: Random,
        directories: Callable[[], Sequence[tuple[UUID, bool]]] = lambda: [(ZERO_UUID, False)],
        callbacks: MetadataCallbacks = MetadataCallbacks(),
        cluster_id: str = "",
    ) -> None:
        self._config = config
        self._cluster_id = cluster_id
        self._replication: ReplicationControl | None = None
        self._cluster: ClusterControl | None = None
        self._watch: SessionWatch | None = None
        self.active = True
        """True if this node decides; with other voters, the leader of their quorum."""
        self._image = image
        self._log = log
        self._rng = rng
        self._directories = directories
        self._most_levels = _levels_of(config.as_version)
        self._callbacks = callbacks
        self._next_producer_id = 0
        self._end_of_block = 0

    @property
    def node_id(self) -> int:
        """The controller's node id."""
        return self._config.integer("node.id")

    @property
    def brokers(self) -> list[int]:
        """The brokers that replicas can be assigned to."""
        return sorted(broker.node_id for broker in self._image.brokers.values() if not broker.fenced)

    @property
    def image(self) -> MetadataImage:
        """The metadata that changes are based on: with other voters, those that are not committed yet, too."""
        return self._image

    def bootstrap(self) -> None:
        """Append the feature levels to a new log."""
        records = self._first_levels()
        if records:
            self._log.append(records)

    def _first_levels(self) -> list[Any]:
        from pyclient.protocol.messages.metadata_log import FeatureLevelRecord

        if METADATA_VERSION in self._image.features:
            return []
        levels = initial_levels(self._most_levels)
        return [FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items() if level]

    @property
    def replication(self) -> ReplicationControl:
        """The decisions about partitions. Imported and created on first use, which keeps the start short."""
        if self._replication is None:
            from pyclient.broker_embedded.controller.replication_control import ImageTopicOptions, ReplicationControl

            options = ImageTopicOptions(self._image, self._config)
            self._replication = ReplicationControl(self._image, options, self._directory_on)
        return self._replication

    @property
    def cluster(self) -> ClusterControl:
        """The registrations and sessions of brokers."""
        if self._cluster is None:
            from pyclient.broker_embedded.controller.cluster_control import ClusterControl

            timeout = self._config.seconds("broker.session.timeout.ms")
            self._cluster = ClusterControl(self._image, self.replication, timeout, self._cluster_id)
        return self._cluster

    @property
    def has_other_voters(self) -> bool:
        """True in a quorum of several nodes."""
        return bool(self._config.quorum.voters)

    def activate(self, watch: SessionWatch) -> None:
        """Begin to decide as the leader of the quorum: every registered broker has a session from now on."""
        self.active = True
        self.bootstrap()
        self._watch = watch
        watch.start(self)

    def resign(self) -> None:
        """Stop deciding: another node leads the quorum, or this one closes."""
        self.active = False
        if self._watch is not None:
            self._watch.stop()

    def sessions_changed(self) -> None:
        """Schedule the check for the end of a broker's session."""
        if self._watch is not None:
            self._watch.sessions_changed()

    def connection_ended(self, connection: object) -> None:
        """Note the end of a connection of another node, which may have been killed."""
        if self._watch is not None:
            self._watch.connection_ended(connection)

    def check_active(self) -> None:
        """Raise `NotController` if another node leads the quorum."""
        if not self.active:
            raise errors.NotController(f"node {self.node_id} is not the active controller: ask the quorum's leader")

    def append(self, records: Sequence[Any]) -> None:
        """Append records that the caller has decided on; an empty sequence does nothing."""
        if records:
            self._log.append(records)

    @property
    def end_offset(self) -> int:
        """The offset of the next metadata record."""
        return self._log.end_offset

    def note_commits(self, now: float) -> bool:
        """Note how far the metadata log is committed. Return True if sessions may end again, after a stall."""
        return self.cluster.note_commits(self._log.high_watermark, self._log.end_offset, now)

    def register(self, endpoints: Sequence[tuple[str, str, int, int]]) -> None:
        """Append this node's registration, and in a new log the feature levels.

        `endpoints` are name, host, port and protocol of its listeners.
        """
        from pyclient.protocol.messages.metadata_log import BrokerEndpoint, RegisterBrokerRecord

        records = self._first_levels()
        records.append(
            RegisterBrokerRecord(
                broker_id=self.node_id,
                incarnation_id=self.new_id(),
                broker_epoch=self._log.end_offset + len(records),
                end_points=[
                    BrokerEndpoint(name=name, host=host, port=port, security_protocol=protocol)
                    for name, host, port, protocol in endpoints
                ],
                features=[],
                rack=self._config.text("broker.rack"),
                fenced=False,
                log_dirs=[directory for directory, _cordoned in self._directories()],
            )
        )
        self._log.append(records)

    def elect(self, *, after_crash: bool) -> None:
        """Elect this node as leader of its partitions without one: a Kafka that shuts down resigns its leaderships.

        `after_crash` also starts a new leader epoch in the partitions that it leads: the end of a log may be lost, and
        clients detect that by the epoch (KIP-320).
        """
        from pyclient.protocol.messages.metadata_log import PartitionChangeRecord

        brokers = self.brokers
        changes = [
            PartitionChangeRecord(
                partition_id=partition.partition,
                topic_id=topic.topic_id,
                leader=self.node_id,
                isr=None if self.node_id in partition.isr else [self.node_id],
            )
            for topic in self._image.topics.values()
            for partition in topic.partitions.values()
            if self.node_id in partition.replicas
            and (partition.leader not in brokers or (after_crash and partition.leader == self.node_id))
        ]
        if changes:
            self._log.append(changes)

    def new_id(self) -> UUID:
        """Return a random id whose text form has no leading dash, which Kafka's tools would parse as an option."""
        while True:
            candidate = UUID(int=self._rng.getrandbits(128), version=4)
            if candidate.bytes[0] >> 2 != 62:
                return candidate

    def create_topic(
        self, plan: TopicPlan, *, validate_only: bool = False, charge: Callable[[int], None] = _no_quota
    ) -> IncrementalTask[NewTopic]:
        """Create a topic. Raise `BrokerError` if it is refused.

        `charge` is called with the number of partitions once everything else is valid, and may raise. Many partitions
        take steps; the topic appears with all of them in the last one.
        """
        topic_id: UUID | None = None
        while True:
            topics.check_new_name(self._image, plan.name)
            configs = topics.check_configs(plan.configs)
            defaults = Defaults(
                self._config.integer("num.partitions"), self._config.integer("default.replication.factor")
            )
            brokers = self._brokers()
            basis = self._basis()
            replicas = yield from topics.replicas_of(plan, brokers, defaults, self._rng)
            factor = len(replicas[0])
            assigned = yield from topics.assigned_partitions(
                replicas, brokers, self._image.directory_sizes, by_hand=bool(plan.assignments), factor=factor
            )
            if topic_id is None:
                charge(len(assigned))
                topic_id = self.new_id()
            if validate_only:
                break
            records = topics.records_for_new_topic(plan.name, topic_id, assigned, configs)
            encoded = yield from self._log.encode_topic(topic_id, records)
            topics.check_new_name(self._image, plan.name)  # again: other requests were served between the steps
            if basis == self._basis():
                self._log.append_topic(encoded)
                self._callbacks.topic_created(self._image.topics[plan.name])
                break
        return NewTopic(plan.name, topic_id, len(assigned), factor)

    def _brokers(self) -> Brokers:
        return Brokers.of(self._image, {self.node_id: self._directories()})

    def _basis(self) -> object:
        """Return the state that the records of partitions depend on."""
        return self._log.level, self._brokers()

    def _directory_on(self, broker: int) -> UUID:
        """Return the log directory of a new replica on a broker: the one with the fewest."""
        known = self._brokers().directories.get(broker, ())
        online = [directory for directory, cordoned in known if not cordoned] or [directory for directory, _ in known]
        return min(online, key=lambda each: self._image.directory_sizes.get(each, 0), default=ZERO_UUID)

    def delete_topic(self, topic: TopicImage, *, charge: Callable[[int], None] = _no_quota) -> None:
        """Delete a topic and its data. Raise `TopicDeletionDisabled`; for `charge` see `create_topic`."""
        if not self._config.boolean("delete.topic.enable"):
            raise errors.TopicDeletionDisabled("topic deletion is disabled: delete.topic.enable is false")
        charge(len(topic.partitions))
        self._log.append([topics.record_for_removal(topic)])
        self._callbacks.topic_removed(topic)

    def create_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None,
        *,
        validate_only: bool = False,
        charge: Callable[[int], None] = _no_quota,
    ) -> IncrementalTask[None]:
        """Increase a topic to `count` partitions. Raise `BrokerError` if it is refused.

        For `charge` and the steps see `create_topic`.
        """
        charged = False
        while True:
            topic = self._image.topics.get(name)
            if topic is None:
                raise errors.UnknownTopicOrPartition(f"topic {name!r} does not exist")
            brokers = self._brokers()
            first, basis = len(topic.partitions), self._basis()
            replicas = yield from topics.replicas_to_add(topic, count, assignments, brokers, self._rng)
            assigned = yield from topics.assigned_partitions(
                replicas, brokers, self._image.directory_sizes, by_hand=assignments is not None, factor=0
            )
            if not charged:
                charge(len(assigned))
                charged = True
            if validate_only:
                return
            records = topics.records_for_partitions(topic.topic_id, first, assigned)
            encoded = yield from self._log.encode_topic(topic.topic_id, records)
            # other requests were served between the steps
            unchanged = self._image.topics.get(name) is topic and len(topic.partitions) == first
            if unchanged and basis == self._basis():
                self._log.append_topic(encoded)
                return

    def alter_configs(self, resource_type: int, name: str, changes: Mapping[str, str | None]) -> None:
        """Append changed options of a resource (None removes one); the caller has validated them."""
        if not changes:
            return
        from pyclient.protocol.messages.metadata_log import ClearElrRecord, ConfigRecord

        records: list[Any] = [
            ConfigRecord(resource_type=resource_type, resource_name=name, name=option, value=value)
            for option, value in changes.items()
        ]
        if _MIN_ISR in changes and self._image.features.get(ELR_VERSION, 0):
            # the eligible leader replicas depend on it; an empty name means all topics
            records.append(ClearElrRecord(topic_name=name if resource_type == TOPIC_RESOURCE else ""))
        self._log.append(records)
        self._callbacks.configs_changed(resource_type, name)

    def update_features(self, updates: Mapping[str, tuple[int, int]], *, validate_only: bool) -> None:
        """Change feature levels (level, upgrade type), all or none. Raise `InvalidUpdateVersion`."""
        from pyclient.protocol.messages.metadata_log import ClearElrRecord, FeatureLevelRecord

        levels = self._image.features
        others = list(self._other_nodes())
        for name, (level, upgrade_type) in updates.items():
            check_update(name, level, upgrade_type, levels, self.node_id, self._most_levels, others)
        records: list[Any] = [
            FeatureLevelRecord(name=name, feature_level=level)
            for name, (level, _type) in updates.items()
            if levels.get(name, 0) != level
        ]
        if levels.get(ELR_VERSION, 0) and updates.get(ELR_VERSION, (1, 0))[0] == 0:
            records.append(ClearElrRecord(topic_name=""))
        if records and not validate_only:
            self._log.append(records)

    def _other_nodes(self) -> Iterator[OtherNode]:
        """Yield the registered nodes and their features. A controller that never registered is taken to support all."""
        for broker in self._image.brokers.values():
            if broker.node_id != self.node_id:
                yield f"Broker {broker.node_id}", broker.features
        for controller in self._image.controllers.values():
            if controller.node_id != self.node_id:
                yield f"Controller {controller.node_id}", controller.features

    def alter_client_quotas(self, entity: Entity, changes: Mapping[str, float | None]) -> None:
        """Set quotas of an entity (None removes one); the caller has validated them."""
        from pyclient.protocol.messages.metadata_log import ClientQuotaRecord, EntityData

        current = self._image.client_quotas.get(entity, {})
        named = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
        records = [
            ClientQuotaRecord(entity=named, key=key, value=value or 0.0, remove=value is None)
            for key, value in changes.items()
            if current.get(key) != value
        ]
        if records:
            self._log.append(records)

    def alter_scram_credentials(self, records: Sequence[Any]) -> None:
        """Append records that set or remove SCRAM credentials; the caller has validated them."""
        self._log.append(records)

    def set_passwords(self, passwords: Mapping[str, str]) -> None:
        """Give users their credentials of every SCRAM mechanism, where they have none of that password."""
        known = self._image.scram_credentials
        wanted = [(user, mechanism, password) for user, password in passwords.items() for mechanism in scram.MECHANISMS]
        records = [
            scram.record_of_password(*each)
            for each in wanted
            if (found := known.get(each[:2])) is None or not scram.is_of(found, each[1], each[2])
        ]
        if records:
            self._log.append(records)

    def remove_expired_tokens(self, now_ms: int) -> None:
        """Append records that remove the delegation tokens which have expired."""
        records = delegation_tokens.removals(self._image.delegation_tokens.values(), now_ms)
        self.append(records)
        for record in records:
            log.info("delegation token %s has expired and is removed", record.token_id)

    def add_acls(self, acls: Iterable[AclBinding]) -> None:
        """Append those ACLs that are not there yet."""
        from pyclient.broker_embedded.controller.acls import records_of

        self.append(records_of(acls, self._image.acls, self.new_id))

    def elect_leader(self, name: str, index: int, election: Election) -> None:
        """Elect a leader. Raise `ElectionNotNeeded`, or the reason why no replica can be elected."""
        self._log.append([self.replication.elect_leader(name, index, election)])

    def reassign(self, name: str, index: int, replicas: Sequence[int] | None, *, may_resize: bool) -> None:
        """Begin to change the replicas of a partition, with None end what is in progress.

        Raise `BrokerError` if it is refused.
        """
        if replicas is None:
            record = self.replication.cancel_reassignment(name, index)
        else:
            record = self.replication.reassign(name, index, replicas, may_resize=may_resize)
        self.append([] if record is None else [record])

    def assign_directory(self, name: str, index: int, directory: UUID) -> None:
        """Record the log directory of this node's replica of a partition."""
        from pyclient.protocol.messages.metadata_log import PartitionChangeRecord

        topic = self._image.topics.get(name)
        partition = self._image.partition(name, index)
        if topic is None or partition is None or self.node_id not in partition.replicas:
            return
        if partition.directory_of(self.node_id) == directory:
            return
        directories = [partition.directory_of(replica) or ZERO_UUID for replica in partition.replicas]
        directories[partition.replicas.index(self.node_id)] = directory
        self._log.append([PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id, directories=directories)])

    def next_producer_id(self) -> int:
        """Return a producer id that was never used. Blocks of ids are reserved in the log before use."""
        if self._next_producer_id == self._end_of_block:
            broker = self._image.brokers[self.node_id]
            first = self.allocate_producer_ids(self.node_id, broker.epoch)
            self._next_producer_id, self._end_of_block = first, first + PRODUCER_ID_BLOCK
        self._next_producer_id += 1
        return self._next_producer_id - 1

    def allocate_producer_ids(self, broker: int, epoch: int) -> int:
        """Reserve a block of producer ids for a broker; return the first one."""
        from pyclient.protocol.messages.metadata_log import ProducerIdsRecord

        first = self._image.next_producer_id
        end = first + PRODUCER_ID_BLOCK
        if end >= 2**63:
            raise errors.UnknownServerError("all producer ids have been allocated")
        self._log.append([ProducerIdsRecord(broker_id=broker, broker_epoch=epoch, next_producer_id=end)])
        return first
