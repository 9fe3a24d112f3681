"""UnregisterBroker v0: remove a broker that has been decommissioned (KIP-631)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient import errors
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import code_of, message_of
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from pyclient.broker_embedded.request_context import RequestContext


@handles(UnregisterBrokerRequest, versions=(0, 0), durable=Durable.METADATA, forwarded=True)
def handle(request: UnregisterBrokerRequest, context: RequestContext) -> UnregisterBrokerResponse:
    """Remove the broker."""
    controller = context.services.controller
    try:
        controller.check_active()
        if not controller.has_other_voters and request.broker_id == controller.node_id:
            raise errors.InvalidRequest(f"broker {request.broker_id} is the whole cluster and cannot be removed")
        controller.append(controller.cluster.unregister(request.broker_id))
    except Exception as error:  # every failure is answered with its error code
        code = code_of(error, f"removal of broker {request.broker_id}")
        return UnregisterBrokerResponse(throttle_time_ms=0, error_code=code, error_message=message_of(error))
    return UnregisterBrokerResponse(throttle_time_ms=0, error_code=0, error_message=None)
