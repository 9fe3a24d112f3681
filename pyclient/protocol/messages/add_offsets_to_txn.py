"""AddOffsetsToTxn (key 25): register a group's offsets with a transaction."""

from pyclient.protocol.fields import Int16, Int32, Int64, Request, Response, api


@api(key=25, versions=(0, 4), flexible=3)
class AddOffsetsToTxnResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16


@api(key=25, versions=(0, 4), flexible=3)
class AddOffsetsToTxnRequest(Request[AddOffsetsToTxnResponse]):
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    group_id: str
