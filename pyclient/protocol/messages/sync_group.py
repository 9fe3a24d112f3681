"""SyncGroup (key 14): distribute the assignment of a classic group."""

from pyclient.protocol.fields import Int16, Int32, Request, Response, api, field, part


@api(key=14, versions=(0, 5), flexible=4)
class SyncGroupResponse(Response):
    throttle_time_ms: Int32 = field(since=1, default=0, ignorable=True)
    error_code: Int16
    protocol_type: str | None = field(since=5, default=None, ignorable=True)
    protocol_name: str | None = field(since=5, default=None, ignorable=True)
    assignment: bytes


@part
class SyncGroupRequestAssignment:
    member_id: str
    assignment: bytes


@api(key=14, versions=(0, 5), flexible=4)
class SyncGroupRequest(Request[SyncGroupResponse]):
    """Added in v3: static members; v5: protocol type and name, which the coordinator checks."""

    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: str | None = field(since=3, default=None)
    protocol_type: str | None = field(since=5, default=None, ignorable=True)
    protocol_name: str | None = field(since=5, default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment]
