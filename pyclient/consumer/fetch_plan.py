"""Decide what to fetch next from one node; no I/O."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isinf
from typing import Final

from pyclient.consumer.completed_fetch import Target
from pyclient.consumer.config import ConsumerConfig
from pyclient.consumer.fetch_buffer import FetchBuffer
from pyclient.consumer.fetch_session_handler import FetchPosition
from pyclient.consumer.subscription import AssignedPartition, Phase, SubscriptionState
from pyclient.types import TopicPartition

_NO_TOPIC_ID: Final = uuid.UUID(int=0)
_LOW_SHARES: Final = 2
_MAX_SHARES: Final = 3
"""Buffered multiples of max_partition_fetch_bytes. While the user processes one, the next is ready and another is being
fetched: with one less, broker and client wait for each other in turn (docs/measurements.md, "Fetch depth")."""
_ROUND_BYTES: Final = 8 * 1024 * 1024
"""A larger response would be evicted from the CPU's cache before the user reads it."""


@dataclass(slots=True)
class FetchPlan:
    """The content of one connection's fetch requests, updated from one request to the next.

    `changed` are the partitions that were added, removed or moved since the last request. `wake_at` is the time when
    there may be more to fetch without another event.
    """

    node: int = -1
    targets: dict[TopicPartition, Target] = field(default_factory=dict)
    positions: dict[TopicPartition, FetchPosition] = field(default_factory=dict)
    changed: dict[TopicPartition, None] = field(default_factory=dict)
    max_bytes: int = 0
    wake_at: float | None = None
    dirty: dict[AssignedPartition, None] = field(default_factory=dict)
    later: dict[AssignedPartition, float] = field(default_factory=dict)
    topic_counts: dict[tuple[uuid.UUID, str], int] = field(default_factory=dict)

    @property
    def by_id(self) -> bool:
        """Return True if the ids of all topics are known."""
        return all(topic_id != _NO_TOPIC_ID for topic_id, _ in self.topic_counts)

    def topic_names(self) -> Mapping[uuid.UUID, str]:
        """Return names by topic id, for responses that have only the id."""
        return dict(iter(self.topic_counts))

    def add(self, state: AssignedPartition, from_replica: bool, max_bytes: int) -> None:
        """Add a partition at its fetch offset, after the others."""
        partition = state.topic_partition
        self.remove(partition)
        self.targets[partition] = Target(state, state.version, state.fetch_offset, from_replica)
        self.positions[partition] = FetchPosition(state.topic_id, state.fetch_offset, state.leader_epoch, max_bytes)
        self.changed[partition] = None
        topic = state.topic_id, partition.topic
        self.topic_counts[topic] = self.topic_counts.get(topic, 0) + 1

    def remove(self, partition: TopicPartition) -> None:
        """Remove a partition."""
        if self.targets.pop(partition, None) is None:
            return
        topic = self.positions.pop(partition).topic_id, partition.topic
        self.changed[partition] = None
        self.topic_counts[topic] -= 1
        if not self.topic_counts[topic]:
            del self.topic_counts[topic]

    def asks_for(self, state: AssignedPartition) -> bool:
        """Return True if the partition is requested in its current version: its response would not be dropped."""
        target = self.targets.get(state.topic_partition)
        return target is not None and target.state is state and target.version == state.version


class FetchPlanner:
    """Plans what to fetch from each node, visiting only partitions that changed since the last visit.

    Every node has two plans: the first for all its partitions, the second for those that the first, while it is in
    flight, does not request. Not thread-safe: its owner holds a lock.
    """

    def __init__(self, subscription: SubscriptionState, buffer: FetchBuffer, config: ConsumerConfig) -> None:
        self._subscription = subscription
        self._buffer = buffer
        self._config = config
        self._low = low_bytes(config)
        self._plenty = _MAX_SHARES * config.max_partition_fetch_bytes
        self._picture: object = None
        self._leaders: dict[AssignedPartition, int] = {}
        self._nodes_of: dict[AssignedPartition, frozenset[int]] = {}  # the nodes to fetch it from
        self._members: Counter[int] = Counter()
        self._leaderless: dict[AssignedPartition, None] = {}
        self._plans: dict[int, tuple[FetchPlan, FetchPlan]] = {}

    def update(self, picture: object, leader_of: Callable[[TopicPartition], int]) -> None:
        """Process changed partitions; a different `picture` (metadata) may have different leaders."""
        if picture is not self._picture:
            self._picture = picture
            for state in self._subscription:
                if self._leaders.get(state) != leader_of(state.topic_partition):
                    state.touch()
        changes = self._subscription.changes
        dirty, changes.dirty = changes.dirty, {}
        for state in dirty:
            self._update_nodes(state, leader_of)

    def sources(self) -> set[int]:
        """Return the nodes to fetch from."""
        return {node for node, count in self._members.items() if count}

    @property
    def lacks_leader(self) -> bool:
        """Return True if some partition has no leader."""
        return bool(self._leaderless)

    def plan(self, node: int, number: int, now: float, *, other_in_flight: bool, reserved: int = 0) -> FetchPlan:
        """Return a node's plan of this number (0 or 1), which is not in flight; without targets, fetch nothing.

        It leaves out what the other plan requests, if in flight, and partitions with enough buffered: more than what
        makes a fetch urgent, so that one request covers many partitions. The memory of a node's responses, the bytes
        requested and the `reserved` bytes of the other request stay below `fetch_max_bytes` in sum; only while the user
        has nothing to poll, `max_partition_fetch_bytes` more are allowed.
        """
        plan, other = self._of_node(node)[number], self._of_node(node)[1 - number]
        if number and not other_in_flight:  # the first plan takes its partitions
            self._hand_over(plan, other)
            return FetchPlan(node)
        for state in [state for state, at in plan.later.items() if at <= now]:
            del plan.later[state]
            plan.dirty[state] = None
        dirty, plan.dirty = plan.dirty, {}
        for state in dirty:
            if not (other_in_flight and other.asks_for(state)):
                self._reconsider(plan, state, now)
            else:
                plan.remove(state.topic_partition)
        plan.wake_at = min((at for at in plan.later.values() if not isinf(at)), default=None)
        urgent, has_data = self._buffered_state(plan, now)
        room = self._config.fetch_max_bytes - self._buffer.held(node) - reserved
        one = _one_share(self._config)
        if urgent and room < one and has_data:
            self._buffer.wake_below(node, max(1, self._config.fetch_max_bytes - reserved - one + 1))
            return FetchPlan(node, wake_at=plan.wake_at)
        if not urgent:
            return FetchPlan(node, wake_at=plan.wake_at)
        most = max(_ROUND_BYTES, self._config.fetch_min_bytes)
        plan.max_bytes = max(one, min(room, most, len(plan.targets) * self._config.max_partition_fetch_bytes))
        return plan

    def hand_over(self, node: int) -> None:
        """Return the partitions of the node's second plan to the first."""
        first, second = self._of_node(node)
        self._hand_over(second, first)

    def _hand_over(self, plan: FetchPlan, other: FetchPlan) -> None:
        for partition, target in list(plan.targets.items()):
            other.dirty[target.state] = None
            plan.dirty[target.state] = None
            plan.remove(partition)

    def _of_node(self, node: int) -> tuple[FetchPlan, FetchPlan]:
        plans = self._plans.get(node)
        if plans is None:
            plans = self._plans[node] = FetchPlan(node), FetchPlan(node)
        return plans

    def _update_nodes(self, state: AssignedPartition, leader_of: Callable[[TopicPartition], int]) -> None:
        """Mark a partition dirty in the plans of its old and new nodes."""
        partition = state.topic_partition
        before = self._nodes_of.pop(state, frozenset())
        after: frozenset[int] = frozenset()
        self._leaderless.pop(state, None)
        self._leaders.pop(state, None)
        if self._subscription.find(partition) is state:
            leader = self._leaders[state] = leader_of(partition)
            after = self._nodes_of[state] = frozenset(node for node in (leader, state.preferred_replica) if node >= 0)
            if leader < 0:
                self._leaderless[state] = None
        for node in before | after:
            for plan in self._of_node(node):
                plan.dirty[state] = None
            self._members[node] += (node in after) - (node in before)

    def _source(self, state: AssignedPartition, now: float) -> int:
        preferred = state.preferred_replica
        return preferred if preferred >= 0 and state.preferred_until > now else self._leaders.get(state, -1)

    def _reconsider(self, plan: FetchPlan, state: AssignedPartition, now: float) -> None:
        """Request the partition, or not."""
        partition = state.topic_partition
        target = plan.targets.get(partition)
        if target is not None and (target.state is state or self._subscription.find(partition) is state):
            plan.remove(partition)
        plan.later.pop(state, None)
        if self._subscription.find(partition) is not state or state.phase is not Phase.FETCH or state.paused:
            return
        if self._source(state, now) != plan.node:
            if self._leaders.get(state) == plan.node:  # back to the leader when the preference expires
                plan.later[state] = state.preferred_until
        elif state.retry_at > now:
            plan.later[state] = state.retry_at
        elif state.buffered < self._plenty:
            from_replica = state.preferred_replica >= 0 and state.preferred_until > now
            plan.add(state, from_replica, self._config.max_partition_fetch_bytes)

    def _buffered_state(self, plan: FetchPlan, now: float) -> tuple[bool, bool]:
        """Return True if a target is short of data, and True if any partition of the node has buffered data."""
        with_data = self._subscription.changes.with_data
        enough, has_data = 0, False
        for state in tuple(with_data):
            if state.buffered <= 0 or self._subscription.find(state.topic_partition) is not state:
                del with_data[state]
                continue
            enough += state.buffered >= self._low and plan.asks_for(state)
            if state.phase is Phase.FETCH and not state.paused and self._source(state, now) == plan.node:
                has_data = True
        return len(plan.targets) > enough, has_data


def low_bytes(config: ConsumerConfig) -> int:
    """Return the buffered bytes below which a partition is fetched again, while the user works on the rest."""
    return _LOW_SHARES * config.max_partition_fetch_bytes


def high_bytes(config: ConsumerConfig) -> int:
    """Return the bytes held by one node's responses from which on nothing more is fetched from it."""
    return config.fetch_max_bytes - _one_share(config) + 1


def _one_share(config: ConsumerConfig) -> int:
    return min(config.max_partition_fetch_bytes, config.fetch_max_bytes)
