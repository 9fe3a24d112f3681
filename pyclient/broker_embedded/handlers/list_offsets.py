"""ListOffsets v1-11: the start and end offsets of a log, and offsets by timestamp.

-1 is the high watermark (read committed: the last stable offset), -2 the start, -3 the newest timestamp (v7), -4 the
earliest local offset (v8), which is the start, -5 and -6 offsets of tiered storage (v9, v11), of which there are none.
A special timestamp that the version does not have is answered with UNSUPPORTED_VERSION. For a replica the end is that
of the log. A new leader whose high watermark is below the start of its epoch does not know the end that clients may
see: OFFSET_NOT_AVAILABLE. Not done: tiered storage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient import errors
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import code_of
from pyclient.broker_embedded.replication.fetch_reading import ISOLATION_LEVELS, READ_COMMITTED
from pyclient.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from pyclient.types import OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.log.unified_log import UnifiedLog
    from pyclient.broker_embedded.replication.partitions import Partitions
    from pyclient.broker_embedded.request_context import RequestContext
    from pyclient.broker_embedded.services import BrokerServices

LATEST, EARLIEST, NEWEST_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
_SINCE: Final = {
    LATEST: 1,
    EARLIEST: 1,
    NEWEST_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING: 11,
}
_SINCE_NOT_AVAILABLE: Final = 5
_NOT_FOUND: Final = OffsetAndTimestamp(-1, -1, -1)


def _logs(request: ListOffsetsRequest, _services: BrokerServices) -> Iterator[TopicPartition]:
    for topic in request.topics:
        for partition in topic.partitions:
            yield TopicPartition(topic.name, partition.partition_index)


@handles(ListOffsetsRequest, versions=(1, 11), logs=_logs)
def handle(request: ListOffsetsRequest, context: RequestContext) -> IncrementalTask[ListOffsetsResponse]:
    """Answer every partition once; a duplicate partition is an error."""
    services, version = context.services, context.version
    committed = request.isolation_level == READ_COMMITTED
    is_valid = request.isolation_level in ISOLATION_LEVELS
    topics = []
    for name, partitions in (yield from _by_topic(request)).items():
        answers = []
        for partition, is_duplicate in partitions.values():
            if is_duplicate or not is_valid:
                answers.append(_invalid(partition))
            else:
                answers.append(_answer(services.partitions, name, partition, version, committed, request.replica_id))
            yield None
        topics.append(ListOffsetsTopicResponse(name=name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


def _by_topic(request: ListOffsetsRequest) -> IncrementalTask[dict[str, dict[int, tuple[ListOffsetsPartition, bool]]]]:
    """Return the last entry of each partition by topic and number, with True if there are duplicates.

    A topic may be in a request several times; a topic without partitions is not answered.
    """
    found: dict[str, dict[int, tuple[ListOffsetsPartition, bool]]] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            known = found.setdefault(topic.name, {})
            known[partition.partition_index] = partition, partition.partition_index in known
            yield None
    return found


def _answer(
    partitions: Partitions, topic: str, wanted: ListOffsetsPartition, version: int, committed: bool, replica: int
) -> ListOffsetsPartitionResponse:
    try:
        log, epoch = partitions.leader(topic, wanted.partition_index, wanted.current_leader_epoch)
        end = log.last_stable_offset if committed else log.high_watermark
        hosted = partitions.hosted(topic, wanted.partition_index)
        is_behind = hosted is not None and log.high_watermark < hosted.partition.epoch_start
        if replica >= 0:
            end, is_behind = log.end_offset, False
        found = _find(log, wanted.timestamp, version, epoch, end, is_behind)
    except Exception as error:  # every failure is answered with its error code
        code = code_of(error, f"ListOffsets of {topic}-{wanted.partition_index}")
        return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=code)
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=0,
        timestamp=found.timestamp_ms,
        offset=found.offset,
        leader_epoch=found.leader_epoch if version >= 4 else -1,
    )


def _find(log: UnifiedLog, timestamp: int, version: int, epoch: int, end: int, is_behind: bool) -> OffsetAndTimestamp:
    if timestamp < 0 and version < _SINCE.get(timestamp, version + 1):
        raise errors.UnsupportedVersion(f"ListOffsets version {version} has no timestamp {timestamp}")
    if timestamp == LATEST:
        if is_behind:
            raise _not_available(log, version)
        return OffsetAndTimestamp(end, -1, epoch)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING):
        return _NOT_FOUND
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start_epoch = log.epoch_at(log.start_offset)
        return OffsetAndTimestamp(log.start_offset, -1, epoch if start_epoch < 0 else start_epoch)
    found = log.latest_timestamp_offset() if timestamp == NEWEST_TIMESTAMP else log.offset_for_timestamp(timestamp)
    if found is not None and found.offset >= end and is_behind:
        raise _not_available(log, version)
    return found if found is not None and found.offset < end else _NOT_FOUND


def _not_available(log: UnifiedLog, version: int) -> errors.BrokerError:
    kind = errors.OffsetNotAvailable if version >= _SINCE_NOT_AVAILABLE else errors.LeaderNotAvailable
    return kind(f"{log.topic}-{log.partition}: the new leader does not know the high watermark yet")


def _invalid(wanted: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=errors.InvalidRequest.code)
