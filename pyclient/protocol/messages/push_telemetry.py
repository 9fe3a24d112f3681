"""PushTelemetry (key 72): send client metrics to the broker (KIP-714)."""

from pyclient.protocol.fields import Int8, Int16, Int32, Request, Response, Uuid, api


@api(key=72, versions=(0, 0), flexible=0)
class PushTelemetryResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16


@api(key=72, versions=(0, 0), flexible=0)
class PushTelemetryRequest(Request[PushTelemetryResponse]):
    client_instance_id: Uuid
    subscription_id: Int32
    terminating: bool
    compression_type: Int8
    metrics: bytes
