"""Decide which replicated partitions a node leads and follows, and about in-sync replicas and high watermarks. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyclient.broker_embedded.replication.partition import Partition
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    from pyclient.broker_embedded.controller.image import PartitionImage
    from pyclient.broker_embedded.log.unified_log import UnifiedLog
    from pyclient.broker_embedded.replication.partition import FollowerFetch, IsrChange, Registration


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


class NodeFacts(Protocol):
    """The node's metadata and options."""

    @property
    def node_id(self) -> int:
        """The id of this node."""

    @property
    def broker_epoch(self) -> int:
        """The epoch of its registration."""

    @property
    def most_lag(self) -> float:
        """The seconds of `replica.lag.time.max.ms`."""

    def broker(self, node_id: int) -> Registration | None:
        """Return a registered broker."""


# Events


@dataclass(slots=True)
class Started:
    """The metadata have the registration of this incarnation. Before that only replicas are given up.

    They may name this node as the leader in its previous incarnation, whose last records it may have lost. With the
    registration, after an unclean end, the controller has made another replica the leader.
    """


@dataclass(slots=True)
class PartitionChanged:
    """The metadata of a partition changed from `before` to `state`; None where there is none, `topic_id` too."""

    topic_partition: TopicPartition
    topic_id: UUID | None
    before: PartitionImage | None
    state: PartitionImage | None


@dataclass(slots=True)
class TopicDeleted:
    """The topic of a partition was deleted, and its log is about to be."""

    hosted: HostedPartition


@dataclass(slots=True)
class LogReady:
    """A log that could not be opened before can be; `state` are the present metadata."""

    hosted: HostedPartition
    state: PartitionImage


@dataclass(slots=True)
class LogOpened:
    """The log of a partition was opened."""

    hosted: HostedPartition
    log: UnifiedLog
    state: PartitionImage


@dataclass(slots=True)
class Grown:
    """The log of a partition was appended to."""

    hosted: HostedPartition


@dataclass(slots=True)
class FollowerFetched:
    """A follower fetches from this node, the leader."""

    hosted: HostedPartition
    fetch: FollowerFetch


@dataclass(slots=True)
class LagCheckDue:
    """It is time to look for followers of a partition that lag too long."""

    hosted: HostedPartition


@dataclass(slots=True)
class OptionsChanged:
    """Options of a partition's topic changed, or of brokers, which are its defaults."""

    hosted: HostedPartition


@dataclass(slots=True)
class IsrAccepted:
    """The controller has committed a proposal."""

    hosted: HostedPartition
    change: IsrChange
    isr: frozenset[int]
    leader_epoch: int
    partition_epoch: int


@dataclass(slots=True)
class IsrRefused:
    """The controller has refused a proposal, or did not answer."""

    hosted: HostedPartition
    change: IsrChange
    code: int


# Effects


@dataclass(slots=True)
class OpenLog:
    """Open or create the log, and report `LogOpened`; `LogReady` later if it cannot be opened yet."""

    hosted: HostedPartition
    state: PartitionImage


@dataclass(slots=True)
class Release:
    """End all that is done with a replica: it is no longer on this node, or no longer replicated."""

    hosted: HostedPartition


@dataclass(slots=True)
class DeleteLog:
    """Delete the log of a partition that has moved away."""

    topic_partition: TopicPartition
    topic_id: UUID


@dataclass(slots=True)
class EndReplication:
    """Commit each batch of a partition by its append: the only replica is here."""

    topic_partition: TopicPartition


@dataclass(slots=True)
class LeadershipChanged:
    """Report that this node leads a partition in an epoch, or (None) that it does not."""

    topic_partition: TopicPartition
    leader_epoch: int | None


@dataclass(slots=True)
class BeginEpoch:
    """Begin a leader epoch at the end of the log."""

    hosted: HostedPartition
    leader_epoch: int


@dataclass(slots=True)
class AdvanceHighWatermark:
    """Commit everything before an offset."""

    hosted: HostedPartition
    offset: int


@dataclass(slots=True)
class Propose:
    """Propose in-sync replicas to the controller, and report `IsrAccepted` or `IsrRefused`."""

    hosted: HostedPartition
    change: IsrChange


@dataclass(slots=True)
class ProposeAgain:
    """Send a proposal again after a pause, which `AlterPartitionManager` does."""

    change: IsrChange


@dataclass(slots=True)
class ReportIsr:
    """Log the in-sync replicas that the controller has committed."""

    hosted: HostedPartition
    isr: frozenset[int]


@dataclass(slots=True)
class FetchFrom:
    """Fetch a partition from its leader, unless the replica is damaged and not truncated yet."""

    hosted: HostedPartition
    leader: int
    leader_epoch: int


@dataclass(slots=True)
class StopFetching:
    """Fetch a partition no more."""

    hosted: HostedPartition


@dataclass(slots=True)
class GiveUpCommits:
    """Run the callbacks that wait for a commit: this node leads no more."""

    hosted: HostedPartition


@dataclass(slots=True)
class NotifyWaiting:
    """Call `after_fetch` of the partition: a follower has fetched, or this node leads no more."""

    hosted: HostedPartition


@dataclass(slots=True)
class WakeFetches:
    """Retry the fetches that wait for the log: they find out that another node leads."""

    hosted: HostedPartition


@dataclass(slots=True)
class CheckDamage:
    """Take the next step of the repair of a replica, if it is damaged."""

    hosted: HostedPartition
    state: PartitionImage


Event = (
    Started
    | PartitionChanged
    | TopicDeleted
    | LogReady
    | LogOpened
    | Grown
    | FollowerFetched
    | LagCheckDue
    | OptionsChanged
    | IsrAccepted
    | IsrRefused
)
Effect = (
    OpenLog
    | Release
    | DeleteLog
    | EndReplication
    | LeadershipChanged
    | BeginEpoch
    | AdvanceHighWatermark
    | Propose
    | ProposeAgain
    | ReportIsr
    | FetchFrom
    | StopFetching
    | GiveUpCommits
    | NotifyWaiting
    | WakeFetches
    | CheckDamage
)


class HostedPartitions:
    """The partitions with several replicas of which this node has one. `receive` takes an event and returns effects.

    Effects are carried out in their order. Carrying one out may cause the next event at once.
    """

    def __init__(self, node: NodeFacts) -> None:
        self._node = node
        self._hosted: dict[TopicPartition, HostedPartition] = {}
        self.is_started = False
        """True after `Started`."""

    def __repr__(self) -> str:
        leading = sum(hosted.partition.leads for hosted in self._hosted.values())
        return f"<HostedPartitions leading={leading} following={len(self._hosted) - leading}>"

    def __iter__(self) -> Iterator[HostedPartition]:
        return iter(list(self._hosted.values()))

    def get(self, topic_partition: TopicPartition) -> HostedPartition | None:
        """Return a partition that is here."""
        return self._hosted.get(topic_partition)

    def receive(self, event: Event, now: float) -> list[Effect]:
        """Return the effects of an event."""
        match event:
            case Grown(hosted):
                return self._advance(hosted, now)
            case FollowerFetched(hosted, fetch):
                return self._follower_fetched(hosted, fetch, now)
            case LagCheckDue(hosted):
                return self._shrink(hosted, now)
            case PartitionChanged():
                return self._changed(event, now)
            case LogOpened(hosted, opened, state):
                hosted.log = opened
                return self._take(hosted, state, now)
            case LogReady(hosted, state):
                return self._take(hosted, state, now) if self._is_here(hosted) else []
            case IsrAccepted(hosted, change, isr, leader_epoch, partition_epoch):
                is_new = hosted.partition.accepted(change, isr, leader_epoch, partition_epoch)
                return [ReportIsr(hosted, isr), *self._advance(hosted, now)] if is_new else []
            case IsrRefused(hosted, change, code):
                return [ProposeAgain(change)] if hosted.partition.refused(change, code) else []
            case TopicDeleted(hosted):
                return self._stop(hosted) if self._is_here(hosted) else []
            case OptionsChanged(hosted):
                return self._options_changed(hosted, now)
            case Started():
                self.is_started = True
                return []

    def _is_here(self, hosted: HostedPartition) -> bool:
        return self._hosted.get(hosted.topic_partition) is hosted

    # Metadata

    def _changed(self, event: PartitionChanged, now: float) -> list[Effect]:
        topic_partition, topic_id = event.topic_partition, event.topic_id
        before, state = event.before, event.state
        node_id = self._node.node_id
        if not self.is_started and (state is None or node_id in state.replicas):
            return []
        effects: list[Effect] = []
        hosted = self._hosted.get(topic_partition)
        if hosted is not None and (topic_id is None or state is None or hosted.topic_id != topic_id):
            effects, hosted = self._stop(hosted), None
        if state is None or topic_id is None:
            return effects
        if node_id not in state.replicas:
            effects += [] if hosted is None else self._stop(hosted)
            if before is not None and node_id in before.replicas:
                effects += [LeadershipChanged(topic_partition, None), DeleteLog(topic_partition, topic_id)]
            return effects
        if len(state.replicas) == 1:
            return effects + self._alone(topic_partition, hosted, before, state)
        if hosted is None:
            partition = Partition(node_id, self._node.broker, most_lag=self._node.most_lag)
            hosted = self._hosted[topic_partition] = HostedPartition(topic_partition, topic_id, partition)
        return effects + self._take(hosted, state, now)

    def _stop(self, hosted: HostedPartition) -> list[Effect]:
        del self._hosted[hosted.topic_partition]
        hosted.partition.give_up()
        return [Release(hosted)]

    def _alone(
        self,
        topic_partition: TopicPartition,
        hosted: HostedPartition | None,
        before: PartitionImage | None,
        state: PartitionImage,
    ) -> list[Effect]:
        """Take a partition whose only replica is here: it needs no high watermark of its own."""
        effects: list[Effect] = [] if hosted is None else self._stop(hosted)
        if before is None or hosted is not None:
            effects.append(EndReplication(topic_partition))
        if before is None or (before.leader, before.leader_epoch) != (state.leader, state.leader_epoch):
            epoch = state.leader_epoch if state.leader == self._node.node_id else None
            effects.append(LeadershipChanged(topic_partition, epoch))
        return effects

    def _take(self, hosted: HostedPartition, state: PartitionImage, now: float) -> list[Effect]:
        opened = hosted.log
        if opened is None:
            return [OpenLog(hosted, state)]
        hosted.partition.min_isr = opened.config.min_insync_replicas
        leads = state.leader == self._node.node_id
        effects = self._lead(hosted, opened, state, now) if leads else self._follow(hosted, state)
        return [*effects, CheckDamage(hosted, state)]

    def _lead(self, hosted: HostedPartition, opened: UnifiedLog, state: PartitionImage, now: float) -> list[Effect]:
        end, known, partition = opened.end_offset, opened.high_watermark, hosted.partition
        is_new_epoch = partition.lead(state, end=end, high_watermark=known, now=now)
        if not partition.leads:
            return []  # the metadata are older than what is known
        hosted.is_end_checked = True
        effects: list[Effect] = [StopFetching(hosted)]
        if is_new_epoch:
            epoch = state.leader_epoch
            effects += [BeginEpoch(hosted, epoch), LeadershipChanged(hosted.topic_partition, epoch)]
        return effects + self._advance(hosted, now)

    def _follow(self, hosted: HostedPartition, state: PartitionImage) -> list[Effect]:
        partition = hosted.partition
        was_leader, was_known = partition.leads, partition.leader_epoch >= 0
        is_new = partition.follow(state)
        has_stopped = was_leader and not partition.leads
        effects: list[Effect] = [GiveUpCommits(hosted), NotifyWaiting(hosted)] if has_stopped else []
        if has_stopped or not was_known:
            effects.append(LeadershipChanged(hosted.topic_partition, None))
        if is_new:
            has_leader = state.leader >= 0
            fetch = FetchFrom(hosted, state.leader, state.leader_epoch) if has_leader else StopFetching(hosted)
            effects += [WakeFetches(hosted), fetch]
        return effects

    def _options_changed(self, hosted: HostedPartition, now: float) -> list[Effect]:
        if hosted.log is None:
            return []
        hosted.partition.min_isr = hosted.log.config.min_insync_replicas
        return self._advance(hosted, now)

    # Leading

    def _advance(self, hosted: HostedPartition, now: float) -> list[Effect]:
        """Move the high watermark of a partition that this node leads, if its followers have fetched enough."""
        opened, partition = hosted.log, hosted.partition
        if opened is None or not partition.leads:
            return []
        committed = partition.advance(end=opened.end_offset, now=now)
        return [AdvanceHighWatermark(hosted, committed)] if committed > opened.high_watermark else []

    def _follower_fetched(self, hosted: HostedPartition, fetch: FollowerFetch, now: float) -> list[Effect]:
        """Record the fetch of a follower, which may move the high watermark or bring the follower in sync."""
        assert hosted.log is not None, "fetches are of open logs"
        hosted.partition.fetched(fetch, end=hosted.log.end_offset, now=now)
        change = hosted.partition.expand(fetch.replica, self._node.broker_epoch)
        proposal = [] if change is None else [Propose(hosted, change)]
        return [*proposal, *self._advance(hosted, now), NotifyWaiting(hosted)]

    def _shrink(self, hosted: HostedPartition, now: float) -> list[Effect]:
        """Propose to remove the followers that lag too long, and move a high watermark that waited for others."""
        opened, partition = hosted.log, hosted.partition
        if opened is None or not partition.leads:
            return []
        partition.most_lag = self._node.most_lag
        change = partition.shrink(self._node.broker_epoch, end=opened.end_offset, now=now)
        return [*([] if change is None else [Propose(hosted, change)]), *self._advance(hosted, now)]
