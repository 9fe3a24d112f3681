"""Decide when a Produce with acks=all is answered: when all in-sync replicas have its batches. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Protocol

from pyclient import errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyclient.types import TopicPartition


class ReplicatedBatch(Protocol):
    """A batch that was appended in a leader epoch, and the present state of its partition. It is only read here."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""

    @property
    def last_offset(self) -> int:
        """The offset of the last record."""

    @property
    def leader(self) -> int:
        """The present leader."""

    @property
    def is_led_here(self) -> bool:
        """True if this node is the leader, in the epoch in which the batch was appended."""

    @property
    def high_watermark(self) -> int | None:
        """The end of what is committed, None if the log is not open."""

    @property
    def failure(self) -> str | None:
        """The reason why the log is offline."""

    @property
    def in_sync(self) -> int:
        """The number of in-sync replicas, with those that are about to join or to leave."""

    @property
    def required(self) -> int:
        """The value of `min.insync.replicas`, at most the number of replicas."""

    @property
    def has_enough_replicas(self) -> bool:
        """True if the number is high enough for an acknowledgement."""


# Events


@dataclass(slots=True)
class Changed:
    """A batch was committed, or its partition changed so that this node will not commit it."""

    number: int


class Signal(Enum):
    """The events that carry nothing."""

    BEGAN = auto()
    """The batches were appended."""
    TIMED_OUT = auto()
    """The time limit of the request is over."""


# Effects


@dataclass(slots=True)
class Refuse:
    """Set the error in the answer for a batch."""

    number: int
    error: errors.BrokerError


@dataclass(slots=True)
class AwaitCommit:
    """Report `Changed` when the batch is committed, or will not be."""

    number: int


@dataclass(slots=True)
class WakeIn:
    """Report `Signal.TIMED_OUT` after that many seconds."""

    seconds: float


@dataclass(slots=True)
class Answer:
    """Send the response: all batches are decided."""


Event = Changed | Signal
Effect = Refuse | AwaitCommit | WakeIn | Answer

_ANSWER: Final = Answer()


class DelayedProduce:
    """The batches of one Produce that wait for their in-sync replicas, for `timeout` seconds at most.

    Each batch is decided once, by itself. What happens to its partition while others are waited for changes nothing,
    and only those that are undecided after the timeout have timed out.
    """

    __slots__ = ("_began", "_timeout", "_undecided")

    def __init__(self, batches: Sequence[ReplicatedBatch], timeout: float) -> None:
        self._undecided = dict(enumerate(batches))
        self._timeout = timeout
        self._began = 0.0

    def __repr__(self) -> str:
        return f"<DelayedProduce undecided={list(self._undecided.values())}>"

    def receive(self, event: Event, now: float) -> list[Effect]:
        """Return the effects of an event. There are none once the response was sent."""
        if event is Signal.BEGAN:
            return self._begin(now)
        if not self._undecided:
            return []
        decided = [event.number] if isinstance(event, Changed) else list(self._undecided)
        effects = [effect for number in decided for effect in self._decide(number, now)]
        if not self._undecided:
            effects.append(_ANSWER)
        return effects

    def _begin(self, now: float) -> list[Effect]:
        self._began = now
        effects: list[Effect] = []
        for number, batch in list(self._undecided.items()):
            if self._timeout <= 0 or _is_decided(batch):
                effects += self._decide(number, now)
        if not self._undecided:
            return [*effects, _ANSWER]
        return [*effects, WakeIn(self._timeout), *map(AwaitCommit, self._undecided)]

    def _decide(self, number: int, now: float) -> list[Effect]:
        """Decide about a batch, unless that was done. Without an error it is acknowledged."""
        batch = self._undecided.pop(number, None)
        error = None if batch is None else _error(batch, now - self._began)
        return [] if error is None else [Refuse(number, error)]


def _is_decided(batch: ReplicatedBatch) -> bool:
    """Return True if the batch is committed, or will never be in this leader epoch."""
    committed = batch.high_watermark
    return committed is None or committed > batch.last_offset or not batch.is_led_here


def _error(batch: ReplicatedBatch, waited: float) -> errors.BrokerError | None:
    """Return the error for a batch after `waited` seconds; None if it is committed and enough replicas are in sync."""
    topic_partition, committed = batch.topic_partition, batch.high_watermark
    if not batch.is_led_here:
        leader = "no longer led by this broker" if batch.leader < 0 else f"led by broker {batch.leader} now"
        return errors.NotLeaderOrFollower(f"{topic_partition} is {leader}")
    if committed is None or batch.failure is not None:
        return errors.KafkaStorageError(f"{topic_partition} is offline: {batch.failure}")
    if committed <= batch.last_offset:
        reason = f"the replicas in sync did not get the batch in time ({waited:.3f} s)"
        return errors.RequestTimedOut(f"{topic_partition}: {reason}")
    if not batch.has_enough_replicas:
        return errors.NotEnoughReplicasAfterAppend(
            f"{topic_partition}: {batch.in_sync} replicas are in sync, {batch.required} required"
        )
    return None
