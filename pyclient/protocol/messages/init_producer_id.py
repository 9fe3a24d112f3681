"""InitProducerId (key 22): get a producer id and epoch, and fence older producers of a transactional id."""

from pyclient.protocol.fields import Int16, Int32, Int64, Request, Response, api, field


@api(key=22, versions=(0, 6), flexible=2)
class InitProducerIdResponse(Response):
    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    error_code: Int16
    producer_id: Int64 = -1
    producer_epoch: Int16
    ongoing_txn_producer_id: Int64 = field(since=6, default=-1)
    ongoing_txn_producer_epoch: Int16 = field(since=6, default=-1)


@api(key=22, versions=(0, 6), flexible=2)
class InitProducerIdRequest(Request[InitProducerIdResponse]):
    """Added in v3: bumping the epoch of an id (KIP-360); v4: PRODUCER_FENCED; v6: two-phase commit (KIP-939)."""

    transactional_id: str | None
    transaction_timeout_ms: Int32
    producer_id: Int64 = field(since=3, default=-1)
    producer_epoch: Int16 = field(since=3, default=-1)
    enable2_pc: bool = field(since=6, default=False)
    keep_prepared_txn: bool = field(since=6, default=False)
