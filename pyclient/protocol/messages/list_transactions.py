"""ListTransactions (key 66): the transactions a broker coordinates (KIP-664)."""

from pyclient.protocol.fields import Int16, Int32, Int64, Request, Response, api, field, part


@part
class TransactionState:
    transactional_id: str
    producer_id: Int64
    transaction_state: str


@api(key=66, versions=(0, 2), flexible=0)
class ListTransactionsResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16
    unknown_state_filters: list[str]
    transaction_states: list[TransactionState]


@api(key=66, versions=(0, 2), flexible=0)
class ListTransactionsRequest(Request[ListTransactionsResponse]):
    state_filters: list[str]
    producer_id_filters: list[Int64]
    duration_filter: Int64 = field(since=1, default=-1)
    transactional_id_pattern: str | None = field(since=2, default=None)
