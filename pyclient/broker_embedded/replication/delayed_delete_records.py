"""DeleteRecords of replicated partitions: the answer waits until the live replicas have deleted the records, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyclient import errors

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from collections.abc import Sequence

    from pyclient.broker_embedded.replication.hosted_partitions import HostedPartition
    from pyclient.broker_embedded.scheduling.timers import Timers
    from pyclient.protocol.messages.delete_records import DeleteRecordsPartitionResult, DeleteRecordsResponse


class Deleted(NamedTuple):
    """A replicated partition whose log starts at `offset` now, and the answer that reports it."""

    answer: DeleteRecordsPartitionResult
    hosted: HostedPartition
    offset: int

    @property
    def low_watermark(self) -> int:
        """Return the lowest start of the live replicas' logs."""
        opened = self.hosted.log
        assert opened is not None, "it was deleted from"
        return min(opened.start_offset, self.hosted.partition.lowest_start(opened.start_offset))

    @property
    def is_over(self) -> bool:
        """Return True if all live replicas have deleted the records, or this node no longer leads."""
        return not self.hosted.partition.leads or self.low_watermark >= self.offset

    def complete(self) -> None:
        """Set the low watermark in the answer, or the error if the replicas did not follow."""
        answer = self.answer
        if not self.hosted.partition.leads:
            answer.error_code = errors.NotLeaderOrFollower.code
        elif not self.is_over:
            answer.error_code = errors.RequestTimedOut.code
        answer.low_watermark = -1 if answer.error_code else self.low_watermark


def when_deleted(
    response: DeleteRecordsResponse,
    deleted: Sequence[Deleted],
    timeout_ms: int,
    loop: AbstractEventLoop,
    timers: Timers,
) -> DeleteRecordsResponse | Future[DeleteRecordsResponse]:
    """Return the response, or a future of it, which is done when the replicas have followed or after `timeout_ms`."""
    done: Future[DeleteRecordsResponse] = loop.create_future()

    def end() -> None:
        if not done.done():
            for each in deleted:
                each.complete()
            done.set_result(response)

    def check() -> None:
        if all(each.is_over for each in deleted):
            end()

    check()
    if done.done():
        return response
    timer = timers.schedule(max(timeout_ms, 0) / 1000, end)
    for each in deleted:
        each.hosted.after_fetch.add(check)

    def over(_done: object) -> None:
        timer.cancel()
        for each in deleted:
            each.hosted.after_fetch.discard(check)

    done.add_done_callback(over)
    return done
