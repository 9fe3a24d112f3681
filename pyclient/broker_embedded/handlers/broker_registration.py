"""BrokerRegistration v0-4: a broker joins the cluster and gets its epoch (KIP-631). Served by the active controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import code_of
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

if TYPE_CHECKING:
    from pyclient.broker_embedded.request_context import RequestContext


@handles(BrokerRegistrationRequest, versions=(0, 4), durable=Durable.METADATA)
def handle(request: BrokerRegistrationRequest, context: RequestContext) -> BrokerRegistrationResponse:
    """Answer with the broker's epoch, or why it is refused."""
    services = context.services
    controller = services.controller
    try:
        controller.check_active()
        done = controller.cluster.register(request, services.clock.monotonic(), controller.end_offset)
        controller.append(done.records)
    except Exception as error:  # every failure is answered with its error code
        code = code_of(error, f"registration of broker {request.broker_id}")
        return BrokerRegistrationResponse(throttle_time_ms=0, error_code=code, broker_epoch=-1)
    return BrokerRegistrationResponse(throttle_time_ms=0, error_code=0, broker_epoch=done.epoch)
