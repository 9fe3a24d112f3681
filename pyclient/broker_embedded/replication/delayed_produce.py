"""Produce with acks=all: the answer waits until all in-sync replicas have the batches.

`DelayedProduce` decides, without I/O: `receive` takes an event and returns effects. `when_replicated` carries them out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from pyclient import errors

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from collections.abc import Callable, Sequence

    from pyclient.broker_embedded.replication.hosted_partitions import HostedPartition
    from pyclient.broker_embedded.scheduling.timers import ShiftedClock, Timer, Timers
    from pyclient.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
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


# The driver


class Appended(NamedTuple):
    """An appended batch of a replicated partition, by its last offset, and the answer that reports it."""

    answer: PartitionProduceResponse
    hosted: HostedPartition
    last_offset: int
    leader_epoch: int

    @property
    def topic_partition(self) -> TopicPartition:
        """Return the partition."""
        return self.hosted.topic_partition

    @property
    def leader(self) -> int:
        """Return the present leader."""
        return self.hosted.partition.leader

    @property
    def is_led_here(self) -> bool:
        """Return True if this node is the leader, in the epoch in which the batch was appended."""
        partition = self.hosted.partition
        return partition.leads and partition.leader_epoch == self.leader_epoch

    @property
    def high_watermark(self) -> int | None:
        """Return the end of what is committed, None if the log is not open."""
        opened = self.hosted.log
        return None if opened is None else opened.high_watermark

    @property
    def failure(self) -> str | None:
        """Return the reason why the log is offline."""
        opened = self.hosted.log
        return None if opened is None else opened.failure

    @property
    def in_sync(self) -> int:
        """Return the number of in-sync replicas, with those that are about to join or to leave."""
        return len(self.hosted.partition.maximal_isr)

    @property
    def required(self) -> int:
        """Return `min.insync.replicas`, at most the number of replicas."""
        return self.hosted.partition.effective_min_isr

    @property
    def has_enough_replicas(self) -> bool:
        """Return True if the number is high enough for an acknowledgement."""
        return self.hosted.partition.has_enough_replicas

    def refuse(self, error: errors.BrokerError) -> None:
        """Set the error of the answer."""
        answer = self.answer
        answer.error_code = error.code
        answer.error_message = str(error)
        answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1


class _Held:
    """Carries out the effects of one `DelayedProduce`. `done` is the future of its response, once that has to wait."""

    def __init__(
        self,
        response: ProduceResponse,
        appended: Sequence[Appended],
        timeout: float,
        loop: AbstractEventLoop,
        timing: tuple[ShiftedClock, Timers],
        on_decided: Callable[[Future[ProduceResponse]], object],
    ) -> None:
        self.done: Future[ProduceResponse] | None = None
        self._delayed = DelayedProduce(appended, timeout)
        self._response = response
        self._appended = appended
        self._loop = loop
        self._clock, self._timers = timing
        self._on_decided = on_decided

    def begin(self) -> None:
        """Hold the response, unless all batches are decided."""
        self._receive(Signal.BEGAN)

    def _receive(self, event: Event) -> None:
        for effect in self._delayed.receive(event, self._clock.monotonic()):
            match effect:
                case Answer():
                    self._answer()
                case WakeIn(seconds):
                    self.done = self._loop.create_future()
                    timer = self._timers.schedule(seconds, partial(self._receive, Signal.TIMED_OUT))
                    self.done.add_done_callback(partial(_cancel, timer))
                case AwaitCommit(number):
                    opened = self._appended[number].hosted.log
                    assert opened is not None, "it was appended to"
                    opened.when_committed(self._appended[number].last_offset, partial(self._receive, Changed(number)))
                case Refuse(number, error):
                    self._appended[number].refuse(error)

    def _answer(self) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_result(self._response)
            self._on_decided(self.done)


def _cancel(timer: Timer, _done: object) -> None:
    timer.cancel()


def when_replicated(
    response: ProduceResponse,
    appended: Sequence[Appended],
    timeout_ms: int,
    loop: AbstractEventLoop,
    timing: tuple[ShiftedClock, Timers],
    on_decided: Callable[[Future[ProduceResponse]], object],
) -> ProduceResponse | Future[ProduceResponse]:
    """Return the response, or a future of it that is done when all batches are decided, within `timeout_ms`.

    `on_decided` is called with the future as soon as that is done: a callback of the future would run after everything
    else in the next iteration of the loop.
    """
    if not appended:
        return response
    held = _Held(response, appended, timeout_ms / 1000, loop, timing, on_decided)
    held.begin()
    return held.done or response
