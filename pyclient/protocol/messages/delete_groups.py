"""DeleteGroups (key 42): delete empty groups with their offsets."""

from pyclient.protocol.fields import Int16, Int32, Request, Response, api, part


@part
class DeletableGroupResult:
    group_id: str
    error_code: Int16


@api(key=42, versions=(0, 2), flexible=2)
class DeleteGroupsResponse(Response):
    throttle_time_ms: Int32
    results: list[DeletableGroupResult]


@api(key=42, versions=(0, 2), flexible=2)
class DeleteGroupsRequest(Request[DeleteGroupsResponse]):
    groups_names: list[str]
