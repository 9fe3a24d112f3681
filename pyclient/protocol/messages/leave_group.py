"""LeaveGroup (key 13): end the membership of one or more members of a classic group."""

from pyclient.protocol.fields import Int16, Int32, Request, Response, api, field, part


@part
class MemberResponse:
    member_id: str
    group_instance_id: str | None
    error_code: Int16


@api(key=13, versions=(0, 5), flexible=4)
class LeaveGroupResponse(Response):
    throttle_time_ms: Int32 = field(since=1, default=0, ignorable=True)
    error_code: Int16
    members: list[MemberResponse] = field(since=3, default=[])


@part
class MemberIdentity:
    member_id: str
    group_instance_id: str | None = None
    reason: str | None = field(since=5, default=None, ignorable=True)


@api(key=13, versions=(0, 5), flexible=4)
class LeaveGroupRequest(Request[LeaveGroupResponse]):
    """Added in v3: several members, also by static id; v5: reason."""

    group_id: str
    member_id: str = field(until=2, default="")
    members: list[MemberIdentity] = field(since=3, default=[])
