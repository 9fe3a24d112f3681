"""OffsetFetch (key 9): read a group's stored positions."""

from pyclient.protocol.fields import ZERO_UUID, Int16, Int32, Int64, Request, Response, Uuid, api, field, part


@part
class OffsetFetchResponsePartition:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field(since=5, default=-1, ignorable=True)
    metadata: str | None
    error_code: Int16


@part
class OffsetFetchResponseTopic:
    name: str
    partitions: list[OffsetFetchResponsePartition]


@part
class OffsetFetchResponsePartitions:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field(default=-1, ignorable=True)
    metadata: str | None
    error_code: Int16


@part
class OffsetFetchResponseTopics:
    name: str = field(until=9, default="", ignorable=True)
    topic_id: Uuid = field(since=10, default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions]


@part
class OffsetFetchResponseGroup:
    group_id: str
    topics: list[OffsetFetchResponseTopics]
    error_code: Int16 = 0


@api(key=9, versions=(1, 10), flexible=6)
class OffsetFetchResponse(Response):
    throttle_time_ms: Int32 = field(since=3, default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field(until=7, default=[])
    error_code: Int16 = field(since=2, until=7, default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field(since=8, default=[])


@part
class OffsetFetchRequestTopic:
    name: str
    partition_indexes: list[Int32]


@part
class OffsetFetchRequestTopics:
    name: str = field(until=9, default="", ignorable=True)
    topic_id: Uuid = field(since=10, default=ZERO_UUID, ignorable=True)
    partition_indexes: list[Int32]


@part
class OffsetFetchRequestGroup:
    group_id: str
    member_id: str | None = field(since=9, default=None, ignorable=True)
    member_epoch: Int32 = field(since=9, default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None


@api(key=9, versions=(1, 10), flexible=6)
class OffsetFetchRequest(Request[OffsetFetchResponse]):
    """Added in v2: null for all topics; v7: stable offsets; v8: several groups; v9: member epochs; v10: topic ids."""

    group_id: str = field(until=7, default="")
    topics: list[OffsetFetchRequestTopic] | None = field(until=7, nullable=2, default=[])
    groups: list[OffsetFetchRequestGroup] = field(since=8, default=[])
    require_stable: bool = field(since=7, default=False)
