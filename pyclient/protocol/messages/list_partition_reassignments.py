"""ListPartitionReassignments (key 46): the partition reassignments in progress (KIP-455)."""

from pyclient.protocol.fields import Int16, Int32, Request, Response, api, part


@part
class OngoingPartitionReassignment:
    partition_index: Int32
    replicas: list[Int32]
    adding_replicas: list[Int32]
    removing_replicas: list[Int32]


@part
class OngoingTopicReassignment:
    name: str
    partitions: list[OngoingPartitionReassignment]


@api(key=46, versions=(0, 0), flexible=0)
class ListPartitionReassignmentsResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None
    topics: list[OngoingTopicReassignment]


@part
class ListPartitionReassignmentsTopics:
    name: str
    partition_indexes: list[Int32]


@api(key=46, versions=(0, 0), flexible=0)
class ListPartitionReassignmentsRequest(Request[ListPartitionReassignmentsResponse]):
    timeout_ms: Int32 = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = None
