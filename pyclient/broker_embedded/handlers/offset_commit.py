"""OffsetCommit 2-10: store a group's positions in `__consumer_offsets`.

Versions 2 to 4 have a retention time, 6 leader epochs, 7 static members, 9 GROUP_ID_NOT_FOUND and the member epochs of
KIP-848, 10 topic ids instead of names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.groups.offset_metadata_manager import Commit, Position
from pyclient.broker_embedded.log.incremental_task import in_steps
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.errors import UnknownTopicId, UnknownTopicOrPartition
from pyclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext
    from pyclient.protocol.messages.offset_commit import OffsetCommitRequestTopic

_BY_ID: Final = 10


@handles(OffsetCommitRequest, versions=(2, 10), durable=Durable.GROUPS)
def handle(request: OffsetCommitRequest, context: RequestContext) -> IncrementalTask[OffsetCommitResponse]:
    """Commit the positions of existing partitions; answer an error for the others."""
    image = context.services.image
    names = yield from in_steps(lambda topic: _name(topic, context), request.topics)
    positions: dict[TopicPartition, Position] = {}
    for name, topic in zip(names, request.topics, strict=True):
        for partition in topic.partitions:
            if name is not None and image.partition(name, partition.partition_index) is not None:
                positions[TopicPartition(name, partition.partition_index)] = Position(
                    partition.committed_offset, partition.committed_leader_epoch, partition.committed_metadata or ""
                )
            yield None
    codes: dict[TopicPartition, int] = {}
    if positions:
        commit = Commit(
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id_or_member_epoch,
            positions=positions,
            retention_ms=request.retention_time_ms,
            version=context.version,
        )
        codes = yield from context.services.groups.offsets.commit(request.group_id, commit)
    answers = []
    for name, topic in zip(names, request.topics, strict=True):
        if topic.partitions:
            answer = yield from _answer(topic, name, codes)
            answers.append(answer)
    return OffsetCommitResponse(topics=answers)


def _name(topic: OffsetCommitRequestTopic, context: RequestContext) -> str | None:
    """Return the topic's name; None for an unknown id."""
    if context.version < _BY_ID:
        return topic.name
    found = context.services.image.topics_by_id.get(topic.topic_id)
    return None if found is None else found.name


def _answer(
    topic: OffsetCommitRequestTopic, name: str | None, codes: dict[TopicPartition, int]
) -> IncrementalTask[OffsetCommitResponseTopic]:
    missing = UnknownTopicId.code if name is None else UnknownTopicOrPartition.code
    partitions = []
    for partition in topic.partitions:
        index = partition.partition_index
        code = codes.get(TopicPartition(name or "", index), missing)
        partitions.append(OffsetCommitResponsePartition(partition_index=index, error_code=code))
        yield None
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
