"""DescribeDelegationToken (key 41): the tokens that a client may see, with their HMACs (KIP-48)."""

from pyclient.protocol.fields import Int16, Int32, Int64, Request, Response, api, field, part


@part
class DescribedDelegationTokenRenewer:
    principal_type: str
    principal_name: str


@part
class DescribedDelegationToken:
    principal_type: str
    principal_name: str
    token_requester_principal_type: str = field(since=3, default="")
    token_requester_principal_name: str = field(since=3, default="")
    issue_timestamp: Int64
    expiry_timestamp: Int64
    max_timestamp: Int64
    token_id: str
    hmac: bytes
    renewers: list[DescribedDelegationTokenRenewer]


@api(key=41, versions=(1, 3), flexible=2)
class DescribeDelegationTokenResponse(Response):
    error_code: Int16
    tokens: list[DescribedDelegationToken]
    throttle_time_ms: Int32


@part
class DescribeDelegationTokenOwner:
    principal_type: str
    principal_name: str


@api(key=41, versions=(1, 3), flexible=2)
class DescribeDelegationTokenRequest(Request[DescribeDelegationTokenResponse]):
    owners: list[DescribeDelegationTokenOwner] | None
