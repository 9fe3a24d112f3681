"""Changes of partitions by the controller: ISRs, leaders, reassignments, log directories of replicas. Pure.

Each method checks against the image and returns metadata records, or raises the `BrokerError` of the answer; the
caller appends the records, which changes the image. Several records of one call are computed from the same image, so
they are about different partitions.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from uuid import UUID

from pyclient import errors
from pyclient.broker_embedded.controller import reassignment
from pyclient.broker_embedded.controller.features import ELR_VERSION, METADATA_VERSION
from pyclient.broker_embedded.controller.image import (
    BROKER_RESOURCE,
    NO_LEADER,
    NO_LEADER_CHANGE,
    RECOVERED,
    RECOVERING,
)
from pyclient.broker_embedded.controller.partition_elections import Election, ElectionRules, PartitionChange
from pyclient.broker_embedded.controller.topics import check_assignment
from pyclient.config.topic import TOPIC_OPTIONS
from pyclient.protocol.fields import ZERO_UUID
from pyclient.protocol.messages.alter_partition import (
    AlterPartitionRequestPartitionData,
    AlterPartitionResponsePartitionData,
    BrokerState,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyclient.broker_embedded.config.broker_config import BrokerConfig
    from pyclient.broker_embedded.controller.image import MetadataImage, PartitionImage, TopicImage
    from pyclient.config.options import Value
    from pyclient.protocol.messages.metadata_log import PartitionChangeRecord

log = logging.getLogger("pyclient.broker_embedded")

_ALL_BROKERS: Final = ""

MIGRATING: Final = ZERO_UUID
"""The directory of a replica from before metadata.version 3.7-IV2."""

UNASSIGNED: Final = UUID(int=1)
"""The directory of a replica that its broker has not yet placed."""

LOST: Final = UUID(int=2)
"""The directory of a replica in a directory that failed before its broker could name it."""

_ELR_SINCE: Final = 23  # metadata.version 4.0-IV1
_NONE: Final = -1


class TopicOptions(Protocol):
    """The options of topics that elections depend on."""

    def min_insync_replicas(self, topic: str) -> int:
        """Return min.insync.replicas of a topic."""

    def unclean_leader_election(self, topic: str) -> bool:
        """Return unclean.leader.election.enable of a topic."""


class LocatedPartition(NamedTuple):
    """A partition of the image with its topic."""

    topic: TopicImage
    partition: PartitionImage


@dataclass(slots=True)
class IsrAnswer:
    """The answer to one partition of an AlterPartition, and the record of the change if there is one."""

    data: AlterPartitionResponsePartitionData
    record: PartitionChangeRecord | None = None


@dataclass(frozen=True, slots=True)
class _Brokers:
    """The brokers that a change treats differently from what the image says of them."""

    removed: int = _NONE
    added: int = _NONE
    unclean: int = _NONE


class ImageTopicOptions:
    """Options as they are set on a topic, else on all brokers, else in this node's configuration."""

    def __init__(self, image: MetadataImage, config: BrokerConfig) -> None:
        self._image = image
        self._config = config

    def min_insync_replicas(self, topic: str) -> int:
        """Return min.insync.replicas of a topic."""
        value = self._value(topic, "min.insync.replicas")
        assert isinstance(value, int)
        return value

    def unclean_leader_election(self, topic: str) -> bool:
        """Return unclean.leader.election.enable of a topic."""
        return self._value(topic, "unclean.leader.election.enable") is True

    def _value(self, topic: str, name: str) -> Value:
        text = self._image.topic_configs(topic).get(name)
        if text is None:
            text = self._image.configs.get((BROKER_RESOURCE, _ALL_BROKERS), {}).get(name)
        return self._config.values[name] if text is None else TOPIC_OPTIONS[name].parse(text)


@dataclass(slots=True)
class ReplicationControl:
    """The controller's decisions about partitions.

    `directory` returns the log directory of a new replica on a broker.
    """

    image: MetadataImage
    options: TopicOptions
    directory: Callable[[int], UUID] = field(default=lambda broker: UNASSIGNED)

    # ---- what brokers are

    def is_active(self, broker: int) -> bool:
        """Return True for a broker that may lead partitions and be in their ISR."""
        found = self.image.brokers.get(broker)
        return found is not None and found.active

    def has_online_directory(self, broker: int, directory: UUID | None) -> bool:
        """Return True if a broker's directory is not known to have failed."""
        found = self.image.brokers.get(broker)
        if found is None or directory == LOST:
            return False
        return directory in (None, UNASSIGNED, MIGRATING, *found.log_dirs) or not found.log_dirs

    def leads_any(self, broker: int) -> bool:
        """Return True if a broker leads a partition."""
        return any(located.partition.leader == broker for located in self._partitions())

    @property
    def elr_enabled(self) -> bool:
        """True if replicas that leave an ISR below min.insync.replicas stay eligible as leaders (KIP-966)."""
        features = self.image.features
        return features.get(ELR_VERSION, 0) > 0 and self._level >= _ELR_SINCE

    def min_isr(self, topic: TopicImage) -> int:
        """Return min.insync.replicas of a topic, at most its number of replicas."""
        return min(self.options.min_insync_replicas(topic.name), len(topic.partitions[0].replicas))

    # ---- AlterPartition

    def alter_isr(
        self, broker: int, topic_id: UUID, wanted: AlterPartitionRequestPartitionData, *, version: int
    ) -> IsrAnswer:
        """Return the answer to a leader's wanted ISR."""
        index = wanted.partition_index
        topic = self.image.topics_by_id.get(topic_id)
        if topic is None:
            return _refused(index, errors.UnknownTopicId)
        partition = topic.partitions.get(index)
        if partition is None:
            return _refused(index, errors.UnknownTopicOrPartition)
        states = wanted.new_isr_with_epochs
        if version < 3:
            states = [BrokerState(broker_id=each) for each in wanted.new_isr]
        refusal = self._refusal(broker, partition, wanted, states)
        if refusal is not None:
            log.info("AlterPartition of %s-%d by broker %d is refused: %s", topic.name, index, broker, refusal)
            return _refused(index, type(refusal))
        change = self._change(LocatedPartition(topic, partition))
        change.isr = [each.broker_id for each in states]
        change.leader_recovery_state = wanted.leader_recovery_state
        record = change.record()
        if record is not None and record.leader not in (NO_LEADER_CHANGE, broker):
            # the change completes a reassignment that removes the leader: applied, but the sender needs new metadata
            return IsrAnswer(_refused(index, errors.NewLeaderElected).data, record)
        return IsrAnswer(_after(partition, record), record)

    def _refusal(
        self,
        broker: int,
        partition: PartitionImage,
        wanted: AlterPartitionRequestPartitionData,
        states: Sequence[BrokerState],
    ) -> errors.BrokerError | None:
        """Return why a leader's wanted ISR is refused, None if it is accepted. The order is Kafka's."""
        leader_epoch, epoch = wanted.leader_epoch, wanted.partition_epoch
        isr = [each.broker_id for each in states]
        if leader_epoch > partition.leader_epoch or epoch > partition.partition_epoch:
            return errors.NotController(
                f"leader epoch {leader_epoch} or partition epoch {epoch} is above this controller's "
                f"{partition.leader_epoch} and {partition.partition_epoch}: another one is active"
            )
        if leader_epoch < partition.leader_epoch:
            return errors.FencedLeaderEpoch(f"the leader epoch is {partition.leader_epoch}, not {leader_epoch}")
        if broker != partition.leader:
            return errors.InvalidRequest(f"the leader is broker {partition.leader}")
        if epoch < partition.partition_epoch:
            return errors.InvalidUpdateVersion(f"the partition epoch is {partition.partition_epoch}, not {epoch}")
        if len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas):
            return errors.InvalidRequest(f"the ISR {isr} is no set of replicas out of {partition.replicas}")
        if partition.leader not in isr:
            return errors.InvalidRequest(f"the ISR {isr} does not have the leader {partition.leader}")
        if wanted.leader_recovery_state not in (RECOVERED, RECOVERING):
            return errors.InvalidRequest(f"unknown leader recovery state {wanted.leader_recovery_state}")
        if wanted.leader_recovery_state == RECOVERING:
            if len(isr) > 1:
                return errors.InvalidRequest(f"the leader is recovering from an unclean election: no ISR {isr}")
            if partition.leader_recovery_state == RECOVERED:
                return errors.InvalidRequest("the leader recovery state cannot change from RECOVERED to RECOVERING")
        for each in states:
            reason = self._ineligible(each)
            if reason is not None:
                return errors.IneligibleReplica(f"broker {each.broker_id} of the ISR {isr} {reason}")
        return None

    def _ineligible(self, state: BrokerState) -> str | None:
        """Return why a broker cannot be in an ISR, None if it can."""
        broker = self.image.brokers.get(state.broker_id)
        if broker is None:
            return "is not registered"
        if broker.in_controlled_shutdown:
            return "is shutting down"
        if broker.fenced:
            return "is fenced"
        if state.broker_epoch not in (-1, broker.epoch):
            return f"has the epoch {broker.epoch}, not {state.broker_epoch}"
        return None

    # ---- brokers that come and go

    def broker_removed(self, broker: int) -> list[PartitionChangeRecord]:
        """Return the changes when a broker is fenced or begins to shut down: it leaves ISRs and leaderships."""
        return self._update(_Brokers(removed=broker), lambda partition: broker in partition.isr)

    def broker_unregistered(self, broker: int) -> list[PartitionChangeRecord]:
        """Return the changes when a broker is removed from the cluster: as `broker_removed`, and it leaves ELRs."""
        return self._update(
            _Brokers(removed=broker, unclean=broker),
            lambda partition: broker in partition.isr or broker in partition.elr,
        )

    def broker_unfenced(self, broker: int) -> list[PartitionChangeRecord]:
        """Return the changes when a broker is unfenced: it may lead partitions that have no leader."""
        return self._update(_Brokers(added=broker), lambda partition: partition.leader == NO_LEADER)

    def unclean_shutdown(self, broker: int) -> list[PartitionChangeRecord]:
        """Return the changes when a broker comes back after a crash: it leaves ISRs and ELRs, as records may be lost.

        Without eligible leader replicas the last member of an ISR stays in it.
        """
        if not self.elr_enabled:
            return self.broker_removed(broker)
        return self._update(
            _Brokers(unclean=broker), lambda partition: broker in partition.isr or broker in partition.elr
        )

    def directories_failed(self, broker: int, failed: Iterable[UUID]) -> list[PartitionChangeRecord]:
        """Return the changes when log directories of a broker failed: its replicas in them leave ISRs."""
        lost = frozenset(failed)
        return self._update(
            _Brokers(removed=broker),
            lambda partition: broker in partition.isr and partition.directory_of(broker) in lost,
        )

    def _update(self, brokers: _Brokers, affected: Callable[[PartitionImage], bool]) -> list[PartitionChangeRecord]:
        out = (brokers.removed, brokers.unclean)

        def alive(broker: int) -> bool:
            return broker not in out and (broker == brokers.added or self.is_active(broker))

        records = []
        for located in self._partitions():
            if not affected(located.partition):
                continue
            change = self._change(located, alive)
            change.isr = [replica for replica in located.partition.isr if replica not in out]
            if brokers.unclean != _NONE:
                change.unclean_shutdown = (brokers.unclean,)
            record = change.record()
            if record is not None:
                records.append(record)
        return records

    # ---- elections

    def elect_leader(self, name: str, index: int, election: Election) -> PartitionChangeRecord:
        """Return the change that elects a leader (`PREFERRED` or `UNCLEAN`) as a client asked.

        Raise `ElectionNotNeeded`, or the reason why no replica can be elected.
        """
        located = self._find(name, index)
        preferred, leader = located.partition.preferred, located.partition.leader
        needed = leader != preferred if election is Election.PREFERRED else leader == NO_LEADER
        if not needed:
            raise errors.ElectionNotNeeded(f"broker {leader} already leads {name}-{index}")
        change = self._change(located, election=election)
        record = change.record()
        if record is not None:
            return record
        if election is Election.PREFERRED:
            raise errors.PreferredLeaderNotAvailable(
                f"preferred leader {preferred} of {name}-{index} is not alive and in sync"
            )
        raise errors.EligibleLeadersNotAvailable(f"no replica of {name}-{index} is available")

    def balance_leaders(self, limit: int) -> list[PartitionChangeRecord]:
        """Return at most `limit` changes that give partitions their preferred leaders."""
        return self._elections(
            Election.PREFERRED, lambda located: located.partition.leader != located.partition.preferred, limit
        )

    def elect_unclean(self, limit: int) -> list[PartitionChangeRecord]:
        """Return at most `limit` unclean elections of partitions without leader whose topics allow them."""
        return self._elections(
            Election.UNCLEAN,
            lambda located: (
                located.partition.leader == NO_LEADER and self.options.unclean_leader_election(located.topic.name)
            ),
            limit,
        )

    def _elections(
        self, election: Election, wanted: Callable[[LocatedPartition], bool], limit: int
    ) -> list[PartitionChangeRecord]:
        records: list[PartitionChangeRecord] = []
        for located in self._partitions():
            if len(records) >= limit:
                break
            if wanted(located):
                record = self._change(located, election=election).record()
                if record is not None:
                    records.append(record)
        return records

    # ---- reassignments

    def reassign(
        self, name: str, index: int, target: Sequence[int], *, may_resize: bool
    ) -> PartitionChangeRecord | None:
        """Return the change that begins a reassignment of a partition's replicas, None if they are as wanted.

        Raise `BrokerError` if it is refused.
        """
        located = self._find(name, index)
        check_assignment([target], self.image.brokers)
        partition = located.partition
        now = len([replica for replica in partition.replicas if replica not in partition.adding])
        if not may_resize and len(target) != now:
            raise errors.InvalidReplicationFactor(
                f"The replication factor is changed from {now} to {len(target)}: {name}-{index} has {now} replicas, "
                "and the request does not allow another number"
            )
        planned = reassignment.plan(partition.replicas, target)
        change = self._change(located)
        change.election = Election.ONLINE
        change.replicas = planned.replicas
        change.removing = planned.removing or partition.removing
        change.adding = planned.adding or partition.adding
        return change.record()

    def cancel_reassignment(self, name: str, index: int) -> PartitionChangeRecord | None:
        """Return the change that cancels a reassignment. Raise `NoReassignmentInProgress` if there is none."""
        located = self._find(name, index)
        if not located.partition.reassigning:
            raise errors.NoReassignmentInProgress(f"{name}-{index} is not being reassigned")
        back = reassignment.reverted(located.partition)
        if back.unclean and not self.options.unclean_leader_election(name):
            raise errors.InvalidReplicaAssignment(
                f"the reassignment of {name}-{index} cannot be cancelled: only added replicas are in sync, so that it "
                "would require an unclean leader election"
            )
        change = self._change(located)
        change.isr, change.replicas = back.isr, back.replicas
        change.removing = change.adding = ()
        return change.record()

    # ---- log directories

    def assign_directory(self, broker: int, topic_id: UUID, index: int, directory: UUID) -> list[PartitionChangeRecord]:
        """Return the changes when a broker reports the log directory of its replica.

        A replica in a directory that is not online also leaves the ISR. One that is lost may be about to be truncated:
        its earlier fetches, which the leader may not have read yet, must not bring it back. Raise `BrokerError` if it
        is refused.
        """
        topic = self.image.topics_by_id.get(topic_id)
        if topic is None:
            raise errors.UnknownTopicId(f"there is no topic with id {topic_id}")
        partition = topic.partitions.get(index)
        if partition is None:
            raise errors.UnknownTopicOrPartition(f"{topic.name} has no partition {index}")
        if broker not in partition.replicas:
            raise errors.NotLeaderOrFollower(f"broker {broker} has no replica of {topic.name}-{index}")
        lost = not self.has_online_directory(broker, directory)
        change = self._change(
            LocatedPartition(topic, partition), lambda each: self.is_active(each) and not (lost and each == broker)
        )
        change.election = Election.ONLINE
        change.directories[broker] = directory
        if lost:
            change.isr = [replica for replica in partition.isr if replica != broker]
            is_news = broker in partition.isr or partition.directory_of(broker) != directory
            change.needs_new_epoch = directory == LOST and is_news
        record = change.record()
        return [] if record is None else [record]

    # ---- parts

    @property
    def _level(self) -> int:
        return self.image.features.get(METADATA_VERSION, 0)

    def _partitions(self) -> Iterator[LocatedPartition]:
        for topic in self.image.topics.values():
            for partition in topic.partitions.values():
                yield LocatedPartition(topic, partition)

    def _find(self, name: str, index: int) -> LocatedPartition:
        topic = self.image.topics.get(name)
        partition = None if topic is None else topic.partitions.get(index)
        if topic is None or partition is None:
            raise errors.UnknownTopicOrPartition(f"partition {name}-{index} does not exist")
        return LocatedPartition(topic, partition)

    def _change(
        self, located: LocatedPartition, alive: Callable[[int], bool] | None = None, election: Election | None = None
    ) -> PartitionChange:
        """Return a change of a partition with the election that its topic allows, unless another is given."""
        accepts = self.is_active if alive is None else alive
        partition = located.partition

        def acceptable(broker: int) -> bool:
            return accepts(broker) and self.has_online_directory(broker, partition.directory_of(broker))

        rules = ElectionRules(acceptable, self.min_isr(located.topic), self.elr_enabled, self._level, self.directory)
        change = PartitionChange(located.topic.topic_id, partition, rules)
        if election is not None:
            change.election = election
        elif self.options.unclean_leader_election(located.topic.name):
            change.election = Election.UNCLEAN
        return change


def _refused(index: int, error: type[errors.BrokerError]) -> IsrAnswer:
    return IsrAnswer(
        AlterPartitionResponsePartitionData(
            partition_index=index, error_code=error.code, leader_id=0, leader_epoch=0, isr=[], partition_epoch=0
        )
    )


def _after(partition: PartitionImage, record: PartitionChangeRecord | None) -> AlterPartitionResponsePartitionData:
    """Return the partition as it is when the record has been applied."""
    changed: Any = record
    led = record is not None and record.leader != NO_LEADER_CHANGE
    recovery = partition.leader_recovery_state
    if record is not None and record.leader_recovery_state >= 0:
        recovery = record.leader_recovery_state
    return AlterPartitionResponsePartitionData(
        partition_index=partition.partition,
        error_code=0,
        leader_id=changed.leader if led else partition.leader,
        leader_epoch=partition.leader_epoch + led,
        isr=list(partition.isr if record is None or record.isr is None else record.isr),
        leader_recovery_state=recovery,
        partition_epoch=partition.partition_epoch + (record is not None),
    )
