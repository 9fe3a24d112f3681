"""ExpireDelegationToken (key 40): end a token, at once or earlier than it would end (KIP-48)."""

from pyclient.protocol.fields import Int16, Int32, Int64, Request, Response, api


@api(key=40, versions=(1, 2), flexible=2)
class ExpireDelegationTokenResponse(Response):
    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32


@api(key=40, versions=(1, 2), flexible=2)
class ExpireDelegationTokenRequest(Request[ExpireDelegationTokenResponse]):
    hmac: bytes
    expiry_time_period_ms: Int64
