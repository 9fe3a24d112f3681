"""BrokerHeartbeat v0-2: a broker is alive, wants to be (un)fenced or to shut down (KIP-631).

Served by the active controller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import code_of
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

if TYPE_CHECKING:
    from pyclient.broker_embedded.request_context import RequestContext


@handles(BrokerHeartbeatRequest, versions=(0, 2), durable=Durable.OWN_METADATA)
def handle(request: BrokerHeartbeatRequest, context: RequestContext) -> BrokerHeartbeatResponse:
    """Answer with the broker's state."""
    services = context.services
    controller = services.controller
    try:
        controller.check_active()
        now = services.clock.monotonic()
        beat = controller.cluster.heartbeat(request, now, controller.end_offset, context.connection)
        controller.append(beat.records)
        controller.sessions_changed()
    except Exception as error:  # every failure is answered with its error code
        code = code_of(error, f"heartbeat of broker {request.broker_id}")
        return BrokerHeartbeatResponse(throttle_time_ms=0, error_code=code, should_shut_down=False)
    return BrokerHeartbeatResponse(
        throttle_time_ms=0,
        error_code=0,
        is_caught_up=beat.is_caught_up,
        is_fenced=beat.is_fenced,
        should_shut_down=beat.should_shut_down,
    )
