"""OffsetCommit 2-9: store a group's positions in `__consumer_offsets`.

2 to 4 may name a retention time, 6 has leader epochs, 7 static members, 9 names a missing group as such. Not done:
topic ids (10).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.groups.offset_keeper import Commit, Position
from pyclient.errors import UnknownTopicOrPartition
from pyclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from pyclient.broker_embedded.dispatch import RequestContext


@handles(OffsetCommitRequest, versions=(2, 9))
def handle(request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse:
    """Commit for the partitions that exist; the group answers for those, an error for the others."""
    image = context.node.image
    positions = {
        TopicPartition(topic.name, partition.partition_index): Position(
            partition.committed_offset, partition.committed_leader_epoch, partition.committed_metadata or ""
        )
        for topic in request.topics
        for partition in topic.partitions
        if image.partition(topic.name, partition.partition_index) is not None
    }
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
        codes = context.node.groups.offsets.commit(request.group_id, commit)
    return _response(request, codes)


def _response(request: OffsetCommitRequest, codes: dict[TopicPartition, int]) -> OffsetCommitResponse:
    missing = UnknownTopicOrPartition.code
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=codes.get(TopicPartition(topic.name, partition.partition_index), missing),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
