"""WriteTxnMarkers 1-2: write the markers of ended transactions to partitions that this node leads.

Transaction coordinators send it, and tools that abort a hanging transaction. Version 2 has the version of the
transaction, by which a late marker differs from a repeated one (KIP-1228).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.transactions.local_markers import write_marker
from pyclient.broker_embedded.transactions.promise import Promise
from pyclient.broker_embedded.transactions.runtime import Marker
from pyclient.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext
    from pyclient.broker_embedded.services import BrokerServices


def _logs(request: WriteTxnMarkersRequest, _services: BrokerServices) -> Iterator[TopicPartition]:
    for marker in request.markers:
        for topic in marker.topics:
            for index in topic.partition_indexes:
                yield TopicPartition(topic.name, index)


@handles(WriteTxnMarkersRequest, versions=(1, 2), logs=_logs)
def handle(request: WriteTxnMarkersRequest, context: RequestContext) -> IncrementalTask[Any]:
    """Answer every partition when its marker is committed."""
    services = context.services
    done: Promise[WriteTxnMarkersResponse] = Promise()
    results: list[WritableTxnMarkerResult] = []
    remaining = 1  # this function itself

    def finished() -> None:
        nonlocal remaining
        remaining -= 1
        if not remaining:
            done.set(WriteTxnMarkersResponse(markers=results))

    def written(result: WritableTxnMarkerPartitionResult, code: int) -> None:
        result.error_code = code
        finished()

    for each in request.markers:
        topics = []
        marker = Marker(
            each.producer_id,
            each.producer_epoch,
            each.transaction_result,
            each.coordinator_epoch,
            each.transaction_version,
        )
        for topic in each.topics:
            partitions = []
            for index in topic.partition_indexes:
                result = WritableTxnMarkerPartitionResult(partition_index=index, error_code=0)
                partitions.append(result)
                remaining += 1
                write_marker(services, TopicPartition(topic.name, index), marker, partial(written, result))
                yield None
            topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
        results.append(WritableTxnMarkerResult(producer_id=each.producer_id, topics=topics))
    finished()
    return done.answer(services.loop, lambda response: response)
