"""CreatePartitions (key 37): add partitions to topics."""

from pyclient.protocol.fields import Int16, Int32, Request, Response, api, part


@part
class CreatePartitionsTopicResult:
    name: str
    error_code: Int16
    error_message: str | None = None


@api(key=37, versions=(0, 3), flexible=2)
class CreatePartitionsResponse(Response):
    throttle_time_ms: Int32
    results: list[CreatePartitionsTopicResult]


@part
class CreatePartitionsAssignment:
    broker_ids: list[Int32]


@part
class CreatePartitionsTopic:
    name: str
    count: Int32
    assignments: list[CreatePartitionsAssignment] | None


@api(key=37, versions=(0, 3), flexible=2)
class CreatePartitionsRequest(Request[CreatePartitionsResponse]):
    topics: list[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: bool
