"""Records in control batches: transaction markers and the control records of the Raft log."""

from pyclient.protocol.fields import ZERO_UUID, Int16, Int32, Int64, Message, UInt16, Uuid, field, message, part


@message(versions=(0, 0), flexible=None)
class ControlRecordTypeSchema(Message):
    type: Int16


@message(versions=(0, 0), flexible=None)
class EndTxnMarker(Message):
    coordinator_epoch: Int32


@part
class LeaderChangeMessageVoter:
    voter_id: Int32
    voter_directory_id: Uuid = field(since=1, default=ZERO_UUID)


@message(versions=(0, 1), flexible=0)
class LeaderChangeMessage(Message):
    version: Int16
    leader_id: Int32
    voters: list[LeaderChangeMessageVoter]
    granting_voters: list[LeaderChangeMessageVoter]


@message(versions=(0, 0), flexible=0)
class SnapshotHeaderRecord(Message):
    version: Int16
    last_contained_log_timestamp: Int64


@message(versions=(0, 0), flexible=0)
class SnapshotFooterRecord(Message):
    version: Int16


@message(versions=(0, 0), flexible=0)
class KRaftVersionRecord(Message):
    version: Int16
    kraft_version: Int16


@part
class Endpoint:
    name: str
    host: str
    port: UInt16


@part
class KRaftVersionFeature:
    min_supported_version: Int16
    max_supported_version: Int16


@part
class VotersRecordVoter:
    voter_id: Int32
    voter_directory_id: Uuid
    endpoints: list[Endpoint]
    kraft_version_feature: KRaftVersionFeature


@message(versions=(0, 0), flexible=0)
class VotersRecord(Message):
    version: Int16
    voters: list[VotersRecordVoter]
