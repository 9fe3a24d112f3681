"""AlterPartitionReassignments v0-1: change the replicas of partitions, or cancel what is in progress (null replicas).

The new replicas are added first; when all of them are in sync the others are removed. A change without new replicas is
complete at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import code_of, message_of
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext


@handles(AlterPartitionReassignmentsRequest, versions=(0, 1), durable=Durable.METADATA, forwarded=True)
def handle(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> IncrementalTask[AlterPartitionReassignmentsResponse]:
    """Answer every partition."""
    may_resize = request.allow_replication_factor_change
    responses = []
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            answers.append(_reassign(topic.name, wanted, context, may_resize=may_resize))
            yield None
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=answers))
        yield None
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        allow_replication_factor_change=may_resize,
        error_code=0,
        error_message=None,
        responses=responses,
    )


def _reassign(
    topic: str, wanted: ReassignablePartition, context: RequestContext, *, may_resize: bool
) -> ReassignablePartitionResponse:
    index = wanted.partition_index
    try:
        context.services.controller.reassign(topic, index, wanted.replicas, may_resize=may_resize)
    except Exception as error:  # every failure is answered with its error code
        code = code_of(error, f"reassignment of {topic}-{index}")
        return ReassignablePartitionResponse(partition_index=index, error_code=code, error_message=message_of(error))
    return ReassignablePartitionResponse(partition_index=index, error_code=0, error_message=None)
