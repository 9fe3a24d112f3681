"""DescribeGroups (key 15): state and members of classic groups."""

from pyclient.protocol.fields import Int16, Int32, Request, Response, api, field, part


@part
class DescribedGroupMember:
    member_id: str
    group_instance_id: str | None = field(since=4, default=None, ignorable=True)
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


@part
class DescribedGroup:
    error_code: Int16
    error_message: str | None = field(since=6, default=None)
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: list[DescribedGroupMember]
    authorized_operations: Int32 = field(since=3, default=-2147483648)


@api(key=15, versions=(0, 6), flexible=5)
class DescribeGroupsResponse(Response):
    throttle_time_ms: Int32 = field(since=1, default=0, ignorable=True)
    groups: list[DescribedGroup]


@api(key=15, versions=(0, 6), flexible=5)
class DescribeGroupsRequest(Request[DescribeGroupsResponse]):
    groups: list[str]
    include_authorized_operations: bool = field(since=3, default=False)
