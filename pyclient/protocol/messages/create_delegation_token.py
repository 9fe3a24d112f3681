"""CreateDelegationToken (key 38): a token with which others may log in as its owner (KIP-48, KIP-373)."""

from pyclient.protocol.fields import Int16, Int32, Int64, Request, Response, api, field, part


@api(key=38, versions=(1, 3), flexible=2)
class CreateDelegationTokenResponse(Response):
    error_code: Int16
    principal_type: str
    principal_name: str
    token_requester_principal_type: str = field(since=3, default="")
    token_requester_principal_name: str = field(since=3, default="")
    issue_timestamp_ms: Int64
    expiry_timestamp_ms: Int64
    max_timestamp_ms: Int64
    token_id: str
    hmac: bytes
    throttle_time_ms: Int32


@part
class CreatableRenewers:
    principal_type: str
    principal_name: str


@api(key=38, versions=(1, 3), flexible=2)
class CreateDelegationTokenRequest(Request[CreateDelegationTokenResponse]):
    owner_principal_type: str | None = field(since=3, default="")
    owner_principal_name: str | None = field(since=3, default="")
    renewers: list[CreatableRenewers]
    max_lifetime_ms: Int64
