"""What to fetch next from one node, and what the answer means: decisions only."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyclient.consumer.batches import parse_records
from pyclient.consumer.config import ConsumerConfig
from pyclient.consumer.fetch_buffer import FetchBuffer, FetchedPart, Frame
from pyclient.consumer.fetch_session import FetchPosition
from pyclient.consumer.subscription import AssignedPartition, Phase, SubscriptionState
from pyclient.errors import (
    CorruptBatch,
    CorruptMessage,
    FencedLeaderEpoch,
    InconsistentTopicId,
    KafkaError,
    KafkaStorageError,
    LeaderNotAvailable,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    ReplicaNotAvailable,
    TopicAuthorizationFailed,
    UnknownLeaderEpoch,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
    from_code,
)
from pyclient.protocol.messages.fetch import FetchResponse, PartitionData
from pyclient.types import TopicPartition

_STALE: Final = frozenset(
    error.code
    for error in (
        NotLeaderOrFollower,
        LeaderNotAvailable,
        ReplicaNotAvailable,
        KafkaStorageError,
        FencedLeaderEpoch,
        OffsetNotAvailable,
        UnknownTopicOrPartition,
        UnknownTopicId,
        InconsistentTopicId,
    )
)
"""The picture of the cluster is old: ask for a new one, then again."""
_PASSING: Final = frozenset((UnknownLeaderEpoch.code, UnknownServerError.code))
_NO_TOPIC_ID: Final = uuid.UUID(int=0)
_LOW: Final = 2
_PLENTY: Final = 3
"""Shares in stock. While the user works on one the next lies ready, and the request for another is under way: with one
share less, broker and client wait for each other in turn (measured: 1.1 to 1.2 times the rate, and less CPU time as
answers are larger)."""
_ROUND_BYTES: Final = 8 * 1024 * 1024
"""More at once would leave the CPU's cache before the user comes to it."""


@dataclass(frozen=True, slots=True)
class Target:
    """One partition to fetch, as it stood when the request was made."""

    state: AssignedPartition
    version: int
    offset: int
    from_replica: bool


@dataclass(slots=True)
class FetchPlan:
    """What to ask one node for. `wake_at` is when there may be more to ask for without anything else happening."""

    node: int = -1
    targets: dict[TopicPartition, Target] = field(default_factory=dict)
    positions: dict[TopicPartition, FetchPosition] = field(default_factory=dict)
    max_bytes: int = 0
    by_id: bool = True
    wake_at: float | None = None

    def begin(self) -> None:
        """The request goes out: nobody else asks for these."""
        for target in self.targets.values():
            target.state.asked, target.state.asked_node = target.version, self.node

    def end(self) -> None:
        """The request is over, whatever came of it."""
        for target in self.targets.values():
            if (target.state.asked, target.state.asked_node) == (target.version, self.node):
                target.state.asked = -1

    def look_again(self, at: float) -> None:
        """There may be more to ask for at this time."""
        self.wake_at = at if self.wake_at is None else min(self.wake_at, at)

    def topic_names(self) -> Mapping[uuid.UUID, str]:
        """Names by topic id, for answers that tell only the id."""
        return {at.topic_id: partition.topic for partition, at in self.positions.items()}


def plan_fetch(
    node: int,
    subscription: SubscriptionState,
    buffer: FetchBuffer,
    leader_of: Callable[[TopicPartition], int],
    config: ConsumerConfig,
    now: float,
    reserved: int = 0,
) -> FetchPlan:
    """The partitions that `node` leads and that want data, those first that have waited longest.

    Left out are those that a fetch to this node is in flight for, and those with enough in stock: more than what makes
    a fetch urgent, so that one request fetches for many partitions and not one for each. What a node's answers hold in
    memory, what is asked for and the `reserved` bytes of another request stay below `fetch_max_bytes`
    together; only when the user has nothing to poll, `max_partition_fetch_bytes` more are allowed.
    """
    plan = FetchPlan(node)
    low, plenty = low_bytes(config), _PLENTY * config.max_partition_fetch_bytes
    in_stock = urgent = False
    for state in subscription:
        if state.phase is not Phase.FETCH or state.paused:
            continue
        from_replica = state.preferred_replica >= 0 and state.preferred_until > now
        leader = leader_of(state.topic_partition)
        if (state.preferred_replica if from_replica else leader) != node:
            if leader == node:  # it is this node's turn again when the preference ends
                plan.look_again(state.preferred_until)
            continue
        in_stock = in_stock or state.buffered > 0
        if (state.asked == state.version and state.asked_node == node) or state.buffered >= plenty:
            continue
        if state.retry_at > now:
            plan.look_again(state.retry_at)
        else:
            urgent = urgent or state.buffered < low
            _add(plan, state, from_replica, config)
    room = config.fetch_max_bytes - buffer.held(node) - reserved
    one = _one_share(config)
    if not urgent or (room < one and in_stock):
        plan.targets.clear()
    most = max(_ROUND_BYTES, config.fetch_min_bytes)
    plan.max_bytes = max(one, min(room, most, len(plan.targets) * config.max_partition_fetch_bytes))
    return plan


def low_bytes(config: ConsumerConfig) -> int:
    """Below so many bytes in stock a partition is fetched again, while the user works on the rest."""
    return _LOW * config.max_partition_fetch_bytes


def high_bytes(config: ConsumerConfig) -> int:
    """When one node's answers hold so much, nothing more is fetched from it."""
    return config.fetch_max_bytes - _one_share(config) + 1


def _one_share(config: ConsumerConfig) -> int:
    return min(config.max_partition_fetch_bytes, config.fetch_max_bytes)


def _add(plan: FetchPlan, state: AssignedPartition, from_replica: bool, config: ConsumerConfig) -> None:
    partition = state.topic_partition
    plan.targets[partition] = Target(state, state.version, state.fetch_offset, from_replica)
    plan.positions[partition] = FetchPosition(
        state.topic_id, state.fetch_offset, state.leader_epoch, config.max_partition_fetch_bytes
    )
    plan.by_id = plan.by_id and state.topic_id != _NO_TOPIC_ID


@dataclass(slots=True)
class FetchOutcome:
    """What the parts of an answer ask for besides the data, and how many bytes of that there are.

    `moved`: some partition is to be read from another node from now on.
    """

    size: int = 0
    refresh_metadata: bool = False
    moved: bool = False
    records: bool = False
    trouble: bool = False
    errors: list[KafkaError] = field(default_factory=list)


def memory_of(response: FetchResponse) -> tuple[int, int]:
    """The bytes of records in an answer, and those of the memory that they keep alive: all of its frame's."""
    records = [data.records for topic in response.responses for data in topic.partitions if data.records]
    size = sum(map(len, records))
    frame = memoryview(memoryview(records[0]).obj).nbytes if records else 0
    return size, max(size, frame)


class AnswerReader:
    """Takes the partitions of one node's answer into the buffer. Its owner holds the lock."""

    def __init__(
        self, subscription: SubscriptionState, buffer: FetchBuffer, config: ConsumerConfig, backoff: float
    ) -> None:
        self._subscription = subscription
        self._buffer = buffer
        self._config = config
        self._backoff = backoff

    def take(self, target: Target, data: PartitionData, frame: Frame, now: float, outcome: FetchOutcome) -> None:
        """One partition of an answer; one that a seek or a rebalance has overtaken is dropped."""
        state = target.state
        if not self._subscription.holds(state, target.version) or state.fetch_offset != target.offset:
            return
        state.retry_at = 0.0
        if data.error_code:
            self._failed(target, data, now, outcome)
            return
        state.high_watermark = data.high_watermark
        state.last_stable_offset = data.last_stable_offset
        state.log_start_offset = data.log_start_offset
        if data.preferred_read_replica >= 0 and not target.from_replica:
            state.preferred_replica = data.preferred_read_replica
            state.preferred_until = now + self._config.metadata_max_age_ms / 1000
            outcome.moved = True
        if data.records is not None and len(data.records):
            self._take_records(target, data, memoryview(data.records), frame, now, outcome)

    def _take_records(
        self,
        target: Target,
        data: PartitionData,
        records: memoryview,
        frame: Frame,
        now: float,
        outcome: FetchOutcome,
    ) -> None:
        state = target.state
        aborted: Sequence[tuple[int, int]] = ()
        if self._config.read_committed and data.aborted_transactions:
            aborted = [(transaction.producer_id, transaction.first_offset) for transaction in data.aborted_transactions]
        parsed = parse_records(records, *state.topic_partition, target.offset, aborted)
        if parsed.next_offset == target.offset and parsed.error is None:
            state.retry_at = now + self._backoff  # only the beginning of a batch: it comes whole when it comes first
            return
        state.fetch_offset = parsed.next_offset
        self._buffer.add(FetchedPart(state, parsed, len(records), frame))
        self._subscription.served(state)
        if parsed.error is not None:
            state.retry_at = float("inf")  # nothing can be read behind it: the user has to seek
        outcome.records = True

    def _failed(self, target: Target, data: PartitionData, now: float, outcome: FetchOutcome) -> None:
        state, code = target.state, data.error_code
        partition = state.topic_partition
        state.retry_at = now + self._backoff
        if target.from_replica:
            state.preferred_replica = -1  # whatever it is, the leader knows better
        if code == OffsetOutOfRange.code:
            self._out_of_range(target, outcome)
        elif code in _STALE:
            outcome.refresh_metadata = True
        elif code == TopicAuthorizationFailed.code:
            outcome.errors.append(from_code(code, f"reading {partition} is not allowed"))
        elif code == CorruptMessage.code:
            message = f"{partition}: the broker's own log is corrupt at offset {target.offset}"
            state.stop(CorruptBatch(message, *partition, target.offset, target.offset + 1))
        elif code not in _PASSING:
            outcome.errors.append(from_code(code, f"fetching {partition} from offset {target.offset}"))
        outcome.trouble = True

    def _out_of_range(self, target: Target, outcome: FetchOutcome) -> None:
        """The log does not have the offset: the policy decides, once the user has had what was fetched before."""
        state = target.state
        if target.from_replica or state.position != target.offset:
            return
        if self._config.auto_offset_reset != "none":
            state.reset(None)
            return
        state.stop(
            OffsetOutOfRange(
                f"{state.topic_partition}: the log does not have offset {target.offset}, and auto_offset_reset is "
                "'none': seek to an offset that beginning_offsets() and end_offsets() include"
            )
        )
