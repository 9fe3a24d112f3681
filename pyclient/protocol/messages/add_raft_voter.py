"""AddRaftVoter (key 80): add a voter to the metadata quorum (KIP-853)."""

from pyclient.protocol.fields import Int16, Int32, Request, Response, UInt16, Uuid, api, field, part


@api(key=80, versions=(0, 1), flexible=0)
class AddRaftVoterResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None = field(default="", ignorable=True)


@part
class Listener:
    name: str
    host: str
    port: UInt16


@api(key=80, versions=(0, 1), flexible=0)
class AddRaftVoterRequest(Request[AddRaftVoterResponse]):
    cluster_id: str | None
    timeout_ms: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: list[Listener]
    ack_when_committed: bool = field(since=1, default=True)
