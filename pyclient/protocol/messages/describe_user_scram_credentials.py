"""DescribeUserScramCredentials (key 50): which SCRAM credentials users have (KIP-554)."""

from pyclient.protocol.fields import Int8, Int16, Int32, Request, Response, api, part


@part
class CredentialInfo:
    mechanism: Int8
    iterations: Int32


@part
class DescribeUserScramCredentialsResult:
    user: str
    error_code: Int16
    error_message: str | None
    credential_infos: list[CredentialInfo]


@api(key=50, versions=(0, 0), flexible=0)
class DescribeUserScramCredentialsResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None
    results: list[DescribeUserScramCredentialsResult]


@part
class UserName:
    name: str


@api(key=50, versions=(0, 0), flexible=0)
class DescribeUserScramCredentialsRequest(Request[DescribeUserScramCredentialsResponse]):
    users: list[UserName] | None
