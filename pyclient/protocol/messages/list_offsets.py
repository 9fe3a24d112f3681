"""ListOffsets (key 2): find offsets by time, or the ends of a log."""

from pyclient.protocol.fields import Int8, Int16, Int32, Int64, Request, Response, api, field, part


@part
class ListOffsetsPartitionResponse:
    partition_index: Int32
    error_code: Int16
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Int32 = field(since=4, default=-1)


@part
class ListOffsetsTopicResponse:
    name: str
    partitions: list[ListOffsetsPartitionResponse]


@api(key=2, versions=(1, 11), flexible=6)
class ListOffsetsResponse(Response):
    throttle_time_ms: Int32 = field(since=2, default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse]


@part
class ListOffsetsPartition:
    partition_index: Int32
    current_leader_epoch: Int32 = field(since=4, default=-1, ignorable=True)
    timestamp: Int64


@part
class ListOffsetsTopic:
    name: str
    partitions: list[ListOffsetsPartition]


@api(key=2, versions=(1, 11), flexible=6)
class ListOffsetsRequest(Request[ListOffsetsResponse]):
    """Added in v2: isolation level; v4: leader epoch; v7: timestamp -3, the newest one; v10: timeout.

    Added in v8, v9 and v11: timestamps -4, -5 and -6, for tiered storage.
    """

    replica_id: Int32
    isolation_level: Int8 = field(since=2, default=0)
    topics: list[ListOffsetsTopic]
    timeout_ms: Int32 = field(since=10, default=0, ignorable=True)
