"""UpdateRaftVoter (key 82): change a voter's endpoints and feature range (KIP-853)."""

from pyclient.protocol.fields import BLANK, Int16, Int32, Request, Response, UInt16, Uuid, api, field, part


@part
class CurrentLeader:
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1
    host: str
    port: Int32


@api(key=82, versions=(0, 0), flexible=0)
class UpdateRaftVoterResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16
    current_leader: CurrentLeader = field(default=BLANK, tag=0)


@part
class Listener:
    name: str
    host: str
    port: UInt16


@part
class KRaftVersionFeature:
    min_supported_version: Int16
    max_supported_version: Int16


@api(key=82, versions=(0, 0), flexible=0)
class UpdateRaftVoterRequest(Request[UpdateRaftVoterResponse]):
    cluster_id: str | None
    current_leader_epoch: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: list[Listener]
    kraft_version_feature: KRaftVersionFeature
