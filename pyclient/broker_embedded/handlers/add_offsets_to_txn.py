"""AddOffsetsToTxn 0-4: register the partition of `__consumer_offsets` that stores a group with a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyclient.broker_embedded.controller.topics import OFFSETS_TOPIC
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.handlers.add_partitions_to_txn import fenced_code
from pyclient.broker_embedded.replication.auto_topic_creation import ensure_internal_topic
from pyclient.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from pyclient.broker_embedded.request_context import RequestContext
    from pyclient.broker_embedded.transactions.events import Outcome

_FENCED_SINCE: Final = 2


@handles(AddOffsetsToTxnRequest, versions=(0, 4))
def handle(request: AddOffsetsToTxnRequest, context: RequestContext) -> Any:
    """Add the partition; the first request creates `__consumer_offsets`."""
    services = context.services
    ensure_internal_topic(OFFSETS_TOPIC, services)
    partition = TopicPartition(OFFSETS_TOPIC, services.groups.groups.partition_of(request.group_id))
    added = services.transactions.add_partitions(
        request.transactional_id, request.producer_id, request.producer_epoch, frozenset({partition})
    )

    def respond(outcome: Outcome) -> AddOffsetsToTxnResponse:
        code = fenced_code(outcome.error, context.version, _FENCED_SINCE)
        return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=code)

    return added.answer(services.loop, respond)
