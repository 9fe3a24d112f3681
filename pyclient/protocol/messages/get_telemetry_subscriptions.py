"""GetTelemetrySubscriptions (key 71): the client metrics that the broker requests (KIP-714)."""

from pyclient.protocol.fields import Int8, Int16, Int32, Request, Response, Uuid, api


@api(key=71, versions=(0, 0), flexible=0)
class GetTelemetrySubscriptionsResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16
    client_instance_id: Uuid
    subscription_id: Int32
    accepted_compression_types: list[Int8]
    push_interval_ms: Int32
    telemetry_max_bytes: Int32
    delta_temporality: bool
    requested_metrics: list[str]


@api(key=71, versions=(0, 0), flexible=0)
class GetTelemetrySubscriptionsRequest(Request[GetTelemetrySubscriptionsResponse]):
    client_instance_id: Uuid
