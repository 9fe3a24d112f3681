"""Heartbeat (key 12): stay a member of a classic group."""

from pyclient.protocol.fields import Int16, Int32, Request, Response, api, field


@api(key=12, versions=(0, 4), flexible=4)
class HeartbeatResponse(Response):
    throttle_time_ms: Int32 = field(since=1, default=0, ignorable=True)
    error_code: Int16


@api(key=12, versions=(0, 4), flexible=4)
class HeartbeatRequest(Request[HeartbeatResponse]):
    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: str | None = field(since=3, default=None)
