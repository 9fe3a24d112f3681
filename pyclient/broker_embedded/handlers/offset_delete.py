"""OffsetDelete 0: delete committed offsets of topics that the group does not subscribe to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.errors import BrokerError, UnknownTopicOrPartition
from pyclient.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext


@handles(OffsetDeleteRequest, versions=(0, 0), durable=Durable.GROUPS)
def handle(request: OffsetDeleteRequest, context: RequestContext) -> IncrementalTask[OffsetDeleteResponse]:
    """Delete the offsets of unsubscribed topics; answer an error for each other partition."""
    codes: dict[TopicPartition, int] = {}
    existing: list[TopicPartition] = []
    image = context.services.image
    for topic in request.topics:
        for part in topic.partitions:
            partition = TopicPartition(topic.name, part.partition_index)
            if partition not in codes and image.partition(*partition) is not None:
                existing.append(partition)
            codes[partition] = UnknownTopicOrPartition.code
            yield None
    try:
        codes.update(context.services.groups.offsets.delete(request.group_id, existing))
    except BrokerError as error:
        return OffsetDeleteResponse(error_code=error.code, topics=[])
    topics = []
    for topic in request.topics:
        answers = []
        for part in topic.partitions:
            code = codes[TopicPartition(topic.name, part.partition_index)]
            answers.append(OffsetDeleteResponsePartition(partition_index=part.partition_index, error_code=code))
            yield None
        if answers:
            topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
    return OffsetDeleteResponse(error_code=0, topics=topics)
