"""Fetch v4-12: read record batches, waiting for `min_bytes` up to `max_wait_ms`.

Partitions are read in the order of the request; the first one with data gives at least one batch whatever the limits
say. An error of a partition ends the wait at once. Sessions are declined (session id 0), which every client takes.
Not done: topic ids (v13+), reads by followers, preferred replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient import errors
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import code_of
from pyclient.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Iterable

    from pyclient.broker_embedded.broker import BrokerNode
    from pyclient.broker_embedded.dispatch import RequestContext
    from pyclient.broker_embedded.log.partition_log import LogRead, PartitionLog

READ_COMMITTED: Final = 1


@handles(FetchRequest, versions=(4, 12))
def handle(request: FetchRequest, context: RequestContext) -> FetchResponse | Future[FetchResponse]:
    """Answer at once where there is enough, or an error; else park the request."""
    if request.session_id != 0 and request.session_epoch > 0:
        return FetchResponse(error_code=errors.FetchSessionIdNotFound.code, session_id=0, responses=[])
    read = _Reading(request, context.node)
    response = read.attempt(last=request.max_wait_ms <= 0)
    if response is not None:
        return response
    return context.node.purgatory.park(read, request.max_wait_ms / 1000, context.connection)


class _Reading:
    """A Fetch request and how to answer it, as often as need be."""

    def __init__(self, request: FetchRequest, node: BrokerNode) -> None:
        self._request = request
        self._node = node
        self._isolation: Final = "committed" if request.isolation_level == READ_COMMITTED else "uncommitted"
        self._max_bytes = min(max(request.max_bytes, 0), node.config.integer("fetch.max.bytes"))
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._size = 0
        self._must_answer = False
        self._found: dict[PartitionLog, tuple[FetchPartition, int]] = {}

    @property
    def logs(self) -> Iterable[PartitionLog]:
        """The logs that more data may come to."""
        return self._found

    def may_be_enough(self, grown: Iterable[PartitionLog]) -> bool:
        """Look at the logs that have grown, not at all of them: a fetch of many partitions is woken often."""
        if self._min_bytes <= 1:
            return True
        for log in grown:
            wanted, before = self._found[log]
            try:
                read = log.read(wanted.fetch_offset, wanted.partition_max_bytes, isolation=self._isolation)
            except errors.BrokerError:
                return True  # the attempt will tell the client
            for part in read.parts:
                part.release()
            if read.more:
                return True
            self._found[log] = wanted, read.size
            self._size += read.size - before
        return self._size >= self._min_bytes

    def attempt(self, last: bool) -> FetchResponse | None:
        """The response if there is enough to say or this is the `last` attempt."""
        self._size, self._must_answer = 0, False
        self._found.clear()
        responses = [
            FetchableTopicResponse(
                topic=topic.topic, partitions=[self._read(topic.topic, partition) for partition in topic.partitions]
            )
            for topic in self._request.topics
        ]
        if last or self._must_answer or not self._found or self._size >= self._min_bytes:
            return FetchResponse(responses=responses)
        _release(responses)
        return None

    def _read(self, topic: str, wanted: FetchPartition) -> PartitionData:
        try:
            if self._request.replica_id >= 0:
                raise errors.NotLeaderOrFollower(f"replica {self._request.replica_id} of {topic} is not assigned")
            log, _epoch = self._node.partitions.leader(topic, wanted.partition, wanted.current_leader_epoch)
        except Exception as error:
            return _failed(topic, wanted.partition, error)
        try:
            if wanted.last_fetched_epoch >= 0 and (diverging := _divergence(log, wanted)) is not None:
                self._must_answer = True
                return _diverged(wanted.partition, log, diverging)
            read = log.read(
                wanted.fetch_offset,
                max(0, min(self._max_bytes - self._size, wanted.partition_max_bytes)),
                min_one_batch=self._size == 0,
                isolation=self._isolation,
            )
        except Exception as error:
            self._must_answer = True
            return _failed(topic, wanted.partition, error)
        if read.more:  # a closed segment ends here: what the client waits for is in the next one
            self._must_answer = True
        self._found[log] = wanted, read.size
        self._size += read.size
        return _succeeded(wanted.partition, read, committed=self._isolation == "committed")


def _divergence(log: PartitionLog, wanted: FetchPartition) -> EpochEndOffset | None:
    """Where the client's log and this one part, if they do before its fetch offset (KIP-595)."""
    epoch, end_offset = log.end_offset_for_epoch(wanted.last_fetched_epoch)
    if end_offset < 0 or wanted.fetch_offset < log.start_offset:
        raise errors.OffsetOutOfRange(f"{log.topic}-{log.partition}: epoch {wanted.last_fetched_epoch} is not known")
    if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None


def _diverged(partition: int, log: PartitionLog, diverging: EpochEndOffset) -> PartitionData:
    return PartitionData(
        partition_index=partition,
        error_code=0,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.start_offset,
        diverging_epoch=diverging,
        aborted_transactions=None,
        records=b"",
    )


def _succeeded(partition: int, read: LogRead, *, committed: bool) -> PartitionData:
    return PartitionData(
        partition_index=partition,
        error_code=0,
        high_watermark=read.high_watermark,
        last_stable_offset=read.last_stable_offset,
        log_start_offset=read.log_start_offset,
        aborted_transactions=(
            [AbortedTransaction(producer_id=pid, first_offset=first) for pid, first in read.aborted or ()]
            if committed
            else None
        ),
        records=read.parts[0] if read.parts else b"",
    )


def _failed(topic: str, partition: int, error: Exception) -> PartitionData:
    return PartitionData(
        partition_index=partition,
        error_code=code_of(error, f"Fetch of {topic}-{partition}"),
        high_watermark=-1,
        aborted_transactions=None,
        records=b"",
    )


def _release(responses: list[FetchableTopicResponse]) -> None:
    """Give back the files behind what is not sent after all."""
    for topic in responses:
        for partition in topic.partitions:
            if partition.records:
                partition.records.release()
