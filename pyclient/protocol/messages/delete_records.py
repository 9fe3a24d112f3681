"""DeleteRecords (key 21): delete the records of partitions before an offset."""

from pyclient.protocol.fields import Int16, Int32, Int64, Request, Response, api, part


@part
class DeleteRecordsPartitionResult:
    partition_index: Int32
    low_watermark: Int64
    error_code: Int16


@part
class DeleteRecordsTopicResult:
    name: str
    partitions: list[DeleteRecordsPartitionResult]


@api(key=21, versions=(0, 2), flexible=2)
class DeleteRecordsResponse(Response):
    throttle_time_ms: Int32
    topics: list[DeleteRecordsTopicResult]


@part
class DeleteRecordsPartition:
    partition_index: Int32
    offset: Int64


@part
class DeleteRecordsTopic:
    name: str
    partitions: list[DeleteRecordsPartition]


@api(key=21, versions=(0, 2), flexible=2)
class DeleteRecordsRequest(Request[DeleteRecordsResponse]):
    topics: list[DeleteRecordsTopic]
    timeout_ms: Int32
