"""EndTxn 0-5: commit or abort a transaction. From version 5 on every transaction has its own epoch (KIP-890)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.handlers.add_partitions_to_txn import fenced_code
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from pyclient.broker_embedded.request_context import RequestContext
    from pyclient.broker_embedded.transactions.events import Outcome

_RAISES_EPOCH: Final = 5
_FENCED_SINCE: Final = 2


@handles(EndTxnRequest, versions=(0, 5), durable=Durable.OWN_METADATA)
def handle(request: EndTxnRequest, context: RequestContext) -> Any:
    """Answer when the outcome is decided. Its ids are those of the producer's next transaction."""
    version = context.version
    ended = context.services.transactions.end(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        commit=request.committed,
        client_version=2 if version >= _RAISES_EPOCH else 0,
    )

    def respond(outcome: Outcome) -> EndTxnResponse:
        if outcome.error:
            return EndTxnResponse(throttle_time_ms=0, error_code=fenced_code(outcome.error, version, _FENCED_SINCE))
        return EndTxnResponse(
            throttle_time_ms=0,
            error_code=0,
            producer_id=outcome.producer_id,
            producer_epoch=outcome.producer_epoch,
        )

    return ended.answer(context.services.loop, respond)
