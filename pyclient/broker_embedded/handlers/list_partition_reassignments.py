"""ListPartitionReassignments v0: the partitions whose replicas are being moved."""

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

    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext


@handles(ListPartitionReassignmentsRequest, versions=(0, 0), forwarded=True)
def handle(
    request: ListPartitionReassignmentsRequest, context: RequestContext
) -> IncrementalTask[ListPartitionReassignmentsResponse]:
    """Answer with the reassignments in progress among the requested partitions; null requests all."""
    image = context.services.controller.image
    wanted: Iterable[tuple[str, Iterable[int]]]
    if request.topics is None:
        wanted = [(topic.name, list(topic.partitions)) for topic in image.topics.values()]
    else:
        wanted = ((topic.name, topic.partition_indexes) for topic in request.topics)
    topics = []
    for name, numbers in wanted:
        moving = []
        for number in numbers:
            yield None
            each = image.partition(name, number)
            if each is not None and (each.adding or each.removing):
                moving.append(
                    OngoingPartitionReassignment(
                        partition_index=each.partition,
                        replicas=each.replicas,
                        adding_replicas=each.adding,
                        removing_replicas=each.removing,
                    )
                )
        yield None
        if moving:
            topics.append(OngoingTopicReassignment(name=name, partitions=moving))
    return ListPartitionReassignmentsResponse(throttle_time_ms=0, error_code=0, error_message=None, topics=topics)
