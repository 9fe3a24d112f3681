"""AllocateProducerIds v0: a block of producer ids for a broker (KIP-730). Served by the active controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.controller.controller import PRODUCER_ID_BLOCK
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import code_of
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

if TYPE_CHECKING:
    from pyclient.broker_embedded.request_context import RequestContext


@handles(AllocateProducerIdsRequest, versions=(0, 0), durable=Durable.METADATA)
def handle(request: AllocateProducerIdsRequest, context: RequestContext) -> AllocateProducerIdsResponse:
    """Answer with the first id of a block that no broker has had."""
    controller = context.services.controller
    try:
        controller.check_active()
        controller.cluster.check_epoch(request.broker_id, request.broker_epoch)
        first = controller.allocate_producer_ids(request.broker_id, request.broker_epoch)
    except Exception as error:  # every failure is answered with its error code
        code = code_of(error, f"producer ids for broker {request.broker_id}")
        return AllocateProducerIdsResponse(throttle_time_ms=0, error_code=code, producer_id_start=-1, producer_id_len=0)
    return AllocateProducerIdsResponse(
        throttle_time_ms=0, error_code=0, producer_id_start=first, producer_id_len=PRODUCER_ID_BLOCK
    )
