"""ElectLeaders (key 43): elect the preferred leader, or an unclean one, of partitions."""

from pyclient.protocol.fields import Int8, Int16, Int32, Request, Response, api, field, part


@part
class PartitionResult:
    partition_id: Int32
    error_code: Int16
    error_message: str | None


@part
class ReplicaElectionResult:
    topic: str
    partition_result: list[PartitionResult]


@api(key=43, versions=(0, 2), flexible=2)
class ElectLeadersResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16 = field(since=1, default=0)
    replica_election_results: list[ReplicaElectionResult]


@part
class TopicPartitions:
    topic: str
    partitions: list[Int32]


@api(key=43, versions=(0, 2), flexible=2)
class ElectLeadersRequest(Request[ElectLeadersResponse]):
    election_type: Int8 = field(since=1, default=0)
    topic_partitions: list[TopicPartitions] | None
    timeout_ms: Int32 = 60000
