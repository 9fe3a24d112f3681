"""InitProducerId v0-5: the id and epoch of a producer.

An idempotent producer gets a new id with epoch 0. With a transactional id the coordinator decides: it ends what an
earlier producer of the id began, and fences it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyclient import errors
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import code_of
from pyclient.broker_embedded.handlers.add_partitions_to_txn import fenced_code
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from pyclient.broker_embedded.controller.producer_ids import ProducerIds
    from pyclient.broker_embedded.request_context import RequestContext
    from pyclient.broker_embedded.transactions.events import Outcome

_FENCED_SINCE: Final = 4


@handles(InitProducerIdRequest, versions=(0, 5), durable=Durable.METADATA)
def handle(request: InitProducerIdRequest, context: RequestContext) -> Any:
    """Answer with an id and epoch, or an error."""
    try:
        if (request.producer_id < 0) != (request.producer_epoch < 0):
            raise errors.InvalidRequest("a producer id requires an epoch, and an epoch a producer id")
        if request.transactional_id is None and context.services.producer_ids is not None:
            return _from_block(context.services.producer_ids)
        if request.transactional_id is None:
            producer_id = context.services.controller.next_producer_id()
            return InitProducerIdResponse(error_code=0, producer_id=producer_id, producer_epoch=0)
    except Exception as error:  # every failure is answered with its error code
        return InitProducerIdResponse(error_code=code_of(error, "InitProducerId"), producer_epoch=-1)
    expected = None if request.producer_id < 0 else (request.producer_id, request.producer_epoch)
    begun = context.services.transactions.init_producer_id(
        request.transactional_id, request.transaction_timeout_ms, expected
    )

    def respond(outcome: Outcome) -> InitProducerIdResponse:
        return InitProducerIdResponse(
            error_code=fenced_code(outcome.error, context.version, _FENCED_SINCE),
            producer_id=outcome.producer_id,
            producer_epoch=outcome.producer_epoch,
        )

    return begun.answer(context.services.loop, respond)


async def _from_block(producer_ids: ProducerIds) -> InitProducerIdResponse:
    """Answer with an id of the block that the active controller has reserved for this node."""
    try:
        return InitProducerIdResponse(error_code=0, producer_id=await producer_ids.next(), producer_epoch=0)
    except Exception as error:  # every failure is answered with its error code
        return InitProducerIdResponse(error_code=code_of(error, "InitProducerId"), producer_epoch=-1)
