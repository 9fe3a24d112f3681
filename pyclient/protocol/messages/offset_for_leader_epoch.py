"""OffsetForLeaderEpoch (key 23): where the log of an older leader ended (KIP-101, KIP-320)."""

from pyclient.protocol.fields import Int16, Int32, Int64, Request, Response, api, field, part


@part
class EpochEndOffset:
    error_code: Int16
    partition: Int32
    leader_epoch: Int32 = field(default=-1, ignorable=True)
    end_offset: Int64 = -1


@part
class OffsetForLeaderTopicResult:
    topic: str
    partitions: list[EpochEndOffset]


@api(key=23, versions=(2, 4), flexible=4)
class OffsetForLeaderEpochResponse(Response):
    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    topics: list[OffsetForLeaderTopicResult]


@part
class OffsetForLeaderPartition:
    partition: Int32
    current_leader_epoch: Int32 = field(default=-1, ignorable=True)
    leader_epoch: Int32


@part
class OffsetForLeaderTopic:
    topic: str
    partitions: list[OffsetForLeaderPartition]


@api(key=23, versions=(2, 4), flexible=4)
class OffsetForLeaderEpochRequest(Request[OffsetForLeaderEpochResponse]):
    replica_id: Int32 = field(since=3, default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic]
