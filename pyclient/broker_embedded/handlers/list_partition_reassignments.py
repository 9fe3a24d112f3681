"""ListPartitionReassignments v0: the partitions whose replicas are being moved: none that this node began.

What a Kafka that wrote the data directory had under way is told as the metadata log has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.dispatch import handles
from pyclient.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyclient.broker_embedded.controller.image import PartitionImage
    from pyclient.broker_embedded.dispatch import RequestContext


@handles(ListPartitionReassignmentsRequest, versions=(0, 0))
def handle(request: ListPartitionReassignmentsRequest, context: RequestContext) -> ListPartitionReassignmentsResponse:
    """Answer with the partitions under way, among those asked for; null asks for all."""
    image = context.node.image
    wanted: Iterable[tuple[str, Iterable[PartitionImage | None]]]
    if request.topics is None:
        wanted = ((topic.name, topic.partitions.values()) for topic in image.topics.values())
    else:
        wanted = (
            (topic.name, [image.partition(topic.name, index) for index in topic.partition_indexes])
            for topic in request.topics
        )
    topics = []
    for name, partitions in wanted:
        moving = [
            OngoingPartitionReassignment(
                partition_index=each.partition,
                replicas=each.replicas,
                adding_replicas=each.adding,
                removing_replicas=each.removing,
            )
            for each in partitions
            if each is not None and (each.adding or each.removing)
        ]
        if moving:
            topics.append(OngoingTopicReassignment(name=name, partitions=moving))
    return ListPartitionReassignmentsResponse(throttle_time_ms=0, error_code=0, error_message=None, topics=topics)
