"""Fetch (key 1): read record batches from partitions, optionally waiting for them."""

from pyclient.protocol.fields import (
    BLANK,
    ZERO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    Request,
    Response,
    Uuid,
    api,
    field,
    part,
)


@part
class EpochEndOffset:
    epoch: Int32 = -1
    end_offset: Int64 = -1


@part
class LeaderIdAndEpoch:
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


@part
class SnapshotId:
    end_offset: Int64 = -1
    epoch: Int32 = -1


@part
class AbortedTransaction:
    producer_id: Int64
    first_offset: Int64


@part
class PartitionData:
    partition_index: Int32
    error_code: Int16
    high_watermark: Int64
    last_stable_offset: Int64 = field(default=-1, ignorable=True)
    log_start_offset: Int64 = field(since=5, default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = field(since=12, default=BLANK, tag=0)
    current_leader: LeaderIdAndEpoch = field(since=12, default=BLANK, tag=1)
    snapshot_id: SnapshotId = field(since=12, default=BLANK, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = field(default=[], ignorable=True)
    preferred_read_replica: Int32 = field(since=11, default=-1)
    records: Records | None


@part
class FetchableTopicResponse:
    topic: str = field(until=12, default="", ignorable=True)
    topic_id: Uuid = field(since=13, default=ZERO_UUID, ignorable=True)
    partitions: list[PartitionData]


@part
class NodeEndpoint:
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = None


@api(key=1, versions=(4, 18), flexible=12)
class FetchResponse(Response):
    """Added in v4: aborted transactions; v7: sessions; v11: preferred replica; v12: diverging epochs.

    Added in v13: topic ids; v16: node endpoints.
    """

    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    error_code: Int16 = field(since=7, default=0, ignorable=True)
    session_id: Int32 = field(since=7, default=0)
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = field(since=16, default=[], tag=0)


@part
class ReplicaState:
    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


@part
class FetchPartition:
    partition: Int32
    current_leader_epoch: Int32 = field(since=9, default=-1, ignorable=True)
    fetch_offset: Int64
    last_fetched_epoch: Int32 = field(since=12, default=-1)
    log_start_offset: Int64 = field(since=5, default=-1, ignorable=True)
    partition_max_bytes: Int32
    replica_directory_id: Uuid = field(since=17, default=ZERO_UUID, tag=0, ignorable=True)
    high_watermark: Int64 = field(since=18, default=0x7FFF_FFFF_FFFF_FFFF, tag=1, ignorable=True)


@part
class FetchTopic:
    topic: str = field(until=12, default="", ignorable=True)
    topic_id: Uuid = field(since=13, default=ZERO_UUID, ignorable=True)
    partitions: list[FetchPartition]


@part
class ForgottenTopic:
    topic: str = field(until=12, default="", ignorable=True)
    topic_id: Uuid = field(since=13, default=ZERO_UUID, ignorable=True)
    partitions: list[Int32]


@api(key=1, versions=(4, 18), flexible=12)
class FetchRequest(Request[FetchResponse]):
    """Added in v5: log start offset; v7: sessions (KIP-227); v9: leader epochs (KIP-320); v10: zstd; v11: rack.

    Added in v13: topic ids; v15: `replica_state`, which replaces `replica_id`; v17: directory ids; v18: the follower's
    high watermark.
    """

    cluster_id: str | None = field(since=12, default=None, tag=0, ignorable=True)
    replica_id: Int32 = field(until=14, default=-1)
    replica_state: ReplicaState = field(since=15, default=BLANK, tag=1)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = field(default=0x7FFF_FFFF, ignorable=True)
    isolation_level: Int8 = field(default=0, ignorable=True)
    session_id: Int32 = field(since=7, default=0, ignorable=True)
    session_epoch: Int32 = field(since=7, default=-1, ignorable=True)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = field(since=7, default=[])
    rack_id: str = field(since=11, default="", ignorable=True)
