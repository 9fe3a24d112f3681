"""CreateTopics (key 19): create topics."""

from pyclient.protocol.fields import ZERO_UUID, Int8, Int16, Int32, Request, Response, Uuid, api, field, part


@part
class CreatableTopicConfigs:
    name: str
    value: str | None
    read_only: bool
    config_source: Int8 = field(default=-1, ignorable=True)
    is_sensitive: bool


@part
class CreatableTopicResult:
    name: str
    topic_id: Uuid = field(since=7, default=ZERO_UUID, ignorable=True)
    error_code: Int16
    error_message: str | None = field(default="", ignorable=True)
    topic_config_error_code: Int16 = field(since=5, default=0, tag=0, ignorable=True)
    num_partitions: Int32 = field(since=5, default=-1, ignorable=True)
    replication_factor: Int16 = field(since=5, default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = field(since=5, default=[], ignorable=True)


@api(key=19, versions=(2, 7), flexible=5)
class CreateTopicsResponse(Response):
    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    topics: list[CreatableTopicResult]


@part
class CreatableReplicaAssignment:
    partition_index: Int32
    broker_ids: list[Int32]


@part
class CreatableTopicConfig:
    name: str
    value: str | None


@part
class CreatableTopic:
    name: str
    num_partitions: Int32
    replication_factor: Int16
    assignments: list[CreatableReplicaAssignment]
    configs: list[CreatableTopicConfig]


@api(key=19, versions=(2, 7), flexible=5)
class CreateTopicsRequest(Request[CreateTopicsResponse]):
    """From v4 -1 means the broker's default number of partitions or replication factor. v5: flexible."""

    topics: list[CreatableTopic]
    timeout_ms: Int32 = 60000
    validate_only: bool = False
