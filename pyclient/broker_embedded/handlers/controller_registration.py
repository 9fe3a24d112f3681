"""ControllerRegistration v0: a controller's listener and features (KIP-919). Served by the active controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import code_of, message_of
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.request_context import RequestContext


@handles(ControllerRegistrationRequest, versions=(0, 0), durable=Durable.METADATA)
def handle(request: ControllerRegistrationRequest, context: RequestContext) -> ControllerRegistrationResponse:
    """Answer when the registration is in the metadata, or why it is refused."""
    controller = context.services.controller
    try:
        controller.check_active()
        controller.append(controller.cluster.register_controller(request))
    except Exception as error:  # every failure is answered with its error code
        code = code_of(error, f"registration of controller {request.controller_id}")
        return ControllerRegistrationResponse(throttle_time_ms=0, error_code=code, error_message=message_of(error))
    return ControllerRegistrationResponse(throttle_time_ms=0, error_code=0, error_message=None)
