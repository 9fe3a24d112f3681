"""RenewDelegationToken (key 39): move the time at which a token expires (KIP-48)."""

from pyclient.protocol.fields import Int16, Int32, Int64, Request, Response, api


@api(key=39, versions=(1, 2), flexible=2)
class RenewDelegationTokenResponse(Response):
    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32


@api(key=39, versions=(1, 2), flexible=2)
class RenewDelegationTokenRequest(Request[RenewDelegationTokenResponse]):
    hmac: bytes
    renew_period_ms: Int64
