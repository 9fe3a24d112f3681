"""Produce (key 0): append record batches to partitions."""

from pyclient.protocol.fields import (
    BLANK,
    ZERO_UUID,
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
class BatchIndexAndErrorMessage:
    batch_index: Int32
    batch_index_error_message: str | None = None


@part
class LeaderIdAndEpoch:
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


@part
class PartitionProduceResponse:
    index: Int32
    error_code: Int16
    base_offset: Int64
    log_append_time_ms: Int64 = field(default=-1, ignorable=True)
    log_start_offset: Int64 = field(since=5, default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field(since=8, default=[], ignorable=True)
    error_message: str | None = field(since=8, default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = field(since=10, default=BLANK, tag=0)


@part
class TopicProduceResponse:
    name: str = field(until=12, default="", ignorable=True)
    topic_id: Uuid = field(since=13, default=ZERO_UUID, ignorable=True)
    partition_responses: list[PartitionProduceResponse]


@part
class NodeEndpoint:
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = None


@api(key=0, versions=(3, 13), flexible=9)
class ProduceResponse(Response):
    """Added in v5: log start offset; v8: errors per record; v10: the new leader (KIP-951); v13: topic ids."""

    responses: list[TopicProduceResponse]
    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = field(since=10, default=[], tag=0)


@part
class PartitionProduceData:
    index: Int32
    records: Records | None


@part
class TopicProduceData:
    name: str = field(until=12, default="", ignorable=True)
    topic_id: Uuid = field(since=13, default=ZERO_UUID, ignorable=True)
    partition_data: list[PartitionProduceData]


@api(key=0, versions=(3, 13), flexible=9)
class ProduceRequest(Request[ProduceResponse]):
    """Added in v7: zstd; v11: TRANSACTION_ABORTABLE; v12: adds partitions to the transaction; v13: topic ids."""

    transactional_id: str | None = None
    acks: Int16
    timeout_ms: Int32
    topic_data: list[TopicProduceData]
