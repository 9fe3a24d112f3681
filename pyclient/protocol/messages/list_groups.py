"""ListGroups (key 16): the groups a broker coordinates."""

from pyclient.protocol.fields import Int16, Int32, Request, Response, api, field, part


@part
class ListedGroup:
    group_id: str
    protocol_type: str
    group_state: str = field(since=4, default="", ignorable=True)
    group_type: str = field(since=5, default="", ignorable=True)


@api(key=16, versions=(0, 5), flexible=3)
class ListGroupsResponse(Response):
    throttle_time_ms: Int32 = field(since=1, default=0, ignorable=True)
    error_code: Int16
    groups: list[ListedGroup]


@api(key=16, versions=(0, 5), flexible=3)
class ListGroupsRequest(Request[ListGroupsResponse]):
    states_filter: list[str] = field(since=4, default=[])
    types_filter: list[str] = field(since=5, default=[])
