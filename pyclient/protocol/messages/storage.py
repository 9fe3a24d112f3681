"""Files of a log directory and of the Raft quorum, and records of `__remote_log_metadata`."""

from pyclient.protocol.fields import ZERO_UUID, Int8, Int16, Int32, Int64, Message, UInt32, Uuid, field, message, part


@part
class ProducerEntry:
    producer_id: Int64
    epoch: Int16
    last_sequence: Int32
    last_offset: Int64
    offset_delta: Int32
    timestamp: Int64
    coordinator_epoch: Int32
    current_txn_first_offset: Int64


@message(versions=(1, 1), flexible=None)
class ProducerSnapshot(Message):
    crc: UInt32
    producer_entries: list[ProducerEntry]


@part
class Voter:
    voter_id: Int32


@message(versions=(0, 1), flexible=0)
class QuorumStateData(Message):
    cluster_id: str = field(until=0, default="")
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1
    voted_id: Int32 = -1
    voted_directory_id: Uuid = field(since=1, default=ZERO_UUID)
    applied_offset: Int64 = field(until=0, default=0)
    current_voters: list[Voter] | None = field(until=0, default=[])


@part
class RemoteLogSegmentMetadataRecordTopicIdPartitionEntry:
    name: str
    id: Uuid
    partition: Int32


@part
class RemoteLogSegmentMetadataRecordRemoteLogSegmentIdEntry:
    topic_id_partition: RemoteLogSegmentMetadataRecordTopicIdPartitionEntry
    id: Uuid


@part
class RemoteLogSegmentMetadataRecordSegmentLeaderEpochEntry:
    leader_epoch: Int32
    offset: Int64


@message(key=0, versions=(0, 0), flexible=0)
class RemoteLogSegmentMetadataRecord(Message):
    remote_log_segment_id: RemoteLogSegmentMetadataRecordRemoteLogSegmentIdEntry
    start_offset: Int64
    end_offset: Int64
    broker_id: Int32
    max_timestamp_ms: Int64
    event_timestamp_ms: Int64
    segment_leader_epochs: list[RemoteLogSegmentMetadataRecordSegmentLeaderEpochEntry]
    segment_size_in_bytes: Int32
    custom_metadata: bytes | None = None
    remote_log_segment_state: Int8
    txn_index_empty: bool = field(default=False, tag=0)


@part
class RemoteLogSegmentMetadataUpdateRecordTopicIdPartitionEntry:
    name: str
    id: Uuid
    partition: Int32


@part
class RemoteLogSegmentMetadataUpdateRecordRemoteLogSegmentIdEntry:
    topic_id_partition: RemoteLogSegmentMetadataUpdateRecordTopicIdPartitionEntry
    id: Uuid


@message(key=1, versions=(0, 0), flexible=0)
class RemoteLogSegmentMetadataUpdateRecord(Message):
    remote_log_segment_id: RemoteLogSegmentMetadataUpdateRecordRemoteLogSegmentIdEntry
    broker_id: Int32
    event_timestamp_ms: Int64
    custom_metadata: bytes | None = None
    remote_log_segment_state: Int8


@part
class RemotePartitionDeleteMetadataRecordTopicIdPartitionEntry:
    name: str
    id: Uuid
    partition: Int32


@message(key=2, versions=(0, 0), flexible=0)
class RemotePartitionDeleteMetadataRecord(Message):
    topic_id_partition: RemotePartitionDeleteMetadataRecordTopicIdPartitionEntry
    broker_id: Int32
    event_timestamp_ms: Int64
    remote_partition_delete_state: Int8


@part
class RemoteLogSegmentMetadataSnapshotRecordSegmentLeaderEpochEntry:
    leader_epoch: Int32
    offset: Int64


@message(key=3, versions=(0, 0), flexible=0)
class RemoteLogSegmentMetadataSnapshotRecord(Message):
    segment_id: Uuid
    start_offset: Int64
    end_offset: Int64
    broker_id: Int32
    max_timestamp_ms: Int64
    event_timestamp_ms: Int64
    segment_leader_epochs: list[RemoteLogSegmentMetadataSnapshotRecordSegmentLeaderEpochEntry]
    segment_size_in_bytes: Int32
    custom_metadata: bytes | None = None
    remote_log_segment_state: Int8
    txn_index_empty: bool = field(default=False, tag=0)
