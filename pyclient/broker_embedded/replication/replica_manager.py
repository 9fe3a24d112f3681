"""The replicated partitions on a node: carries out what `HostedPartitions` decides about them.

Only nodes with other nodes have a `ReplicaManager`, and only partitions with several replicas are in it.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from pyclient import errors
from pyclient.broker_embedded.controller.image import BROKER_RESOURCE, TOPIC_RESOURCE
from pyclient.broker_embedded.log.damage import end_before_gap, first_damage
from pyclient.broker_embedded.replication.alter_partition import AlterPartitionManager, Proposal
from pyclient.broker_embedded.replication.auto_topic_creation import AutoTopicCreationManager
from pyclient.broker_embedded.replication.damaged_replicas import DamagedReplicas
from pyclient.broker_embedded.replication.hosted_partitions import (
    AdvanceHighWatermark,
    BeginEpoch,
    CheckDamage,
    DeleteLog,
    EndReplication,
    FetchFrom,
    FollowerFetched,
    GiveUpCommits,
    Grown,
    HostedPartition,
    HostedPartitions,
    IsrAccepted,
    IsrRefused,
    LagCheckDue,
    LeadershipChanged,
    LogOpened,
    LogReady,
    NotifyWaiting,
    OpenLog,
    OptionsChanged,
    PartitionChanged,
    Propose,
    ProposeAgain,
    Release,
    ReportIsr,
    Started,
    StopFetching,
    TopicDeleted,
    WakeFetches,
)
from pyclient.broker_embedded.replication.replica_fetcher_manager import ReplicaFetcherManager
from pyclient.broker_embedded.replication.replication_quota import ReplicationQuota
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyclient.broker_embedded.controller.delta import MetadataDelta
    from pyclient.broker_embedded.environment import NodeEnvironment
    from pyclient.broker_embedded.log.data_directory import DataDirectory
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.log.manager import LogManager
    from pyclient.broker_embedded.log.unified_log import UnifiedLog
    from pyclient.broker_embedded.network.node_channels import NodeChannels
    from pyclient.broker_embedded.replication.alter_partition import ControllerChannel
    from pyclient.broker_embedded.replication.hosted_partitions import Effect, Event
    from pyclient.broker_embedded.replication.partition import FollowerFetch, IsrChange, Registration
    from pyclient.broker_embedded.replication.partitions import Partitions
    from pyclient.broker_embedded.replication.purgatory import FetchPurgatory
    from pyclient.protocol.messages.alter_partition import AlterPartitionResponsePartitionData

log = logging.getLogger("pyclient.broker_embedded")

_CHECKS: Final = 2  # checks for slow followers in `replica.lag.time.max.ms`


class _Facts:
    """The metadata and the options of the node, as `HostedPartitions` reads them."""

    def __init__(self, env: NodeEnvironment) -> None:
        self.node_id = env.node_id
        self._env = env

    @property
    def broker_epoch(self) -> int:
        return self._env.broker_epoch

    @property
    def most_lag(self) -> float:
        return self._env.config.seconds("replica.lag.time.max.ms")

    def broker(self, node_id: int) -> Registration | None:
        return self._env.image.brokers.get(node_id)


class LocalLogs(NamedTuple):
    """The logs of a node, the partitions that it leads, and the fetches that wait for these to grow."""

    logs: LogManager
    partitions: Partitions
    purgatory: FetchPurgatory


class ReplicaCallbacks(NamedTuple):
    """The node's callbacks for changes of its replicas."""

    leadership_changed: Callable[[TopicPartition, int | None], None]
    """Called with the leader epoch when this node begins to lead a partition, with None when it stops leading it."""
    fail_directory: Callable[[DataDirectory, str], bool]
    """Takes a log directory offline and reports it; returns False if this node has not registered yet."""
    run_in_background: Callable[[str, IncrementalTask[object]], None]
    """Runs steps between requests, unless those of that name are running."""


class ReplicaManager:
    """The replicated partitions of which this node has a replica.

    `connect` makes the channels to the other nodes.
    """

    def __init__(
        self,
        env: NodeEnvironment,
        local: LocalLogs,
        connect: Callable[[], NodeChannels],
        to_controller: ControllerChannel,
        callbacks: ReplicaCallbacks,
    ) -> None:
        self._env = env
        self._logs, self._partitions, self._purgatory = local
        self._callbacks = callbacks
        self._facts = _Facts(env)
        self._hosted = HostedPartitions(self._facts)
        self.fetchers = ReplicaFetcherManager(env, local.logs, connect)
        self.leader_quota = ReplicationQuota(
            lambda: env.config.integer("leader.replication.throttled.rate"),
            windows=env.config.integer("replication.quota.window.num"),
            seconds=env.config.integer("replication.quota.window.size.seconds"),
        )
        self.auto_creation = AutoTopicCreationManager(to_controller)
        self._proposals = AlterPartitionManager(env, to_controller)
        self._damaged = DamagedReplicas(
            env, local.logs, to_controller, self._fetch_on, self._has_caught_up, callbacks.run_in_background
        )
        self._schedule_lag_check()

    def __repr__(self) -> str:
        return f"<ReplicaManager {self._hosted!r} {self.fetchers!r}>"

    def __iter__(self) -> Iterator[HostedPartition]:
        return iter(self._hosted)

    def find(self, topic: str, index: int) -> HostedPartition | None:
        """Return a replicated partition on this node."""
        return self._hosted.get(TopicPartition(topic, index))

    def offline(self, replicas: list[int]) -> list[int]:
        """Return those of these nodes that are not live."""
        brokers = self._env.image.brokers
        return [node for node in replicas if (broker := brokers.get(node)) is None or broker.fenced]

    def close(self) -> None:
        """Stop fetching and proposing; answer what waits for replication."""
        self._lag_timer.cancel()
        self.fetchers.close()
        self._proposals.close()
        self._damaged.close()
        for hosted in self:
            if hosted.log is not None:
                hosted.log.give_up_commits()

    # Metadata

    def start(self) -> None:
        """Lead and follow the partitions of the metadata, once these have the registration of this incarnation."""
        if self._hosted.is_started:
            return
        self._receive(Started())
        for topic in list(self._env.image.topics.values()):
            for index, state in list(topic.partitions.items()):
                self._receive(PartitionChanged(TopicPartition(topic.name, index), topic.topic_id, None, state))

    def topics_deleted(self, delta: MetadataDelta) -> None:
        """Give up the replicas of deleted topics, whose logs the caller deletes."""
        for topic_partition in delta.partitions:
            hosted = self._hosted.get(topic_partition)
            if hosted is not None and hosted.topic_id in delta.deleted_topics:
                self._receive(TopicDeleted(hosted))

    def apply(self, delta: MetadataDelta) -> None:
        """Act on changes of the metadata, which are in the node's image; before `start` only give up replicas.

        `topics_deleted` comes first: a partition of a deleted topic may have a successor of the same name.
        """
        deleted = set(delta.deleted_topics.values())
        for topic_partition, (earlier, after) in delta.partitions.items():
            before = None if topic_partition.topic in deleted else earlier
            topic = self._env.image.topics.get(topic_partition.topic)
            topic_id = None if topic is None else topic.topic_id
            self._receive(PartitionChanged(topic_partition, topic_id, before, after))
        if any(kind == BROKER_RESOURCE for kind, _name in delta.configs):
            self._options_changed()
        for kind, name in delta.configs:
            if kind == TOPIC_RESOURCE:
                self._options_changed(name)
        if delta.configs:
            self.fetchers.throttle_changed()
        for node_id in delta.brokers:
            self.fetchers.broker_changed(node_id)

    def _options_changed(self, topic: str | None = None) -> None:
        """Apply changed options of a topic, or (None) of brokers, which are the defaults of all topics."""
        for hosted in self:
            if topic in (None, hosted.topic_partition.topic):
                self._receive(OptionsChanged(hosted))

    # Decisions

    def _receive(self, event: Event) -> None:
        for effect in self._hosted.receive(event, self._env.clock.monotonic()):
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case AdvanceHighWatermark(hosted, offset):
                if hosted.log is not None:
                    hosted.log.advance_high_watermark(offset)
            case NotifyWaiting(hosted):
                for callback in list(hosted.after_fetch):
                    callback()
            case Propose(hosted, change):
                self._propose(hosted, change)
            case ReportIsr(hosted, isr):
                log.info("%s: in sync are %s", hosted.topic_partition, sorted(isr))
            case OpenLog(hosted, state):
                opened = self._opened(hosted)
                if opened is not None:  # else it is not open yet, and `LogReady` follows; or it cannot be opened
                    self._receive(LogOpened(hosted, opened, state))
            case FetchFrom(hosted, leader, leader_epoch):
                self._fetch_from(hosted, leader, leader_epoch)
            case CheckDamage(hosted, state):
                self._damaged.check(hosted, state)
            case _:
                self._change_replica(effect)

    def _change_replica(self, effect: Effect) -> None:
        match effect:
            case StopFetching(hosted):
                self.fetchers.forget(hosted.topic_id, hosted.topic_partition.partition)
            case BeginEpoch(hosted, leader_epoch):
                opened = _log_of(hosted)
                text = "%s: leader in epoch %d, from offset %d on"
                log.info(text, hosted.topic_partition, leader_epoch, opened.end_offset)
                opened.begin_epoch(leader_epoch)
            case LeadershipChanged(topic_partition, epoch):
                self._callbacks.leadership_changed(topic_partition, epoch)
            case WakeFetches(hosted):
                self._purgatory.wake(_log_of(hosted))
            case GiveUpCommits(hosted):
                _log_of(hosted).give_up_commits()
            case Release(hosted):
                self._release(hosted)
            case DeleteLog(topic_partition, topic_id):
                self._logs.delete_partition(topic_partition, topic_id)
            case EndReplication(topic_partition):
                for opened in self._logs.opened:
                    if (opened.topic, opened.partition) == topic_partition and opened.replicated:
                        opened.checks_reads = False
                        opened.set_replicated(False)

    def _fetch_from(self, hosted: HostedPartition, leader: int, leader_epoch: int) -> None:
        if self._damaged.may_fetch(hosted):
            opened = _log_of(hosted)
            self._check_end(hosted, opened)
            self.fetchers.follow(hosted.topic_partition, hosted.topic_id, leader, leader_epoch, opened)
        else:
            self.fetchers.forget(hosted.topic_id, hosted.topic_partition.partition)

    def _check_end(self, hosted: HostedPartition, opened: UnifiedLog) -> None:
        """Drop the last batch of a log that was opened if there is a gap before it: the leader has the right one."""
        if hosted.is_end_checked:
            return
        hosted.is_end_checked = True
        try:
            end = end_before_gap(opened)
            if end is not None:
                text = "%s: the last batch does not follow offset %d, it is fetched again"
                log.error(text, hosted.topic_partition, end)
                opened.truncate_to(end)
                self._logs.flush_checkpoints()
        except (OSError, errors.KafkaError) as error:
            self.report_damage(*hosted.topic_partition, error)

    def _opened(self, hosted: HostedPartition) -> UnifiedLog | None:
        """Open or create the log. Return None if that is not possible, or not yet."""
        logs, topic_partition = self._logs, hosted.topic_partition
        if topic_partition in logs.unopened and not logs.recovery_queue.request(topic_partition):
            logs.recovery_queue.on_completion(topic_partition, partial(self._log_ready, hosted))
            return None
        try:
            opened = logs.find(*topic_partition) or self._partitions.create(topic_partition)
        except errors.BrokerError as error:
            log.error("%s has no replica on this node: %s", topic_partition, error)
            return None
        opened.set_replicated(True)
        opened.checks_reads = True
        opened.on_failure = lambda reason: self._env.schedule(0.0, lambda: self._failed(hosted, reason))
        hosted.woken = partial(self._receive, Grown(hosted))
        opened.on_append.append(hosted.woken)
        return opened

    def _log_ready(self, hosted: HostedPartition) -> None:
        state = self._env.image.partition(*hosted.topic_partition)
        if state is not None:
            self._receive(LogReady(hosted, state))

    def _release(self, hosted: HostedPartition) -> None:
        self._damaged.forget(hosted)
        self.fetchers.forget(hosted.topic_id, hosted.topic_partition.partition)
        opened = hosted.log
        if opened is not None and hosted.woken is not None:
            opened.on_append.remove(hosted.woken)
            opened.give_up_commits()
            self._purgatory.wake(opened)

    # Damage and failures of disks

    def _failed(self, hosted: HostedPartition, reason: str) -> None:
        """Act on a log that went offline. Another directory than the first one, which has the metadata, goes with it.

        Of that one only this replica leaves the in-sync replicas: the node goes on with what can be used.
        """
        directories = self._logs.directories
        home = directories.homes.get(hosted.topic_partition)
        if self._hosted.get(hosted.topic_partition) is not hosted or home not in directories.online:
            return
        if home is directories.online[0] or not self._callbacks.fail_directory(home, reason):
            self.report_damage(*hosted.topic_partition, errors.KafkaStorageError(reason))

    def report_damage(self, topic: str, index: int, error: Exception) -> bool:
        """Repair a replica that is damaged or cannot be written. Return True if another one leads then."""
        hosted = self.find(topic, index)
        if hosted is None or not self._damaged.found(hosted, error):
            return False
        if not hosted.partition.leads and not self._damaged.may_fetch(hosted):
            self.fetchers.forget(hosted.topic_id, index)
        return True

    def check_steps(self) -> IncrementalTask[None]:
        """Check every batch of every replica, in steps; damaged ones are repaired."""
        for hosted in self:
            opened = hosted.log
            if opened is None or opened.closed or opened.failure is not None:
                continue
            damage = yield from first_damage(opened)
            if damage is not None:
                self.report_damage(*hosted.topic_partition, damage.error)

    def _fetch_on(self, hosted: HostedPartition) -> None:
        """Fetch the rest of a truncated replica from the leader."""
        partition, opened = hosted.partition, hosted.log
        if opened is not None and not partition.leads and partition.leader >= 0:
            self.fetchers.follow(
                hosted.topic_partition, hosted.topic_id, partition.leader, partition.leader_epoch, opened
            )

    def _has_caught_up(self, hosted: HostedPartition) -> bool:
        """Return True if this node has fetched everything that is committed, by the leader's last answer."""
        return self.fetchers.is_in_sync(hosted.topic_id, hosted.topic_partition.partition)

    # Leading

    def follower_fetched(self, hosted: HostedPartition, fetch: FollowerFetch) -> None:
        """Record the fetch of a follower, which may move the high watermark or bring the follower in sync."""
        self._receive(FollowerFetched(hosted, fetch))

    def preferred_replica(self, hosted: HostedPartition, rack: str, offset: int) -> int | None:
        """Return the in-sync follower in a consumer's rack that has most of the log from `offset` on (KIP-392).

        None if the leader is in that rack, or no such follower is.
        """
        brokers, partition = self._env.image.brokers, hosted.partition
        own = brokers.get(self._env.node_id)
        if not rack or (own is not None and own.rack == rack):
            return None
        found = [
            (follower.log_end, follower.caught_up_at, node)
            for node, follower in partition.followers.items()
            if node in partition.isr
            and (broker := brokers.get(node)) is not None
            and broker.rack == rack
            and not broker.fenced
            and follower.log_start <= offset <= follower.log_end
        ]
        return max(found)[2] if found else None

    def _propose(self, hosted: HostedPartition, change: IsrChange) -> None:
        added = change.members - hosted.partition.isr
        if added:
            log.info("%s: replica %d has caught up", hosted.topic_partition, min(added))
        else:
            log.info("%s: shrinking the in-sync replicas to %s", hosted.topic_partition, sorted(change.members))

        def accepted(answer: AlterPartitionResponsePartitionData) -> None:
            isr = frozenset(answer.isr)
            self._receive(IsrAccepted(hosted, change, isr, answer.leader_epoch, answer.partition_epoch))

        def refused(code: int) -> bool:
            if code != errors.UnknownServerError.code:
                kind = errors.for_code(code).__name__
                text = "%s: the controller refused in-sync replicas %s: %s"
                log.info(text, hosted.topic_partition, sorted(change.members), kind)
            effects = self._hosted.receive(IsrRefused(hosted, change, code), self._env.clock.monotonic())
            return ProposeAgain(change) in effects

        self._proposals.submit(Proposal(hosted.topic_id, hosted.topic_partition.partition, change, refused, accepted))

    def _schedule_lag_check(self) -> None:
        self._lag_timer = self._env.schedule(self._facts.most_lag / _CHECKS, self._check_lag)

    def _check_lag(self) -> None:
        self._schedule_lag_check()
        for hosted in self:
            self._receive(LagCheckDue(hosted))


def _log_of(hosted: HostedPartition) -> UnifiedLog:
    assert hosted.log is not None, "only partitions with open logs have roles"
    return hosted.log
