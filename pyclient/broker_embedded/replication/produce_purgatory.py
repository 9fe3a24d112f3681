"""Produce with acks=all: holds the response until `DelayedProduce` decides that it can be sent."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pyclient.broker_embedded.replication.delayed_produce import (
    Answer,
    AwaitCommit,
    Changed,
    DelayedProduce,
    Refuse,
    Signal,
    WakeIn,
)

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from collections.abc import Callable, Sequence

    from pyclient import errors
    from pyclient.broker_embedded.replication.delayed_produce import Event
    from pyclient.broker_embedded.replication.hosted_partitions import HostedPartition
    from pyclient.broker_embedded.scheduling.timers import ShiftedClock, Timer, Timers
    from pyclient.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
    from pyclient.types import TopicPartition


class AppendedBatch(NamedTuple):
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
        appended: Sequence[AppendedBatch],
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
    appended: Sequence[AppendedBatch],
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
