"""Produce with acks=all: the answer waits until all in-sync replicas have the batches."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pyclient import errors

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from collections.abc import Callable, Sequence

    from pyclient.broker_embedded.replication.replica_manager import HostedPartition
    from pyclient.broker_embedded.scheduling.timers import Timers
    from pyclient.protocol.messages.produce import PartitionProduceResponse, ProduceResponse


class Appended(NamedTuple):
    """An appended batch of a replicated partition, by its last offset, and the answer that reports it."""

    answer: PartitionProduceResponse
    hosted: HostedPartition
    last_offset: int
    leader_epoch: int

    @property
    def is_decided(self) -> bool:
        """Return True if the batch is committed, or will never be in this leader epoch."""
        opened = self.hosted.log
        return opened is None or opened.high_watermark > self.last_offset or not self._leads

    @property
    def _leads(self) -> bool:
        partition = self.hosted.partition
        return partition.leads and partition.leader_epoch == self.leader_epoch

    def complete(self) -> None:
        """Set the error of the answer, unless the batch is committed and enough replicas are in sync."""
        opened, partition = self.hosted.log, self.hosted.partition
        topic_partition = self.hosted.topic_partition
        if not self._leads:
            self._fail(errors.NotLeaderOrFollower(f"broker {partition.leader} leads {topic_partition} now"))
        elif opened is None or opened.failure is not None:
            failure = None if opened is None else opened.failure
            self._fail(errors.KafkaStorageError(f"{topic_partition} is offline: {failure}"))
        elif opened.high_watermark <= self.last_offset:
            self._fail(errors.RequestTimedOut(f"{topic_partition}: the replicas in sync did not get the batch in time"))
        elif not partition.has_enough_replicas:
            self._fail(
                errors.NotEnoughReplicasAfterAppend(
                    f"{topic_partition}: {len(partition.maximal_isr)} replicas are in sync, "
                    f"{partition.effective_min_isr} required"
                )
            )

    def _fail(self, error: errors.BrokerError) -> None:
        answer = self.answer
        answer.error_code = error.code
        answer.error_message = str(error)
        answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1


def when_replicated(
    response: ProduceResponse,
    appended: Sequence[Appended],
    timeout_ms: int,
    loop: AbstractEventLoop,
    timers: Timers,
    on_decided: Callable[[Future[ProduceResponse]], object],
) -> ProduceResponse | Future[ProduceResponse]:
    """Return the response, or a future of it that is done when all batches are decided, within `timeout_ms`.

    Each batch is decided once, by itself. What happens to its partition while others are waited for changes nothing,
    and only those that are undecided after `timeout_ms` have timed out. `on_decided` is called with the future as soon
    as that is done: a callback of the future would run after everything else in the next iteration of the loop.
    """
    undecided = dict(enumerate(appended))

    def decide(number: int) -> None:
        each = undecided.pop(number, None)
        if each is not None:
            each.complete()

    for number, each in enumerate(appended):
        if timeout_ms <= 0 or each.is_decided:
            decide(number)
    if not undecided:
        return response
    done: Future[ProduceResponse] = loop.create_future()

    def end() -> None:
        for number in tuple(undecided):
            decide(number)
        if not done.done():
            done.set_result(response)
            on_decided(done)

    def decided(number: int) -> None:
        decide(number)
        if not undecided:
            end()

    timer = timers.schedule(timeout_ms / 1000, end)
    done.add_done_callback(lambda _done: timer.cancel())
    for number, each in tuple(undecided.items()):
        assert each.hosted.log is not None, "it was appended to"
        each.hosted.log.when_committed(each.last_offset, partial(decided, number))
    return done
