"""SaslAuthenticate (key 36): exchange the tokens of a SASL mechanism."""

from pyclient.protocol.fields import Int16, Int64, Request, Response, api, field


@api(key=36, versions=(0, 2), flexible=2)
class SaslAuthenticateResponse(Response):
    error_code: Int16
    error_message: str | None
    auth_bytes: bytes
    session_lifetime_ms: Int64 = field(since=1, default=0, ignorable=True)


@api(key=36, versions=(0, 2), flexible=2)
class SaslAuthenticateRequest(Request[SaslAuthenticateResponse]):
    auth_bytes: bytes
