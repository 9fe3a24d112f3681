"""RemoveRaftVoter (key 81): remove a voter from the metadata quorum (KIP-853)."""

from pyclient.protocol.fields import Int16, Int32, Request, Response, Uuid, api, field


@api(key=81, versions=(0, 0), flexible=0)
class RemoveRaftVoterResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None = field(default="", ignorable=True)


@api(key=81, versions=(0, 0), flexible=0)
class RemoveRaftVoterRequest(Request[RemoveRaftVoterResponse]):
    cluster_id: str | None
    voter_id: Int32
    voter_directory_id: Uuid
