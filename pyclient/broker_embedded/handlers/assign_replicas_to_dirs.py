"""AssignReplicasToDirs v0: a broker says which log directories have its replicas (KIP-858).

Served by the active controller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import code_of
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectoryData,
    AssignReplicasToDirsResponsePartitionData,
    AssignReplicasToDirsResponseTopicData,
)

if TYPE_CHECKING:
    from uuid import UUID

    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext


@handles(AssignReplicasToDirsRequest, versions=(0, 0), durable=Durable.METADATA)
def handle(
    request: AssignReplicasToDirsRequest, context: RequestContext
) -> IncrementalTask[AssignReplicasToDirsResponse]:
    """Answer every partition."""
    controller = context.services.controller
    directories = []
    try:
        controller.check_active()
        controller.cluster.check_epoch(request.broker_id, request.broker_epoch)
        for directory in request.directories:
            topics = []
            for topic in directory.topics:
                answers = []
                for each in topic.partitions:
                    code = _assign(request.broker_id, topic.topic_id, each.partition_index, directory.id, context)
                    answers.append(
                        AssignReplicasToDirsResponsePartitionData(partition_index=each.partition_index, error_code=code)
                    )
                    yield None
                topics.append(AssignReplicasToDirsResponseTopicData(topic_id=topic.topic_id, partitions=answers))
            directories.append(AssignReplicasToDirsResponseDirectoryData(id=directory.id, topics=topics))
    except Exception as error:  # every failure is answered with its error code
        code = code_of(error, f"AssignReplicasToDirs of broker {request.broker_id}")
        return AssignReplicasToDirsResponse(throttle_time_ms=0, error_code=code, directories=[])
    return AssignReplicasToDirsResponse(throttle_time_ms=0, error_code=0, directories=directories)


def _assign(broker: int, topic_id: UUID, index: int, directory: UUID, context: RequestContext) -> int:
    controller = context.services.controller
    try:
        controller.check_active()
        controller.append(controller.replication.assign_directory(broker, topic_id, index, directory))
    except Exception as error:  # every failure is answered with its error code
        return code_of(error, f"log directory of {topic_id}-{index} on broker {broker}")
    return 0
