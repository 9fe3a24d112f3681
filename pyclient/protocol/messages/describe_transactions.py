"""DescribeTransactions (key 65): state and partitions of transactions (KIP-664)."""

from pyclient.protocol.fields import Int16, Int32, Int64, Request, Response, api, part


@part
class TopicData:
    topic: str
    partitions: list[Int32]


@part
class TransactionState:
    error_code: Int16
    transactional_id: str
    transaction_state: str
    transaction_timeout_ms: Int32
    transaction_start_time_ms: Int64
    producer_id: Int64
    producer_epoch: Int16
    topics: list[TopicData]


@api(key=65, versions=(0, 0), flexible=0)
class DescribeTransactionsResponse(Response):
    throttle_time_ms: Int32
    transaction_states: list[TransactionState]


@api(key=65, versions=(0, 0), flexible=0)
class DescribeTransactionsRequest(Request[DescribeTransactionsResponse]):
    transactional_ids: list[str]
