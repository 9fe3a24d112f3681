"""UnregisterBroker (key 64): remove a decommissioned broker (KIP-631)."""

from pyclient.protocol.fields import Int16, Int32, Request, Response, api


@api(key=64, versions=(0, 0), flexible=0)
class UnregisterBrokerResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None


@api(key=64, versions=(0, 0), flexible=0)
class UnregisterBrokerRequest(Request[UnregisterBrokerResponse]):
    broker_id: Int32
