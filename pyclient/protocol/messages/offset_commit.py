"""OffsetCommit (key 8): store a group's positions."""

from pyclient.protocol.fields import ZERO_UUID, Int16, Int32, Int64, Request, Response, Uuid, api, field, part


@part
class OffsetCommitResponsePartition:
    partition_index: Int32
    error_code: Int16


@part
class OffsetCommitResponseTopic:
    name: str = field(until=9, default="", ignorable=True)
    topic_id: Uuid = field(since=10, default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitResponsePartition]


@api(key=8, versions=(2, 10), flexible=8)
class OffsetCommitResponse(Response):
    throttle_time_ms: Int32 = field(since=3, default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic]


@part
class OffsetCommitRequestPartition:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field(since=6, default=-1, ignorable=True)
    committed_metadata: str | None


@part
class OffsetCommitRequestTopic:
    name: str = field(until=9, default="", ignorable=True)
    topic_id: Uuid = field(since=10, default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitRequestPartition]


@api(key=8, versions=(2, 10), flexible=8)
class OffsetCommitRequest(Request[OffsetCommitResponse]):
    """v2 to v4: retention time. Added in v6: leader epoch; v7: static members; v9: KIP-848 epochs; v10: topic ids."""

    group_id: str
    generation_id_or_member_epoch: Int32 = field(default=-1, ignorable=True)
    member_id: str = field(default="", ignorable=True)
    group_instance_id: str | None = field(since=7, default=None)
    retention_time_ms: Int64 = field(until=4, default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic]
