"""AlterReplicaLogDirs v1-2: move logs to other directories of this broker while they are in use (KIP-113).

The response reports only that the moves have started; DescribeLogDirs has their progress. A duplicate partition moves
to the last directory named.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyclient import errors
from pyclient.acls import CLUSTER_NAME, AclOperation, ResourceType
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import code_of
from pyclient.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext
    from pyclient.broker_embedded.services import BrokerServices

_MAX_TOPIC_LENGTH = 255 - len("-0.00000000000000000000000000000000-future")


@handles(AlterReplicaLogDirsRequest, versions=(1, 2))
def handle(
    request: AlterReplicaLogDirsRequest, context: RequestContext
) -> IncrementalTask[AlterReplicaLogDirsResponse]:
    """Answer every partition."""
    wanted = {
        TopicPartition(topic.name, index): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    }
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    allowed = context.may(AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    for topic_partition, path in wanted.items():
        code = 0
        try:
            if not allowed:
                raise errors.ClusterAuthorizationFailed("ALTER on the cluster is not allowed")
            _move(context.services, topic_partition, path)
        except Exception as error:  # every failure is answered with its error code
            code = code_of(error, f"moving {topic_partition} to {path!r}")
        found = AlterReplicaLogDirPartitionResult(partition_index=topic_partition.partition, error_code=code)
        results.setdefault(topic_partition.topic, []).append(found)
        yield None
    return AlterReplicaLogDirsResponse(
        throttle_time_ms=0,
        results=[
            AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions)
            for name, partitions in results.items()
        ],
    )


def _move(services: BrokerServices, topic_partition: TopicPartition, path: str) -> None:
    if len(topic_partition.topic) > _MAX_TOPIC_LENGTH:
        raise errors.InvalidTopic(f"topic name {topic_partition.topic!r} is too long for a future log directory")
    if any(os.path.abspath(each) == path for each in services.logs.directories.offline):
        raise errors.KafkaStorageError(f"log directory {path} is offline")
    target = next((each for each in services.logs.directories.online if os.path.abspath(each.path) == path), None)
    if target is None:
        raise errors.LogDirNotFound(f"{path!r} is not in log.dirs of broker {services.node_id}")
    if target.path in services.logs.directories.cordoned:
        raise errors.InvalidReplicaAssignment(f"log directory {path} is cordoned")
    partition = services.image.partition(*topic_partition)
    if partition is None or services.node_id not in partition.replicas:
        raise errors.UnknownTopicOrPartition(f"broker {services.node_id} has no partition {topic_partition}")
    if topic_partition in services.logs.offline:
        raise errors.KafkaStorageError(f"{topic_partition} is offline: {services.logs.offline[topic_partition]}")
    services.relocation.begin(topic_partition, target)
