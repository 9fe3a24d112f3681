"""AddPartitionsToTxn (key 24): register partitions with a transaction."""

from pyclient.protocol.fields import Int16, Int32, Int64, Request, Response, api, field, part


@part
class AddPartitionsToTxnPartitionResult:
    partition_index: Int32
    partition_error_code: Int16


@part
class AddPartitionsToTxnTopicResult:
    name: str
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


@part
class AddPartitionsToTxnResult:
    transactional_id: str
    topic_results: list[AddPartitionsToTxnTopicResult]


@api(key=24, versions=(0, 5), flexible=3)
class AddPartitionsToTxnResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16 = field(since=4, default=0, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(since=4, default=[])
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(until=3, default=[])


@part
class AddPartitionsToTxnTopic:
    name: str
    partitions: list[Int32]


@part
class AddPartitionsToTxnTransaction:
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    verify_only: bool = False
    topics: list[AddPartitionsToTxnTopic]


@api(key=24, versions=(0, 5), flexible=3)
class AddPartitionsToTxnRequest(Request[AddPartitionsToTxnResponse]):
    """Up to v3: one transaction, sent by a client. From v4: a batch of transactions, sent by a broker."""

    transactions: list[AddPartitionsToTxnTransaction] = field(since=4, default=[])
    v3_and_below_transactional_id: str = field(until=3, default="")
    v3_and_below_producer_id: Int64 = field(until=3, default=0)
    v3_and_below_producer_epoch: Int16 = field(until=3, default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(until=3, default=[])
