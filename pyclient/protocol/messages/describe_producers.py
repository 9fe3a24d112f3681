"""DescribeProducers (key 61): active producers of partitions (KIP-664)."""

from pyclient.protocol.fields import Int16, Int32, Int64, Request, Response, api, part


@part
class ProducerState:
    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = -1


@part
class PartitionResponse:
    partition_index: Int32
    error_code: Int16
    error_message: str | None = None
    active_producers: list[ProducerState]


@part
class TopicResponse:
    name: str
    partitions: list[PartitionResponse]


@api(key=61, versions=(0, 0), flexible=0)
class DescribeProducersResponse(Response):
    throttle_time_ms: Int32
    topics: list[TopicResponse]


@part
class TopicRequest:
    name: str
    partition_indexes: list[Int32]


@api(key=61, versions=(0, 0), flexible=0)
class DescribeProducersRequest(Request[DescribeProducersResponse]):
    topics: list[TopicRequest]
