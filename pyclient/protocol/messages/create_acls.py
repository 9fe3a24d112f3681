"""CreateAcls (key 30): add access rules."""

from pyclient.protocol.fields import Int8, Int16, Int32, Request, Response, api, part


@part
class AclCreationResult:
    error_code: Int16
    error_message: str | None


@api(key=30, versions=(1, 3), flexible=2)
class CreateAclsResponse(Response):
    throttle_time_ms: Int32
    results: list[AclCreationResult]


@part
class AclCreation:
    resource_type: Int8
    resource_name: str
    resource_pattern_type: Int8 = 3
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


@api(key=30, versions=(1, 3), flexible=2)
class CreateAclsRequest(Request[CreateAclsResponse]):
    creations: list[AclCreation]
