"""EndTxn (key 26): commit or abort a transaction."""

from pyclient.protocol.fields import Int16, Int32, Int64, Request, Response, api, field


@api(key=26, versions=(0, 5), flexible=3)
class EndTxnResponse(Response):
    """v5 adds the producer id and epoch of the next transaction (KIP-890)."""

    throttle_time_ms: Int32
    error_code: Int16
    producer_id: Int64 = field(since=5, default=-1, ignorable=True)
    producer_epoch: Int16 = field(since=5, default=-1, ignorable=True)


@api(key=26, versions=(0, 5), flexible=3)
class EndTxnRequest(Request[EndTxnResponse]):
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    committed: bool
