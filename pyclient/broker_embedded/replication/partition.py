"""The replication state of one partition on one of its nodes: leader, followers, in-sync replicas, high watermark.

Pure: the log, the metadata and the time are arguments, and what has to be done is returned. The rules are those of
Kafka's Partition and Replica, with KIP-497 (AlterPartition), KIP-903 (broker epochs) and KIP-966 (the high watermark
stays while there are fewer in-sync replicas than `min.insync.replicas`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from pyclient import errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyclient.broker_embedded.controller.image import PartitionImage

UNKNOWN: Final = -1
"""An offset or broker epoch that is not known."""

_BACK_TO_COMMITTED: Final = frozenset({errors.IneligibleReplica.code, errors.OperationNotAttempted.code})
_WAIT_FOR_METADATA: Final = frozenset(
    {
        errors.UnknownTopicOrPartition.code,
        errors.UnknownTopicId.code,
        errors.FencedLeaderEpoch.code,
        errors.InvalidUpdateVersion.code,
        errors.InvalidRequest.code,
        errors.NewLeaderElected.code,
    }
)
"""Errors of AlterPartition after which the metadata will bring a newer state, so that the change is not repeated."""


class Registration(Protocol):
    """A registered broker in the metadata."""

    @property
    def epoch(self) -> int:
        """The offset of the registration."""

    @property
    def fenced(self) -> bool:
        """True if the broker does not send heartbeats."""

    @property
    def in_controlled_shutdown(self) -> bool:
        """True if the broker is about to stop."""


@dataclass(frozen=True, slots=True)
class Replica:
    """The state of one follower, by its fetches from the leader. Times are those of the node's monotonic clock."""

    log_start: int = UNKNOWN
    log_end: int = UNKNOWN
    leader_end: int = UNKNOWN
    """The leader's log end at the last fetch."""
    fetched_at: float = -inf
    caught_up_at: float = -inf
    """The last time at which the follower had everything that the leader had."""
    broker_epoch: int = UNKNOWN

    def after_fetch(self, fetch: FollowerFetch, leader_end: int, now: float) -> Replica:
        """Return the state after a fetch. A follower caught up with the end at the time of its previous fetch, too."""
        caught_up_at = self.caught_up_at
        if fetch.offset >= leader_end:
            caught_up_at = max(caught_up_at, now)
        elif fetch.offset >= self.leader_end:
            caught_up_at = max(caught_up_at, self.fetched_at)
        return Replica(
            fetch.log_start, fetch.offset, max(leader_end, self.leader_end), now, caught_up_at, fetch.broker_epoch
        )

    def is_caught_up(self, leader_end: int, now: float, most_lag: float) -> bool:
        """Return True if the follower has everything, or had it within `replica.lag.time.max.ms`."""
        return self.log_end == leader_end or now - self.caught_up_at <= most_lag


@dataclass(frozen=True, slots=True)
class FollowerFetch:
    """A fetch by a follower: the fetch offset is the end of its log."""

    replica: int
    offset: int
    log_start: int = UNKNOWN
    broker_epoch: int = UNKNOWN


@dataclass(frozen=True, slots=True)
class IsrChange:
    """A proposal for AlterPartition: the in-sync replicas with their broker epochs, and the epochs it is based on."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]

    @property
    def members(self) -> frozenset[int]:
        """Return the proposed in-sync replicas."""
        return frozenset(node for node, _epoch in self.isr)


class Partition:
    """One replicated partition on the node `node_id`; `broker_of` finds a registered broker in the metadata.

    `lead` and `follow` take a new state from the metadata. Then the leader's side: `fetched` takes the fetches of
    followers, `expand` and `shrink` propose in-sync replicas, `accepted` and `refused` take the controller's answers,
    and `advance` moves the high watermark.
    """

    __slots__ = (
        "_broker_of",
        "epoch_start",
        "followers",
        "high_watermark",
        "isr",
        "leader",
        "leader_epoch",
        "min_isr",
        "most_lag",
        "node_id",
        "partition_epoch",
        "pending",
        "replicas",
    )

    def __init__(
        self, node_id: int, broker_of: Callable[[int], Registration | None], *, min_isr: int = 1, most_lag: float = 30.0
    ) -> None:
        self.node_id = node_id
        self._broker_of = broker_of
        self.min_isr = min_isr
        self.most_lag = most_lag
        self.leader = UNKNOWN
        self.leader_epoch = UNKNOWN
        self.partition_epoch = UNKNOWN
        self.replicas: tuple[int, ...] = ()
        self.isr: frozenset[int] = frozenset()
        """The in-sync replicas that the controller has committed."""
        self.pending: IsrChange | None = None
        """The proposal that the controller has not answered yet, or whose outcome the metadata will bring."""
        self.followers: dict[int, Replica] = {}
        self.epoch_start = UNKNOWN
        """The end of the log when this node became the leader in this epoch."""
        self.high_watermark = 0

    def __repr__(self) -> str:
        role = "leader" if self.leads else f"follower of {self.leader}"
        return f"<Partition {role} epoch={self.leader_epoch} isr={sorted(self.isr)} hw={self.high_watermark}>"

    @property
    def leads(self) -> bool:
        """Return True if this node is the leader."""
        return self.leader == self.node_id

    @property
    def maximal_isr(self) -> frozenset[int]:
        """Return the committed in-sync replicas and those that a proposal adds; one that it removes still counts.

        Whatever the controller decides, no member of the new set is outside.
        """
        return self.isr if self.pending is None else self.isr | self.pending.members

    @property
    def effective_min_isr(self) -> int:
        """Return `min.insync.replicas`, at most the number of replicas."""
        return min(self.min_isr, len(self.replicas))

    @property
    def is_under_min_isr(self) -> bool:
        """Return True if there are fewer in-sync replicas than `min.insync.replicas`."""
        return len(self.isr) < self.effective_min_isr

    # From the metadata

    def lead(self, state: PartitionImage, *, end: int, high_watermark: int, now: float) -> bool:
        """Become the leader, or stay it. Return True in a new leader epoch, which then begins at `end`, the log's end.

        False also for a state older than the known one, which changes nothing.
        """
        if not self._is_newer(state):
            return False
        was_leader, is_new_epoch = self.leads, state.leader_epoch > self.leader_epoch
        self._take(state)
        known = self.followers if was_leader else {}
        self.followers = {node: known.get(node, Replica()) for node in self.replicas if node != self.node_id}
        if not is_new_epoch:
            return False
        self.epoch_start = end
        self.high_watermark = min(max(self.high_watermark, high_watermark) if was_leader else high_watermark, end)
        for node, follower in self.followers.items():
            caught_up_at = now if node in self.isr else -inf
            self.followers[node] = (
                replace(follower, leader_end=end, fetched_at=caught_up_at, caught_up_at=caught_up_at)
                if was_leader
                else Replica(caught_up_at=caught_up_at)
            )
        return True

    def follow(self, state: PartitionImage) -> bool:
        """Follow the leader in `state`, which may be -1. Return True if the leader or its epoch is a new one."""
        if not self._is_newer(state):
            return False
        is_new = state.leader_epoch > self.leader_epoch or state.leader != self.leader
        self._take(state)
        self.followers.clear()
        self.epoch_start = UNKNOWN
        return is_new

    def give_up(self) -> None:
        """Lead and follow no more: the replica is no longer on this node, or no longer replicated."""
        self.leader, self.pending = UNKNOWN, None
        self.followers.clear()

    def _is_newer(self, state: PartitionImage) -> bool:
        known = self.leader_epoch, self.partition_epoch
        return (state.leader_epoch, state.partition_epoch) > known and state.leader_epoch >= self.leader_epoch

    def _take(self, state: PartitionImage) -> None:
        self.leader, self.leader_epoch = state.leader, state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.replicas, self.isr = tuple(state.replicas), frozenset(state.isr)
        self.pending = None

    # Fetches of followers

    def check_follower(self, fetch: FollowerFetch, epoch: int) -> None:
        """Raise the error for a fetch by a replica that is not assigned, or with an earlier epoch of its broker.

        `epoch` is the leader epoch in the fetch, -1 if it has none.
        """
        if fetch.replica not in self.followers:
            kind = errors.NotLeaderOrFollower if epoch < 0 else errors.UnknownLeaderEpoch
            raise kind(f"broker {fetch.replica} is not a replica: the replicas are {list(self.replicas)}")
        broker = self._broker_of(fetch.replica)
        if fetch.broker_epoch >= 0 and broker is not None and broker.epoch > fetch.broker_epoch:
            raise errors.NotLeaderOrFollower(
                f"broker {fetch.replica} has registered again: its epoch is {broker.epoch}, not {fetch.broker_epoch}"
            )

    def fetched(self, fetch: FollowerFetch, *, end: int, now: float) -> None:
        """Note a fetch of an assigned follower, which did not diverge; `end` is the end of the leader's log."""
        self.followers[fetch.replica] = self.followers[fetch.replica].after_fetch(fetch, end, now)

    def needs_check(self, node: int, offset: int) -> bool:
        """Return True if what a follower fetches from `offset` on has to be checked.

        Either it is not in sync and reads old records, or it asks again for what it got: it could not use that.
        """
        follower = self.followers[node]
        return node not in self.isr or follower.log_end == offset < follower.leader_end

    def lowest_start(self, start: int) -> int:
        """Return the lowest log start of the followers whose brokers are live; `start` without any."""
        live = (
            follower.log_start
            for node, follower in self.followers.items()
            if (broker := self._broker_of(node)) is not None and not broker.fenced
        )
        return min(live, default=start)

    # In-sync replicas

    def expand(self, node: int, broker_epoch: int) -> IsrChange | None:
        """Return the proposal that adds a follower which has caught up, or None; then `pending` is the proposal.

        `broker_epoch` is that of this node.
        """
        if self.pending is not None or node in self.isr or not self._is_eligible(node):
            return None
        end = self.followers[node].log_end
        if end < self.high_watermark or end < self.epoch_start:
            return None
        return self._propose(self.isr | {node}, broker_epoch)

    def shrink(self, broker_epoch: int, *, end: int, now: float) -> IsrChange | None:
        """Return the proposal that removes the followers that lag too long, or None."""
        if self.pending is not None or not self.leads:
            return None
        slow = {
            node
            for node in self.isr
            if node != self.node_id and not self.followers[node].is_caught_up(end, now, self.most_lag)
        }
        return self._propose(self.isr - slow, broker_epoch) if slow else None

    def _propose(self, isr: frozenset[int], broker_epoch: int) -> IsrChange:
        epochs = {self.node_id: broker_epoch}
        members = tuple((node, epochs.get(node, self._epoch_of(node))) for node in self.replicas if node in isr)
        self.pending = IsrChange(self.leader_epoch, self.partition_epoch, members)
        return self.pending

    def _epoch_of(self, node: int) -> int:
        follower = self.followers.get(node)
        return UNKNOWN if follower is None else follower.broker_epoch

    def _is_eligible(self, node: int) -> bool:
        """Return True if a follower may join: its broker is live, and its fetches have the broker's epoch, or none."""
        broker, follower = self._broker_of(node), self.followers.get(node)
        if broker is None or follower is None or broker.fenced or broker.in_controlled_shutdown:
            return False
        return follower.broker_epoch in (UNKNOWN, broker.epoch)

    def accepted(self, change: IsrChange, isr: frozenset[int], leader_epoch: int, partition_epoch: int) -> bool:
        """Apply the state that the controller answered. Return False if it is out of date."""
        if self.pending is not change or leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
            return False
        self.isr, self.partition_epoch, self.pending = isr, partition_epoch, None
        return True

    def refused(self, change: IsrChange, code: int) -> bool:
        """Take an error of the controller. Return True if the proposal should be sent again."""
        if self.pending is not change:
            return False
        if code in _BACK_TO_COMMITTED:
            self.pending = None
            return False
        return code not in _WAIT_FOR_METADATA

    # High watermark

    def advance(self, *, end: int, now: float) -> int:
        """Return the high watermark after an append, a fetch or a change of the in-sync replicas. It never decreases.

        It also waits for a caught-up follower outside: that is about to join, and may join only if it has everything
        below the high watermark.
        """
        if not self.leads or self.is_under_min_isr:
            return self.high_watermark
        committed = end
        maximal = self.maximal_isr
        for node, follower in self.followers.items():
            if follower.log_end < committed and (
                node in maximal or (follower.is_caught_up(end, now, self.most_lag) and self._is_eligible(node))
            ):
                committed = follower.log_end
        self.high_watermark = max(self.high_watermark, committed)
        return self.high_watermark

    def check_min_isr(self) -> None:
        """Raise `NotEnoughReplicas` if an append with acks=all has to be refused."""
        if self.is_under_min_isr:
            raise errors.NotEnoughReplicas(
                f"{len(self.isr)} replicas are in sync {sorted(self.isr)}, {self.effective_min_isr} are required"
            )

    @property
    def has_enough_replicas(self) -> bool:
        """Return True if an appended batch that is committed may be acknowledged with acks=all."""
        return len(self.maximal_isr) >= self.effective_min_isr
