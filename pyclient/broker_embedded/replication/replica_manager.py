"""The replicated partitions on a node: acts on the metadata, leads and follows, and moves the high watermarks.

Only nodes with other nodes have a `ReplicaManager`, and only partitions with several replicas are in it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from pyclient import errors
from pyclient.broker_embedded.controller.image import BROKER_RESOURCE, TOPIC_RESOURCE
from pyclient.broker_embedded.log.damage import end_before_gap, first_damage
from pyclient.broker_embedded.replication.alter_partition import AlterPartitionManager, Proposal
from pyclient.broker_embedded.replication.auto_topic_creation import AutoTopicCreationManager
from pyclient.broker_embedded.replication.damaged_replicas import DamagedReplicas
from pyclient.broker_embedded.replication.partition import Partition
from pyclient.broker_embedded.replication.replica_fetcher import ReplicaFetcherManager
from pyclient.broker_embedded.replication.replication_quota import ReplicationQuota
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    from pyclient.broker_embedded.controller.delta import MetadataDelta
    from pyclient.broker_embedded.controller.image import PartitionImage
    from pyclient.broker_embedded.environment import NodeEnvironment
    from pyclient.broker_embedded.log.data_directory import DataDirectory
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.log.manager import LogManager
    from pyclient.broker_embedded.log.unified_log import UnifiedLog
    from pyclient.broker_embedded.network.node_channels import NodeChannels
    from pyclient.broker_embedded.replication.alter_partition import ControllerChannel
    from pyclient.broker_embedded.replication.partition import FollowerFetch, IsrChange
    from pyclient.broker_embedded.replication.partitions import Partitions
    from pyclient.broker_embedded.replication.purgatory import FetchPurgatory
    from pyclient.protocol.messages.alter_partition import AlterPartitionResponsePartitionData

log = logging.getLogger("pyclient.broker_embedded")

_CHECKS: Final = 2  # checks for slow followers in `replica.lag.time.max.ms`


class HostedPartition:
    """A replicated partition on this node with its log, None until that is open."""

    __slots__ = ("after_fetch", "is_end_checked", "log", "partition", "topic_id", "topic_partition", "woken")

    def __init__(self, topic_partition: TopicPartition, topic_id: UUID, partition: Partition) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.partition = partition
        self.log: UnifiedLog | None = None
        self.is_end_checked = False
        """The log's last batch follows the one before it, or was written since the log was opened."""
        self.after_fetch: set[Callable[[], object]] = set()
        """Called after a follower's fetch, and when this node leads no more."""
        self.woken: Callable[[], object] | None = None
        """The callback at the log's appends."""

    def __repr__(self) -> str:
        return f"<HostedPartition {self.topic_partition} {self.partition!r} {self.log!r}>"


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
        self._hosted: dict[TopicPartition, HostedPartition] = {}
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
        self._started = False
        self._schedule_shrink()

    def __repr__(self) -> str:
        leading = sum(hosted.partition.leads for hosted in self._hosted.values())
        return f"<ReplicaManager leading={leading} following={len(self._hosted) - leading} {self.fetchers!r}>"

    def __iter__(self) -> Iterator[HostedPartition]:
        return iter(list(self._hosted.values()))

    def find(self, topic: str, index: int) -> HostedPartition | None:
        """Return a replicated partition on this node."""
        return self._hosted.get(TopicPartition(topic, index))

    def offline(self, replicas: list[int]) -> list[int]:
        """Return those of these nodes that are not live."""
        brokers = self._env.image.brokers
        return [node for node in replicas if (broker := brokers.get(node)) is None or broker.fenced]

    def close(self) -> None:
        """Stop fetching and proposing; answer what waits for replication."""
        self._shrink_timer.cancel()
        self.fetchers.close()
        self._proposals.close()
        self._damaged.close()
        for hosted in self:
            if hosted.log is not None:
                hosted.log.give_up_commits()

    # Metadata

    def start(self) -> None:
        """Lead and follow the partitions of the metadata, once these have the registration of this incarnation.

        Before that, the metadata may name this node as the leader in its previous incarnation, whose last records it
        may have lost.
        With the registration, after an unclean end, the controller has made another replica the leader.
        """
        if self._started:
            return
        self._started = True
        for topic in list(self._env.image.topics.values()):
            for index, state in list(topic.partitions.items()):
                self._changed(TopicPartition(topic.name, index), None, state)

    def topics_deleted(self, delta: MetadataDelta) -> None:
        """Give up the replicas of deleted topics, whose logs the caller deletes."""
        for topic_partition in delta.partitions:
            hosted = self._hosted.get(topic_partition)
            if hosted is not None and hosted.topic_id in delta.deleted_topics:
                self._stop(hosted)

    def apply(self, delta: MetadataDelta) -> None:
        """Act on changes of the metadata, which are in the node's image; before `start` only give up replicas.

        `topics_deleted` comes first: a partition of a deleted topic may have a successor of the same name.
        """
        deleted = set(delta.deleted_topics.values())
        for topic_partition, (earlier, after) in delta.partitions.items():
            before = None if topic_partition.topic in deleted else earlier
            if self._started or (after is not None and self._env.node_id not in after.replicas):
                self._changed(topic_partition, before, after)
        if any(kind == BROKER_RESOURCE for kind, _name in delta.configs):
            self._options_changed()
        for kind, name in delta.configs:
            if kind == TOPIC_RESOURCE:
                self._options_changed(name)
        if delta.configs:
            self.fetchers.throttle_changed()
        for node_id in delta.brokers:
            self.fetchers.broker_changed(node_id)

    def _changed(
        self, topic_partition: TopicPartition, before: PartitionImage | None, state: PartitionImage | None
    ) -> None:
        topic = self._env.image.topics.get(topic_partition.topic)
        hosted = self._hosted.get(topic_partition)
        if hosted is not None and (topic is None or state is None or hosted.topic_id != topic.topic_id):
            self._stop(hosted)
            hosted = None
        if state is None or topic is None:
            return
        if self._env.node_id not in state.replicas:
            if hosted is not None:
                self._stop(hosted)
            if before is not None and self._env.node_id in before.replicas:
                self._callbacks.leadership_changed(topic_partition, None)
                self._logs.delete_partition(topic_partition, topic.topic_id)
            return
        if len(state.replicas) == 1:
            self._alone(topic_partition, hosted, before, state)
            return
        if hosted is None:
            lag = self._env.config.seconds("replica.lag.time.max.ms")
            partition = Partition(self._env.node_id, self._env.image.brokers.get, most_lag=lag)
            hosted = self._hosted[topic_partition] = HostedPartition(topic_partition, topic.topic_id, partition)
        self._take(hosted, state)

    def _alone(
        self,
        topic_partition: TopicPartition,
        hosted: HostedPartition | None,
        before: PartitionImage | None,
        state: PartitionImage,
    ) -> None:
        """Take a partition whose only replica is here: it needs no high watermark of its own."""
        if hosted is not None:
            self._stop(hosted)
        for opened in self._logs.opened if before is None or hosted is not None else ():
            if (opened.topic, opened.partition) == topic_partition and opened.replicated:
                opened.checks_reads = False
                opened.set_replicated(False)
        if before is None or (before.leader, before.leader_epoch) != (state.leader, state.leader_epoch):
            epoch = state.leader_epoch if state.leader == self._env.node_id else None
            self._callbacks.leadership_changed(topic_partition, epoch)

    def _take(self, hosted: HostedPartition, state: PartitionImage) -> None:
        opened = self._opened(hosted)
        if opened is None:
            return  # it is not open yet, and `_log_opened` follows; or it cannot be opened
        partition = hosted.partition
        partition.min_isr = opened.config.min_insync_replicas
        if state.leader == self._env.node_id:
            self._lead(hosted, opened, state)
        else:
            self._follow(hosted, opened, state)
        self._damaged.check(hosted, state)

    def _lead(self, hosted: HostedPartition, opened: UnifiedLog, state: PartitionImage) -> None:
        partition = hosted.partition
        self.fetchers.forget(hosted.topic_id, hosted.topic_partition.partition)
        hosted.is_end_checked = True
        known = opened.high_watermark
        if partition.lead(state, end=opened.end_offset, high_watermark=known, now=self._now):
            text = "%s: leader in epoch %d, from offset %d on"
            log.info(text, hosted.topic_partition, state.leader_epoch, opened.end_offset)
            opened.begin_epoch(state.leader_epoch)
            self._callbacks.leadership_changed(hosted.topic_partition, state.leader_epoch)
        self.advance(hosted)

    def _follow(self, hosted: HostedPartition, opened: UnifiedLog, state: PartitionImage) -> None:
        partition = hosted.partition
        was_leader, was_known = partition.leads, partition.leader_epoch >= 0
        is_new = partition.follow(state)
        if was_leader:
            opened.give_up_commits()
            for callback in list(hosted.after_fetch):
                callback()
        if was_leader or not was_known:
            self._callbacks.leadership_changed(hosted.topic_partition, None)
        if not is_new:
            return
        self._purgatory.wake(opened)  # fetches of this log find out that another node leads
        if state.leader < 0 or not self._damaged.may_fetch(hosted):
            self.fetchers.forget(hosted.topic_id, hosted.topic_partition.partition)
        else:
            self._check_end(hosted, opened)
            self.fetchers.follow(hosted.topic_partition, hosted.topic_id, state.leader, state.leader_epoch, opened)

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
        """Return the log, None if it is not open yet or cannot be opened."""
        if hosted.log is not None:
            return hosted.log
        logs, topic_partition = self._logs, hosted.topic_partition
        if topic_partition in logs.unopened and not logs.recovery_queue.request(topic_partition):
            logs.recovery_queue.on_completion(topic_partition, lambda: self._log_opened(hosted))
            return None
        try:
            opened = logs.find(*topic_partition) or self._partitions.create(topic_partition)
        except errors.BrokerError as error:
            log.error("%s has no replica on this node: %s", topic_partition, error)
            return None
        opened.set_replicated(True)
        opened.checks_reads = True
        opened.on_failure = lambda reason: self._env.schedule(0.0, lambda: self._failed(hosted, reason))
        hosted.log = opened
        hosted.woken = lambda: self.advance(hosted)
        opened.on_append.append(hosted.woken)
        return opened

    def _log_opened(self, hosted: HostedPartition) -> None:
        state = self._env.image.partition(*hosted.topic_partition)
        if self._hosted.get(hosted.topic_partition) is hosted and state is not None:
            self._take(hosted, state)

    def _stop(self, hosted: HostedPartition) -> None:
        del self._hosted[hosted.topic_partition]
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

    def _options_changed(self, topic: str | None = None) -> None:
        """Apply changed options of a topic, or (None) of brokers, which are the defaults of all topics."""
        for hosted in self:
            if topic in (None, hosted.topic_partition.topic) and hosted.log is not None:
                hosted.partition.min_isr = hosted.log.config.min_insync_replicas
                self.advance(hosted)

    # Leading

    @property
    def _now(self) -> float:
        return self._env.clock.monotonic()

    def advance(self, hosted: HostedPartition) -> None:
        """Move the high watermark of a partition that this node leads, if its followers have fetched enough."""
        opened = hosted.log
        if opened is not None and hosted.partition.leads:
            end = hosted.partition.advance(end=opened.end_offset, now=self._now)
            opened.advance_high_watermark(end)

    def follower_fetched(self, hosted: HostedPartition, fetch: FollowerFetch) -> None:
        """Record the fetch of a follower, which may move the high watermark or bring the follower in sync."""
        opened = hosted.log
        assert opened is not None, "fetches are of open logs"
        partition = hosted.partition
        partition.fetched(fetch, end=opened.end_offset, now=self._now)
        change = partition.expand(fetch.replica, self._env.broker_epoch)
        if change is not None:
            log.info("%s: replica %d has caught up", hosted.topic_partition, fetch.replica)
            self._propose(hosted, change)
        self.advance(hosted)
        for callback in list(hosted.after_fetch):
            callback()

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
        partition = hosted.partition

        def accepted(answer: AlterPartitionResponsePartitionData) -> None:
            isr = frozenset(answer.isr)
            if partition.accepted(change, isr, answer.leader_epoch, answer.partition_epoch):
                log.info("%s: in sync are %s", hosted.topic_partition, sorted(isr))
                self.advance(hosted)

        def refused(code: int) -> bool:
            if code != errors.UnknownServerError.code:
                kind = errors.for_code(code).__name__
                text = "%s: the controller refused in-sync replicas %s: %s"
                log.info(text, hosted.topic_partition, sorted(change.members), kind)
            return partition.refused(change, code)

        self._proposals.submit(Proposal(hosted.topic_id, hosted.topic_partition.partition, change, refused, accepted))

    def _schedule_shrink(self) -> None:
        lag = self._env.config.seconds("replica.lag.time.max.ms")
        self._shrink_timer = self._env.schedule(lag / _CHECKS, self._shrink)

    def _shrink(self) -> None:
        """Propose to remove the followers that lag too long, and move high watermarks that waited for others."""
        self._schedule_shrink()
        for hosted in self:
            if hosted.log is None or not hosted.partition.leads:
                continue
            hosted.partition.most_lag = self._env.config.seconds("replica.lag.time.max.ms")
            change = hosted.partition.shrink(self._env.broker_epoch, end=hosted.log.end_offset, now=self._now)
            if change is not None:
                log.info("%s: shrinking the in-sync replicas to %s", hosted.topic_partition, sorted(change.members))
                self._propose(hosted, change)
            self.advance(hosted)
