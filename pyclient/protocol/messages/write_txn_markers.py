"""WriteTxnMarkers (key 27): write the end marker of a transaction to partitions; sent by its coordinator."""

from pyclient.protocol.fields import Int8, Int16, Int32, Int64, Request, Response, api, field, part


@part
class WritableTxnMarkerPartitionResult:
    partition_index: Int32
    error_code: Int16


@part
class WritableTxnMarkerTopicResult:
    name: str
    partitions: list[WritableTxnMarkerPartitionResult]


@part
class WritableTxnMarkerResult:
    producer_id: Int64
    topics: list[WritableTxnMarkerTopicResult]


@api(key=27, versions=(1, 2), flexible=1)
class WriteTxnMarkersResponse(Response):
    markers: list[WritableTxnMarkerResult]


@part
class WritableTxnMarkerTopic:
    name: str
    partition_indexes: list[Int32]


@part
class WritableTxnMarker:
    producer_id: Int64
    producer_epoch: Int16
    transaction_result: bool
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: Int32
    transaction_version: Int8 = field(since=2, default=0, ignorable=True)


@api(key=27, versions=(1, 2), flexible=1)
class WriteTxnMarkersRequest(Request[WriteTxnMarkersResponse]):
    markers: list[WritableTxnMarker]
