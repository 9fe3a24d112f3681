"""FetchSnapshot (key 59): read a piece of a snapshot of the metadata log (KIP-630)."""

from pyclient.protocol.fields import (
    BLANK,
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Records,
    Request,
    Response,
    UInt16,
    Uuid,
    api,
    field,
    part,
)


@part
class FetchSnapshotResponseSnapshotId:
    end_offset: Int64
    epoch: Int32


@part
class LeaderIdAndEpoch:
    leader_id: Int32
    leader_epoch: Int32


@part
class FetchSnapshotResponsePartitionSnapshot:
    index: Int32
    error_code: Int16
    snapshot_id: FetchSnapshotResponseSnapshotId
    current_leader: LeaderIdAndEpoch = field(default=BLANK, tag=0)
    size: Int64
    position: Int64
    unaligned_records: Records


@part
class FetchSnapshotResponseTopicSnapshot:
    name: str
    partitions: list[FetchSnapshotResponsePartitionSnapshot]


@part
class NodeEndpoint:
    node_id: Int32
    host: str
    port: UInt16


@api(key=59, versions=(0, 1), flexible=0)
class FetchSnapshotResponse(Response):
    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    error_code: Int16
    topics: list[FetchSnapshotResponseTopicSnapshot]
    node_endpoints: list[NodeEndpoint] = field(since=1, default=[], tag=0)


@part
class FetchSnapshotRequestSnapshotId:
    end_offset: Int64
    epoch: Int32


@part
class FetchSnapshotRequestPartitionSnapshot:
    partition: Int32
    current_leader_epoch: Int32
    snapshot_id: FetchSnapshotRequestSnapshotId
    position: Int64
    replica_directory_id: Uuid = field(since=1, default=ZERO_UUID, tag=0, ignorable=True)


@part
class FetchSnapshotRequestTopicSnapshot:
    name: str
    partitions: list[FetchSnapshotRequestPartitionSnapshot]


@api(key=59, versions=(0, 1), flexible=0)
class FetchSnapshotRequest(Request[FetchSnapshotResponse]):
    cluster_id: str | None = field(default=None, tag=0)
    replica_id: Int32 = -1
    max_bytes: Int32 = 0x7FFF_FFFF
    topics: list[FetchSnapshotRequestTopicSnapshot]
