"""OffsetDelete (key 47): delete a group's stored positions for single partitions (KIP-496)."""

from pyclient.protocol.fields import Int16, Int32, Request, Response, api, field, part


@part
class OffsetDeleteResponsePartition:
    partition_index: Int32
    error_code: Int16


@part
class OffsetDeleteResponseTopic:
    name: str
    partitions: list[OffsetDeleteResponsePartition]


@api(key=47, versions=(0, 0), flexible=None)
class OffsetDeleteResponse(Response):
    error_code: Int16
    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    topics: list[OffsetDeleteResponseTopic]


@part
class OffsetDeleteRequestPartition:
    partition_index: Int32


@part
class OffsetDeleteRequestTopic:
    name: str
    partitions: list[OffsetDeleteRequestPartition]


@api(key=47, versions=(0, 0), flexible=None)
class OffsetDeleteRequest(Request[OffsetDeleteResponse]):
    group_id: str
    topics: list[OffsetDeleteRequestTopic]
