"""AlterUserScramCredentials (key 51): add, change and remove SCRAM credentials (KIP-554)."""

from pyclient.protocol.fields import Int8, Int16, Int32, Request, Response, api, part


@part
class AlterUserScramCredentialsResult:
    user: str
    error_code: Int16
    error_message: str | None


@api(key=51, versions=(0, 0), flexible=0)
class AlterUserScramCredentialsResponse(Response):
    throttle_time_ms: Int32
    results: list[AlterUserScramCredentialsResult]


@part
class ScramCredentialDeletion:
    name: str
    mechanism: Int8


@part
class ScramCredentialUpsertion:
    name: str
    mechanism: Int8
    iterations: Int32
    salt: bytes
    salted_password: bytes


@api(key=51, versions=(0, 0), flexible=0)
class AlterUserScramCredentialsRequest(Request[AlterUserScramCredentialsResponse]):
    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]
