"""OffsetFetch 1-10: read committed positions; offset -1 where nothing is committed.

2 asks for all partitions with null topics, 5 has leader epochs, 7 asks for stable offsets only (without transactional
commits every offset is stable), 8 asks for several groups, 9 has the member epochs of KIP-848, 10 topic ids instead of
names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.dispatch import handles
from pyclient.errors import BrokerError, UnknownTopicId
from pyclient.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyclient.broker_embedded.dispatch import RequestContext
    from pyclient.broker_embedded.groups.log_records import CommittedOffset
    from pyclient.protocol.messages.offset_fetch import (
        OffsetFetchRequestGroup,
        OffsetFetchRequestTopic,
    )

    Found = list[tuple[str, list[tuple[int, CommittedOffset | None]]]]
    """Topics with their partitions, as often as they are asked for."""

_BATCHED: Final = 8
_BY_ID: Final = 10
_GROUP_ERROR: Final = 2
_NOTHING: Final = -1


@handles(OffsetFetchRequest, versions=(1, 10))
def handle(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    """Answer for one group, or (from version 8 on) for each of several."""
    if context.version >= _BATCHED:
        return OffsetFetchResponse(groups=[_group(group, context) for group in request.groups])
    try:
        found = _find(request.group_id, request.topics, context)
    except BrokerError as error:
        return _refusal(request, error.code, context.version)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(name=topic, partitions=[_partition(*item) for item in partitions])
            for topic, partitions in found
        ]
    )


def _find(
    group_id: str,
    topics: Sequence[OffsetFetchRequestTopic] | Sequence[OffsetFetchRequestTopics] | None,
    context: RequestContext,
    *,
    member: OffsetFetchRequestGroup | None = None,
) -> Found:
    asked = None
    if topics is not None:
        asked = [TopicPartition(topic.name, index) for topic in topics for index in topic.partition_indexes]
    member_id, epoch = (None, -1) if member is None else (member.member_id, member.member_epoch)
    committed_offsets = context.node.groups.offsets.fetch(group_id, asked, member_id=member_id, member_epoch=epoch)
    if topics is not None:
        return [
            (
                topic.name,
                [(index, committed_offsets[TopicPartition(topic.name, index)]) for index in topic.partition_indexes],
            )
            for topic in topics
        ]
    found: dict[str, list[tuple[int, CommittedOffset | None]]] = {}
    for partition, committed in committed_offsets.items():
        found.setdefault(partition.topic, []).append((partition.partition, committed))
    return list(found.items())


def _partition(index: int, committed: CommittedOffset | None, error: int = 0) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=_NOTHING if committed is None else committed.offset,
        committed_leader_epoch=_NOTHING if committed is None else committed.leader_epoch,
        metadata="" if committed is None else committed.metadata,
        error_code=error,
    )


def _refusal(request: OffsetFetchRequest, error: int, version: int) -> OffsetFetchResponse:
    """The group's error; version 1 has no place for it but the partitions'."""
    if version >= _GROUP_ERROR:
        return OffsetFetchResponse(topics=[], error_code=error)
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name, partitions=[_partition(index, None, error) for index in topic.partition_indexes]
        )
        for topic in request.topics or ()
    ]
    return OffsetFetchResponse(topics=topics)


def _group(group: OffsetFetchRequestGroup, context: RequestContext) -> OffsetFetchResponseGroup:
    try:
        topics = _by_id(group, context) if context.version >= _BY_ID else _by_name(group, context)
    except BrokerError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=error.code)
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)


def _by_name(group: OffsetFetchRequestGroup, context: RequestContext) -> list[OffsetFetchResponseTopics]:
    return [
        OffsetFetchResponseTopics(name=topic, partitions=[_in_group(*item) for item in partitions])
        for topic, partitions in _find(group.group_id, group.topics, context, member=group)
    ]


def _by_id(group: OffsetFetchRequestGroup, context: RequestContext) -> list[OffsetFetchResponseTopics]:
    """From version 10 on topics have ids only: UNKNOWN_TOPIC_ID for one that no topic has."""
    image = context.node.image
    named = None
    missing: list[OffsetFetchRequestTopics] = []
    if group.topics is not None:
        missing = [topic for topic in group.topics if topic.topic_id not in image.topics_by_id]
        named = [
            OffsetFetchRequestTopics(
                name=image.topics_by_id[topic.topic_id].name, partition_indexes=topic.partition_indexes
            )
            for topic in group.topics
            if topic.topic_id in image.topics_by_id
        ]
    found = _find(group.group_id, named, context, member=group)
    answered = [
        OffsetFetchResponseTopics(
            topic_id=image.topics[name].topic_id, partitions=[_in_group(*item) for item in partitions]
        )
        for name, partitions in found
        if name in image.topics
    ]
    return answered + [
        OffsetFetchResponseTopics(
            topic_id=topic.topic_id,
            partitions=[_in_group(index, None, UnknownTopicId.code) for index in topic.partition_indexes],
        )
        for topic in missing
    ]


def _in_group(index: int, committed: CommittedOffset | None, error: int = 0) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=_NOTHING if committed is None else committed.offset,
        committed_leader_epoch=_NOTHING if committed is None else committed.leader_epoch,
        metadata="" if committed is None else committed.metadata,
        error_code=error,
    )
