"""OffsetFetch 1-10: return committed positions; offset -1 if there is none.

From version 2 on null topics request all partitions. 5 has leader epochs, 7 requests stable offsets only (one that an
open transaction has committed is UNSTABLE_OFFSET_COMMIT), 8 several groups, 9 the member epochs of KIP-848, 10 topic
ids instead of names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient.acls import AclOperation, ResourceType
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.log.incremental_task import in_steps
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.errors import BrokerError, UnknownTopicId, UnstableOffsetCommit
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

    from pyclient.broker_embedded.groups.log_records import CommittedOffset
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext
    from pyclient.protocol.messages.offset_fetch import (
        OffsetFetchRequestGroup,
        OffsetFetchRequestTopic,
    )

    Position = tuple[int, CommittedOffset | None, int]
    """A partition's index, its committed position, and an error code."""

    Found = list[tuple[str, list[Position]]]
    """Topics with their partitions, in request order, with duplicates."""

_BATCHED: Final = 8
_BY_ID: Final = 10
_GROUP_ERROR: Final = 2
_NONE: Final = -1


@handles(OffsetFetchRequest, versions=(1, 10), durable=Durable.GROUPS)
def handle(request: OffsetFetchRequest, context: RequestContext) -> IncrementalTask[OffsetFetchResponse]:
    """Answer for one group, or from version 8 on for several."""
    if context.version >= _BATCHED:
        groups = []
        complete: dict[tuple[str, str | None, int], OffsetFetchResponseGroup] = {}  # each is described once
        for group in request.groups:
            yield None
            key = group.group_id, group.member_id, group.member_epoch
            if group.topics is None and key in complete:
                groups.append(complete[key])
                continue
            answer = yield from _group(group, context, stable=request.require_stable)
            groups.append(answer)
            if group.topics is None:
                complete[key] = answer
        return OffsetFetchResponse(groups=groups)
    topics = []
    try:
        wanted = _find(request.group_id, request.topics, context, stable=request.require_stable)
        for topic, partitions in (yield from wanted):
            answers = yield from in_steps(lambda item: _partition(*item), partitions)
            topics.append(OffsetFetchResponseTopic(name=topic, partitions=answers))
    except BrokerError as error:
        return _refusal(request, error.code, context.version)
    return OffsetFetchResponse(topics=topics)


def _find(
    group_id: str,
    topics: Sequence[OffsetFetchRequestTopic] | Sequence[OffsetFetchRequestTopics] | None,
    context: RequestContext,
    *,
    stable: bool,
    member: OffsetFetchRequestGroup | None = None,
) -> IncrementalTask[Found]:
    member_id, epoch = (None, -1) if member is None else (member.member_id, member.member_epoch)
    offsets = context.services.groups.offsets.fetch(group_id, member_id=member_id, member_epoch=epoch)
    unstable = context.services.groups.offsets.unstable(group_id) if stable else frozenset()
    yield None
    if topics is None:
        found: dict[str, list[Position]] = {}
        for partition, committed in list(offsets.items()):
            if not context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, partition.topic):
                continue
            found.setdefault(partition.topic, []).append(_position(partition, committed, unstable))
            yield None
        return list(found.items())
    answers: Found = []
    for topic in topics:
        committed_offsets: list[Position] = []
        for index in topic.partition_indexes:
            partition = TopicPartition(topic.name, index)
            committed_offsets.append(_position(partition, offsets.get(partition), unstable))
            yield None
        answers.append((topic.name, committed_offsets))
        yield None
    return answers


def _position(
    partition: TopicPartition, committed: CommittedOffset | None, unstable: frozenset[TopicPartition]
) -> Position:
    if partition in unstable:
        return partition.partition, None, UnstableOffsetCommit.code
    return partition.partition, committed, 0


def _partition(index: int, committed: CommittedOffset | None, error: int = 0) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=_NONE if committed is None else committed.offset,
        committed_leader_epoch=_NONE if committed is None else committed.leader_epoch,
        metadata="" if committed is None else committed.metadata,
        error_code=error,
    )


def _refusal(request: OffsetFetchRequest, error: int, version: int) -> OffsetFetchResponse:
    """Return the group's error; version 1 has no error field of the group, only of partitions."""
    if version >= _GROUP_ERROR:
        return OffsetFetchResponse(topics=[], error_code=error)
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name, partitions=[_partition(index, None, error) for index in topic.partition_indexes]
        )
        for topic in request.topics or ()
    ]
    return OffsetFetchResponse(topics=topics)


def _group(
    group: OffsetFetchRequestGroup, context: RequestContext, *, stable: bool
) -> IncrementalTask[OffsetFetchResponseGroup]:
    try:
        by = _by_id if context.version >= _BY_ID else _by_name
        topics = yield from by(group, context, stable=stable)
    except BrokerError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=error.code)
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)


def _by_name(
    group: OffsetFetchRequestGroup, context: RequestContext, *, stable: bool
) -> IncrementalTask[list[OffsetFetchResponseTopics]]:
    topics = []
    for topic, partitions in (yield from _find(group.group_id, group.topics, context, stable=stable, member=group)):
        answers = yield from in_steps(lambda item: _in_group(*item), partitions)
        topics.append(OffsetFetchResponseTopics(name=topic, partitions=answers))
    return topics


def _by_id(
    group: OffsetFetchRequestGroup, context: RequestContext, *, stable: bool
) -> IncrementalTask[list[OffsetFetchResponseTopics]]:
    """Answer topics by id (version 10); UNKNOWN_TOPIC_ID for an unknown one."""
    image = context.services.image
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
    answered = []
    for name, partitions in (yield from _find(group.group_id, named, context, stable=stable, member=group)):
        known = image.topics.get(name)
        if known is not None:
            answers = yield from in_steps(lambda item: _in_group(*item), partitions)
            answered.append(OffsetFetchResponseTopics(topic_id=known.topic_id, partitions=answers))
    for topic in missing:
        answers = yield from in_steps(
            lambda index: _in_group(index, None, UnknownTopicId.code), topic.partition_indexes
        )
        answered.append(OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=answers))
        yield None
    return answered


def _in_group(index: int, committed: CommittedOffset | None, error: int = 0) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=_NONE if committed is None else committed.offset,
        committed_leader_epoch=_NONE if committed is None else committed.leader_epoch,
        metadata="" if committed is None else committed.metadata,
        error_code=error,
    )
