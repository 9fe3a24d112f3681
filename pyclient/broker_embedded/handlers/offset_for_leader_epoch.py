"""OffsetForLeaderEpoch v2-4: the end offset of a leader epoch, so that clients detect truncation (KIP-320)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import code_of
from pyclient.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.replication.partitions import Partitions
    from pyclient.broker_embedded.request_context import RequestContext
    from pyclient.broker_embedded.services import BrokerServices


def _logs(request: OffsetForLeaderEpochRequest, _services: BrokerServices) -> Iterator[TopicPartition]:
    for topic in request.topics:
        for partition in topic.partitions:
            yield TopicPartition(topic.topic, partition.partition)


@handles(OffsetForLeaderEpochRequest, versions=(2, 4), logs=_logs)
def handle(
    request: OffsetForLeaderEpochRequest, context: RequestContext
) -> IncrementalTask[OffsetForLeaderEpochResponse]:
    """Answer every partition; epoch -1 and offset -1 for an epoch that is not in the log."""
    topics = []
    for topic in request.topics:
        answers = []
        for partition in topic.partitions:
            answers.append(_answer(context.services.partitions, topic.topic, partition))
            yield None
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
        yield None
    return OffsetForLeaderEpochResponse(topics=topics)


def _answer(partitions: Partitions, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        log, leader_epoch = partitions.leader(topic, wanted.partition, wanted.current_leader_epoch)
        epoch, end_offset = log.end_offset_for_epoch(wanted.leader_epoch, leader_epoch)
    except Exception as error:  # every failure is answered with its error code
        code = code_of(error, f"OffsetForLeaderEpoch of {topic}-{wanted.partition}")
        return EpochEndOffset(error_code=code, partition=wanted.partition)
    return EpochEndOffset(error_code=0, partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)
