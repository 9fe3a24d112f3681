"""The controller of a single-broker cluster: validates metadata changes and appends them to the metadata log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from pyclient import errors
from pyclient.broker_embedded.controller import topics
from pyclient.broker_embedded.controller.features import METADATA_VERSION, check_update, initial_levels
from pyclient.broker_embedded.controller.topics import Defaults, TopicPlan
from pyclient.protocol.fields import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from pyclient.broker_embedded.config.broker_config import BrokerConfig
    from pyclient.broker_embedded.controller.client_quotas import Entity
    from pyclient.broker_embedded.controller.image import MetadataImage, TopicImage
    from pyclient.broker_embedded.controller.metadata_log import MetadataLog
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask

PRODUCER_ID_BLOCK: Final = 1000


def _no_quota(_partitions: int) -> None:
    """Charge nothing: topics that the broker creates itself have no client."""


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

    `directories` returns the ids of the online log directories, each with True if it is cordoned. `most_levels` are the
    highest feature levels of the release that the broker emulates, None for this broker's own.
    """

    def __init__(
        self,
        config: BrokerConfig,
        image: MetadataImage,
        log: MetadataLog,
        rng: Random,
        directories: Callable[[], Sequence[tuple[UUID, bool]]] = lambda: [(ZERO_UUID, False)],
        most_levels: Mapping[str, int] | None = None,
        callbacks: MetadataCallbacks = MetadataCallbacks(),
    ) -> None:
        self._config = config
        self._image = image
        self._log = log
        self._rng = rng
        self._directories = directories
        self._most_levels = most_levels
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

    def register(self, host: str, port: int) -> None:
        """Append this node's registration, and in a new log the feature levels."""
        from pyclient.protocol.messages.metadata_log import BrokerEndpoint, FeatureLevelRecord, RegisterBrokerRecord

        records: list[Any] = []
        if METADATA_VERSION not in self._image.features:
            levels = initial_levels(self._most_levels)
            records += [FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items() if level]
        records.append(
            RegisterBrokerRecord(
                broker_id=self.node_id,
                incarnation_id=self.new_id(),
                broker_epoch=self._log.end_offset + len(records),
                end_points=[BrokerEndpoint(name="PLAINTEXT", host=host, port=port, security_protocol=0)],
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
            replicas = topics.replicas_of(plan, self.brokers, defaults)
            directories = topics.directories_for(
                len(replicas),
                self._directories(),
                self._image.directory_sizes,
                assigned=bool(plan.assignments),
                replicas=len(replicas[0]),
            )
            if topic_id is None:
                charge(len(replicas))
                topic_id = self.new_id()
            if validate_only:
                break
            basis = self._basis()
            records = topics.records_for_new_topic(plan.name, topic_id, replicas, configs, directories)
            encoded = yield from self._log.encode_topic(topic_id, records)
            topics.check_new_name(self._image, plan.name)  # again: other requests were served between the steps
            if basis == self._basis():
                self._log.append_topic(encoded)
                self._callbacks.topic_created(self._image.topics[plan.name])
                break
        return NewTopic(plan.name, topic_id, len(replicas), len(replicas[0]))

    def _basis(self) -> object:
        """Return the state that the records of partitions depend on."""
        return self._log.level, self.brokers, self._directories()

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
            replicas = topics.replicas_to_add(topic, count, assignments, self.brokers)
            directories = topics.directories_for(
                len(replicas),
                self._directories(),
                self._image.directory_sizes,
                assigned=assignments is not None,
                replicas=0,
            )
            if not charged:
                charge(len(replicas))
                charged = True
            if validate_only:
                return
            first, basis = len(topic.partitions), self._basis()
            records = topics.records_for_partitions(topic.topic_id, first, replicas, directories)
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
        from pyclient.protocol.messages.metadata_log import ConfigRecord

        self._log.append(
            [
                ConfigRecord(resource_type=resource_type, resource_name=name, name=option, value=value)
                for option, value in changes.items()
            ]
        )
        self._callbacks.configs_changed(resource_type, name)

    def update_features(self, updates: Mapping[str, tuple[int, int]], *, validate_only: bool) -> None:
        """Change feature levels (level, upgrade type), all or none. Raise `InvalidUpdateVersion`."""
        from pyclient.protocol.messages.metadata_log import FeatureLevelRecord

        levels = self._image.features
        for name, (level, upgrade_type) in updates.items():
            check_update(name, level, upgrade_type, levels, self.node_id, self._most_levels)
        records = [
            FeatureLevelRecord(name=name, feature_level=level)
            for name, (level, _type) in updates.items()
            if levels.get(name, 0) != level
        ]
        if records and not validate_only:
            self._log.append(records)

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

    def elect_leader(self, name: str, index: int, *, unclean: bool) -> None:
        """Elect a leader. Raise `ElectionNotNeeded`, or the reason why no replica can be elected."""
        partition = self._image.partition(name, index)
        if partition is None:
            raise errors.UnknownTopicOrPartition(f"partition {name}-{index} does not exist")
        preferred = partition.replicas[0] if partition.replicas else -1
        if partition.leader in self.brokers and (unclean or partition.leader == preferred):
            raise errors.ElectionNotNeeded(f"broker {partition.leader} already leads {name}-{index}")
        if unclean:
            raise errors.EligibleLeadersNotAvailable(f"no replica of {name}-{index} is available")
        raise errors.PreferredLeaderNotAvailable(f"preferred leader {preferred} of {name}-{index} is not available")

    def reassign(self, name: str, index: int, replicas: Sequence[int], *, may_resize: bool) -> None:
        """Change the replicas of a partition. Raise `BrokerError` if it is refused."""
        from pyclient.protocol.messages.metadata_log import PartitionChangeRecord

        topic = self._image.topics[name]
        partition = topic.partitions[index]
        topics.check_assignment([replicas], self.brokers)
        if len(replicas) != len(partition.replicas) and not may_resize:
            raise errors.InvalidReplicationFactor(
                f"{name}-{index} has {len(partition.replicas)} replicas, the reassignment has {len(replicas)}"
            )
        if list(replicas) == partition.replicas:
            return
        if partition.leader not in replicas:
            raise errors.InvalidReplicaAssignment(
                f"broker {partition.leader} leads {name}-{index}: replicas cannot be moved to other brokers yet"
            )
        self._log.append(
            [
                PartitionChangeRecord(
                    partition_id=index, topic_id=topic.topic_id, replicas=list(replicas), isr=list(replicas)
                )
            ]
        )

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
            from pyclient.protocol.messages.metadata_log import ProducerIdsRecord

            first = self._image.next_producer_id
            broker = self._image.brokers[self.node_id]
            end = first + PRODUCER_ID_BLOCK
            self._log.append(
                [ProducerIdsRecord(broker_id=self.node_id, broker_epoch=broker.epoch, next_producer_id=end)]
            )
            self._next_producer_id, self._end_of_block = first, end
        self._next_producer_id += 1
        return self._next_producer_id - 1
