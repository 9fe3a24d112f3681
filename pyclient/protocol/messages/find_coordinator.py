"""FindCoordinator (key 10): find the coordinator of a group or a transactional id."""

from pyclient.protocol.fields import Int8, Int16, Int32, Request, Response, api, field, part


@part
class Coordinator:
    key: str
    node_id: Int32
    host: str
    port: Int32
    error_code: Int16
    error_message: str | None = field(default="", ignorable=True)


@api(key=10, versions=(0, 6), flexible=3)
class FindCoordinatorResponse(Response):
    throttle_time_ms: Int32 = field(since=1, default=0, ignorable=True)
    error_code: Int16 = field(until=3, default=0)
    error_message: str | None = field(since=1, until=3, default="", ignorable=True)
    node_id: Int32 = field(until=3, default=0)
    host: str = field(until=3, default="")
    port: Int32 = field(until=3, default=0)
    coordinators: list[Coordinator] = field(since=4, default=[])


@api(key=10, versions=(0, 6), flexible=3)
class FindCoordinatorRequest(Request[FindCoordinatorResponse]):
    """Added in v1: key types; v4: several keys; v6: share groups."""

    key: str = field(until=3, default="")
    key_type: Int8 = field(since=1, default=0)
    coordinator_keys: list[str] = field(since=4, default=[])
