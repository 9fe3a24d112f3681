"""DescribeAcls (key 29): list access rules."""

from pyclient.protocol.fields import Int8, Int16, Int32, Request, Response, api, part


@part
class AclDescription:
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


@part
class DescribeAclsResource:
    resource_type: Int8
    resource_name: str
    pattern_type: Int8 = 3
    acls: list[AclDescription]


@api(key=29, versions=(1, 3), flexible=2)
class DescribeAclsResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None
    resources: list[DescribeAclsResource]


@api(key=29, versions=(1, 3), flexible=2)
class DescribeAclsRequest(Request[DescribeAclsResponse]):
    resource_type_filter: Int8
    resource_name_filter: str | None
    pattern_type_filter: Int8 = 3
    principal_filter: str | None
    host_filter: str | None
    operation: Int8
    permission_type: Int8
