"""TxnOffsetCommit (key 28): store a group's positions as part of a transaction."""

from pyclient.protocol.fields import Int16, Int32, Int64, Request, Response, api, field, part


@part
class TxnOffsetCommitResponsePartition:
    partition_index: Int32
    error_code: Int16


@part
class TxnOffsetCommitResponseTopic:
    name: str
    partitions: list[TxnOffsetCommitResponsePartition]


@api(key=28, versions=(0, 5), flexible=3)
class TxnOffsetCommitResponse(Response):
    throttle_time_ms: Int32
    topics: list[TxnOffsetCommitResponseTopic]


@part
class TxnOffsetCommitRequestPartition:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field(since=2, default=-1, ignorable=True)
    committed_metadata: str | None


@part
class TxnOffsetCommitRequestTopic:
    name: str
    partitions: list[TxnOffsetCommitRequestPartition]


@api(key=28, versions=(0, 5), flexible=3)
class TxnOffsetCommitRequest(Request[TxnOffsetCommitResponse]):
    """Added in v2: leader epoch; v3: group generation and member; v5: adds the group to the transaction."""

    transactional_id: str
    group_id: str
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Int32 = field(since=3, default=-1)
    member_id: str = field(since=3, default="")
    group_instance_id: str | None = field(since=3, default=None)
    topics: list[TxnOffsetCommitRequestTopic]
