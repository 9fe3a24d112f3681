"""BrokerHeartbeat (key 63): keep a broker's registration with the controller alive (KIP-631)."""

from pyclient.protocol.fields import Int16, Int32, Int64, Request, Response, Uuid, api, field


@api(key=63, versions=(0, 2), flexible=0)
class BrokerHeartbeatResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool


@api(key=63, versions=(0, 2), flexible=0)
class BrokerHeartbeatRequest(Request[BrokerHeartbeatResponse]):
    broker_id: Int32
    broker_epoch: Int64 = -1
    current_metadata_offset: Int64
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: list[Uuid] = field(since=1, default=[], tag=0)
    cordoned_log_dirs: list[Uuid] | None = field(since=2, default=None, tag=1)
