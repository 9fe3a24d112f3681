"""AlterReplicaLogDirs (key 34): move replicas between the log directories of a broker."""

from pyclient.protocol.fields import Int16, Int32, Request, Response, api, part


@part
class AlterReplicaLogDirPartitionResult:
    partition_index: Int32
    error_code: Int16


@part
class AlterReplicaLogDirTopicResult:
    topic_name: str
    partitions: list[AlterReplicaLogDirPartitionResult]


@api(key=34, versions=(1, 2), flexible=2)
class AlterReplicaLogDirsResponse(Response):
    throttle_time_ms: Int32
    results: list[AlterReplicaLogDirTopicResult]


@part
class AlterReplicaLogDirTopic:
    name: str
    partitions: list[Int32]


@part
class AlterReplicaLogDir:
    path: str
    topics: list[AlterReplicaLogDirTopic]


@api(key=34, versions=(1, 2), flexible=2)
class AlterReplicaLogDirsRequest(Request[AlterReplicaLogDirsResponse]):
    dirs: list[AlterReplicaLogDir]
