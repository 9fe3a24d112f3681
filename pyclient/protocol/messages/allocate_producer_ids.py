"""AllocateProducerIds (key 67): request a block of producer ids from the controller."""

from pyclient.protocol.fields import Int16, Int32, Int64, Request, Response, api


@api(key=67, versions=(0, 0), flexible=0)
class AllocateProducerIdsResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16
    producer_id_start: Int64
    producer_id_len: Int32


@api(key=67, versions=(0, 0), flexible=0)
class AllocateProducerIdsRequest(Request[AllocateProducerIdsResponse]):
    broker_id: Int32
    broker_epoch: Int64 = -1
