"""AlterPartitionReassignments (key 45): start or cancel moving partitions to other brokers (KIP-455)."""

from pyclient.protocol.fields import Int16, Int32, Request, Response, api, field, part


@part
class ReassignablePartitionResponse:
    partition_index: Int32
    error_code: Int16
    error_message: str | None


@part
class ReassignableTopicResponse:
    name: str
    partitions: list[ReassignablePartitionResponse]


@api(key=45, versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsResponse(Response):
    throttle_time_ms: Int32
    allow_replication_factor_change: bool = field(since=1, default=True, ignorable=True)
    error_code: Int16
    error_message: str | None
    responses: list[ReassignableTopicResponse]


@part
class ReassignablePartition:
    partition_index: Int32
    replicas: list[Int32] | None = None


@part
class ReassignableTopic:
    name: str
    partitions: list[ReassignablePartition]


@api(key=45, versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsRequest(Request[AlterPartitionReassignmentsResponse]):
    timeout_ms: Int32 = 60000
    allow_replication_factor_change: bool = field(since=1, default=True)
    topics: list[ReassignableTopic]
