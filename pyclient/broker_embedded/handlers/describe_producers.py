"""DescribeProducers v0: the producer state of partitions (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.controller.topics import check_name
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import code_of, message_of
from pyclient.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.replication.partitions import Partitions
    from pyclient.broker_embedded.request_context import RequestContext
    from pyclient.broker_embedded.services import BrokerServices


def _logs(request: DescribeProducersRequest, _services: BrokerServices) -> Iterator[TopicPartition]:
    for topic in request.topics:
        for index in topic.partition_indexes:
            yield TopicPartition(topic.name, index)


@handles(DescribeProducersRequest, versions=(0, 0), logs=_logs)
def handle(request: DescribeProducersRequest, context: RequestContext) -> IncrementalTask[DescribeProducersResponse]:
    """Answer every partition."""
    topics = []
    described: dict[tuple[str, int], PartitionResponse] = {}  # each is described once
    for topic in request.topics:
        partitions = []
        for index in topic.partition_indexes:
            key = topic.name, index
            if key not in described:
                described[key] = _describe(context.services.partitions, topic.name, index)
            partitions.append(described[key])
            yield None
        topics.append(TopicResponse(name=topic.name, partitions=partitions))
        yield None
    return DescribeProducersResponse(throttle_time_ms=0, topics=topics)


def _describe(partitions: Partitions, topic: str, index: int) -> PartitionResponse:
    try:
        check_name(topic)
        log, _epoch = partitions.leader(topic, index)
    except Exception as error:  # every failure is answered with its error code
        code = code_of(error, f"DescribeProducers of {topic}-{index}")
        return PartitionResponse(
            partition_index=index, error_code=code, error_message=message_of(error), active_producers=[]
        )
    return PartitionResponse(
        partition_index=index,
        error_code=0,
        active_producers=[
            ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.transaction_start,
            )
            for producer in log.producers
        ],
    )
