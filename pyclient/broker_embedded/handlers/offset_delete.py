"""OffsetDelete 0: remove committed offsets of topics that the group does not read any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.dispatch import handles
from pyclient.errors import BrokerError, UnknownTopicOrPartition
from pyclient.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from pyclient.broker_embedded.dispatch import RequestContext


@handles(OffsetDeleteRequest, versions=(0, 0))
def handle(request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    """Delete what may be deleted; an error for each of the other partitions."""
    asked = [TopicPartition(topic.name, part.partition_index) for topic in request.topics for part in topic.partitions]
    codes = dict.fromkeys(asked, UnknownTopicOrPartition.code)
    image = context.node.image
    existing = [partition for partition in codes if image.partition(*partition) is not None]
    try:
        codes.update(context.node.groups.offsets.delete(request.group_id, existing))
    except BrokerError as error:
        return OffsetDeleteResponse(error_code=error.code, topics=[])
    return OffsetDeleteResponse(
        error_code=0,
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=part.partition_index,
                        error_code=codes[TopicPartition(topic.name, part.partition_index)],
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
            if topic.partitions
        ],
    )
