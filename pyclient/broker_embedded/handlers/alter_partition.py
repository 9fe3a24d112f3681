"""AlterPartition v2-3: a leader asks for another ISR (KIP-497). Served by the active controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import code_of
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponseTopicData,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext


@handles(AlterPartitionRequest, versions=(2, 3), durable=Durable.METADATA)
def handle(request: AlterPartitionRequest, context: RequestContext) -> IncrementalTask[AlterPartitionResponse]:
    """Answer every partition."""
    controller = context.services.controller
    topics = []
    try:
        for topic in request.topics:
            answers = []
            for wanted in topic.partitions:
                controller.check_active()  # again: other requests are served between the steps
                controller.cluster.check_epoch(request.broker_id, request.broker_epoch)
                answer = controller.replication.alter_isr(
                    request.broker_id, topic.topic_id, wanted, version=context.version
                )
                controller.append([] if answer.record is None else [answer.record])
                answers.append(answer.data)
                yield None
            topics.append(AlterPartitionResponseTopicData(topic_id=topic.topic_id, partitions=answers))
    except Exception as error:  # every failure is answered with its error code
        code = code_of(error, f"AlterPartition of broker {request.broker_id}")
        return AlterPartitionResponse(throttle_time_ms=0, error_code=code, topics=[])
    return AlterPartitionResponse(throttle_time_ms=0, error_code=0, topics=topics)
