"""DeleteAcls (key 31): remove access rules by filter."""

from pyclient.protocol.fields import Int8, Int16, Int32, Request, Response, api, part


@part
class DeleteAclsMatchingAcl:
    error_code: Int16
    error_message: str | None
    resource_type: Int8
    resource_name: str
    pattern_type: Int8 = 3
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


@part
class DeleteAclsFilterResult:
    error_code: Int16
    error_message: str | None
    matching_acls: list[DeleteAclsMatchingAcl]


@api(key=31, versions=(1, 3), flexible=2)
class DeleteAclsResponse(Response):
    throttle_time_ms: Int32
    filter_results: list[DeleteAclsFilterResult]


@part
class DeleteAclsFilter:
    resource_type_filter: Int8
    resource_name_filter: str | None
    pattern_type_filter: Int8 = 3
    principal_filter: str | None
    host_filter: str | None
    operation: Int8
    permission_type: Int8


@api(key=31, versions=(1, 3), flexible=2)
class DeleteAclsRequest(Request[DeleteAclsResponse]):
    filters: list[DeleteAclsFilter]
