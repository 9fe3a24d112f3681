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
    topics: dict[str, list[OffsetDeleteResponsePartition]] = {}
    for partition, code in codes.items():
        answer = OffsetDeleteResponsePartition(partition_index=partition.partition, error_code=code)
        topics.setdefault(partition.topic, []).append(answer)
    return OffsetDeleteResponse(
        error_code=0,
        topics=[OffsetDeleteResponseTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
    )
