"""Records of `__transaction_state`: one per transactional id."""

from pyclient.protocol.fields import CoordinatorKey, Int8, Int16, Int32, Int64, Message, field, message, part


@message(key=0, versions=(0, 0), flexible=None)
class TransactionLogKey(CoordinatorKey):
    transactional_id: str


@part
class PartitionsSchema:
    topic: str
    partition_ids: list[Int32]


@message(key=0, versions=(0, 1), flexible=1)
class TransactionLogValue(Message):
    producer_id: Int64
    previous_producer_id: Int64 = field(since=1, default=-1, tag=0)
    next_producer_id: Int64 = field(since=1, default=-1, tag=1)
    producer_epoch: Int16
    next_producer_epoch: Int16 = field(since=1, default=-1, tag=3)
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: list[PartitionsSchema] | None
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Int16 = field(since=1, default=0, tag=2)
