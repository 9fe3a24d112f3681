"""Reports to the controller which log directory has a replica of this node (AssignReplicasToDirs, KIP-858)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient import errors
from pyclient.errors.codes import from_code
from pyclient.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
    AssignReplicasToDirsResponse,
)

if TYPE_CHECKING:
    from asyncio import Future
    from uuid import UUID

    from pyclient.broker_embedded.environment import NodeEnvironment
    from pyclient.broker_embedded.replication.alter_partition import ControllerChannel
    from pyclient.types import TopicPartition

_TIMEOUT: Final = 30.0


def assign_directory(
    env: NodeEnvironment, to_controller: ControllerChannel, topic_partition: TopicPartition, directory: UUID
) -> Future[None]:
    """Return a future that is done when the controller has noted the directory, and fails if it did not."""
    noted: Future[None] = env.loop.create_future()
    topic = env.image.topics.get(topic_partition.topic)
    if topic is None:
        noted.set_exception(errors.UnknownTopicOrPartition(f"there is no topic {topic_partition.topic}"))
        return noted
    partition = AssignReplicasToDirsRequestPartitionData(partition_index=topic_partition.partition)
    topics = [AssignReplicasToDirsRequestTopicData(topic_id=topic.topic_id, partitions=[partition])]
    request = AssignReplicasToDirsRequest(
        broker_id=env.node_id,
        broker_epoch=env.broker_epoch,
        directories=[AssignReplicasToDirsRequestDirectoryData(id=directory, topics=topics)],
    )

    def answered(done: Future[AssignReplicasToDirsResponse]) -> None:
        if done.cancelled():
            noted.cancel()
            return
        error = done.exception()
        if error is None:
            code = _code(done.result())
            error = from_code(code, f"the directory of {topic_partition} on broker {env.node_id}") if code else None
        if error is None:
            noted.set_result(None)
        else:
            noted.set_exception(error)

    to_controller.send(request, _TIMEOUT).add_done_callback(answered)
    return noted


def _code(response: AssignReplicasToDirsResponse) -> int:
    """Return the first error of a response about one partition, 0 if there is none."""
    codes = [
        partition.error_code
        for directory in response.directories
        for topic in directory.topics
        for partition in topic.partitions
    ]
    return next((code for code in (response.error_code, *codes) if code), 0)
