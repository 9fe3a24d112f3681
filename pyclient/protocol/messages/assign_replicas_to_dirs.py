"""AssignReplicasToDirs (key 73): report to the controller which directory holds which replica (KIP-858)."""

from pyclient.protocol.fields import Int16, Int32, Int64, Request, Response, Uuid, api, part


@part
class AssignReplicasToDirsResponsePartitionData:
    partition_index: Int32
    error_code: Int16


@part
class AssignReplicasToDirsResponseTopicData:
    topic_id: Uuid
    partitions: list[AssignReplicasToDirsResponsePartitionData]


@part
class AssignReplicasToDirsResponseDirectoryData:
    id: Uuid
    topics: list[AssignReplicasToDirsResponseTopicData]


@api(key=73, versions=(0, 0), flexible=0)
class AssignReplicasToDirsResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16
    directories: list[AssignReplicasToDirsResponseDirectoryData]


@part
class AssignReplicasToDirsRequestPartitionData:
    partition_index: Int32


@part
class AssignReplicasToDirsRequestTopicData:
    topic_id: Uuid
    partitions: list[AssignReplicasToDirsRequestPartitionData]


@part
class AssignReplicasToDirsRequestDirectoryData:
    id: Uuid
    topics: list[AssignReplicasToDirsRequestTopicData]


@api(key=73, versions=(0, 0), flexible=0)
class AssignReplicasToDirsRequest(Request[AssignReplicasToDirsResponse]):
    broker_id: Int32
    broker_epoch: Int64 = -1
    directories: list[AssignReplicasToDirsRequestDirectoryData]
