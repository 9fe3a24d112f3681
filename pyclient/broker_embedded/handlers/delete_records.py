"""DeleteRecords v0-2: advance the start offsets of logs, so that earlier records are no longer readable.

Offset -1 is the high watermark. Topics that are only compacted are refused, as in Kafka, and so are internal topics.
Retention deletes the files of whole segments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient import errors
from pyclient.broker_embedded.controller.image import INTERNAL_TOPICS
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import code_of
from pyclient.broker_embedded.replication.delayed_delete_records import Deleted, when_deleted
from pyclient.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Iterator

    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.replication.partitions import Partitions
    from pyclient.broker_embedded.replication.purgatory import FetchPurgatory
    from pyclient.broker_embedded.request_context import RequestContext
    from pyclient.broker_embedded.services import BrokerServices

HIGH_WATERMARK: Final = -1


def _logs(request: DeleteRecordsRequest, _services: BrokerServices) -> Iterator[TopicPartition]:
    for topic in request.topics:
        for partition in topic.partitions:
            yield TopicPartition(topic.name, partition.partition_index)


@handles(DeleteRecordsRequest, versions=(0, 2), logs=_logs)
def handle(
    request: DeleteRecordsRequest, context: RequestContext
) -> IncrementalTask[DeleteRecordsResponse | Future[DeleteRecordsResponse]]:
    """Answer every partition with its new log start offset; the last of duplicate partitions counts."""
    topics = []
    deleted: list[Deleted] = []
    for name, topic in {topic.name: topic for topic in request.topics}.items():
        offsets = {each.partition_index: each.offset for each in topic.partitions}
        results = []
        for index, offset in offsets.items():
            results.append(
                _delete(context.services.partitions, context.services.purgatory, name, index, offset, deleted)
            )
            yield None
        topics.append(DeleteRecordsTopicResult(name=name, partitions=results))
        yield None
    response = DeleteRecordsResponse(throttle_time_ms=0, topics=topics)
    return (
        when_deleted(response, deleted, request.timeout_ms, context.services.loop, context.services.timers)
        if deleted
        else response
    )


def _delete(
    partitions: Partitions, purgatory: FetchPurgatory, topic: str, index: int, offset: int, deleted: list[Deleted]
) -> DeleteRecordsPartitionResult:
    try:
        log, _epoch = partitions.leader(topic, index)
        if topic in INTERNAL_TOPICS:
            raise errors.InvalidTopic(f"{topic} is an internal topic: clients cannot delete its records")
        if not log.config.deletes:
            raise errors.PolicyViolation(f"{topic}: cleanup.policy does not include delete")
        if offset < HIGH_WATERMARK:
            raise errors.OffsetOutOfRange(f"{topic}-{index}: offset {offset} is negative")
        log.delete_records_before(log.high_watermark if offset == HIGH_WATERMARK else offset)
    except Exception as error:  # every failure is answered with its error code
        code = code_of(error, f"DeleteRecords of {topic}-{index}")
        return DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=code)
    answer = DeleteRecordsPartitionResult(partition_index=index, low_watermark=log.start_offset, error_code=0)
    hosted = partitions.hosted(topic, index)
    if hosted is not None:
        deleted.append(Deleted(answer, hosted, log.start_offset))
        purgatory.wake(log)  # followers that wait for records learn of the new start at once
    return answer
