"""JoinGroup (key 11): join a classic group, or take part in its rebalance."""

from pyclient.protocol.fields import Int16, Int32, Request, Response, api, field, part


@part
class JoinGroupResponseMember:
    member_id: str
    group_instance_id: str | None = field(since=5, default=None, ignorable=True)
    metadata: bytes


@api(key=11, versions=(0, 9), flexible=6)
class JoinGroupResponse(Response):
    """Added in v7: protocol type; v9: `skip_assignment` for the leader."""

    throttle_time_ms: Int32 = field(since=2, default=0, ignorable=True)
    error_code: Int16
    generation_id: Int32 = -1
    protocol_type: str | None = field(since=7, default=None, ignorable=True)
    protocol_name: str | None = field(nullable=7)
    leader: str
    skip_assignment: bool = field(since=9, default=False)
    member_id: str
    members: list[JoinGroupResponseMember]


@part
class JoinGroupRequestProtocol:
    name: str
    metadata: bytes


@api(key=11, versions=(0, 9), flexible=6)
class JoinGroupRequest(Request[JoinGroupResponse]):
    """Added in v1: rebalance timeout; v4: member id requested first (KIP-394); v5: static members; v8: reason."""

    group_id: str
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = field(since=1, default=-1, ignorable=True)
    member_id: str
    group_instance_id: str | None = field(since=5, default=None)
    protocol_type: str
    protocols: list[JoinGroupRequestProtocol]
    reason: str | None = field(since=8, default=None, ignorable=True)
