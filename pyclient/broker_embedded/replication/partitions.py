"""The partitions that this node leads, and their logs, configured from the metadata image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient import errors
from pyclient.broker_embedded.log.config import LogConfig
from pyclient.config.topic import TOPIC_OPTIONS
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection
    from uuid import UUID

    from pyclient.broker_embedded.controller.image import MetadataImage, PartitionImage
    from pyclient.broker_embedded.log.manager import LogManager
    from pyclient.broker_embedded.log.unified_log import UnifiedLog
    from pyclient.broker_embedded.replication.hosted_partitions import HostedPartition
    from pyclient.broker_embedded.replication.replica_manager import ReplicaManager


NO_EPOCH: Final = -1
"""The leader epoch in a request of a client that knows none (KIP-320)."""


class Partitions:
    """Finds the log of a partition that this node leads, or raises the error for the client.

    `replicas` are the partitions with copies on other nodes, None on a node that is alone.
    """

    def __init__(self, node_id: int, image: MetadataImage, logs: LogManager, defaults: LogConfig) -> None:
        self._node_id = node_id
        self._image = image
        self._logs = logs
        self.alone = True
        """True if there are no other nodes, so that no partition has copies."""
        self.defaults = defaults
        self.replicas: ReplicaManager | None = None
        logs.is_replicated = self._is_replicated
        logs.config_for = self.configure
        logs.directories.directory_for = self.directory_id
        logs.topic_id_for = self.topic_id

    def leader(self, topic: str, index: int, epoch: int = NO_EPOCH) -> tuple[UnifiedLog, int]:
        """Return the log and the leader epoch. `epoch` is the leader epoch that the client knows.

        Raise `UnknownTopicOrPartition`, `NotLeaderOrFollower` (also before the log is open: unopened_logs.py),
        `FencedLeaderEpoch`, `UnknownLeaderEpoch`, and the error of a log that cannot be opened.
        """
        partition = self._image.partition(topic, index)
        if partition is None:
            raise errors.UnknownTopicOrPartition(f"there is no partition {topic}-{index}")
        if partition.leader != self._node_id:
            raise errors.NotLeaderOrFollower(f"broker {partition.leader} leads {topic}-{index}")
        if epoch != NO_EPOCH and epoch != partition.leader_epoch:
            _check_epoch(topic, partition, epoch)
        log = self._logs.find(topic, index)
        if self.replicas is not None and len(partition.replicas) > 1:
            hosted = self.replicas.find(topic, index)
            if log is None or hosted is None or not hosted.partition.leads:
                raise errors.NotLeaderOrFollower(f"this broker is about to lead {topic}-{index}")
        return (log if log is not None else self.create(TopicPartition(topic, index))), partition.leader_epoch

    def readable(self, topic: str, index: int, epoch: int) -> UnifiedLog:
        """Return the log that a consumer may read: of the leader, or of a follower (KIP-392). Raise as `leader`."""
        hosted = self.hosted(topic, index)
        partition = self._image.partition(topic, index)
        if hosted is None or hosted.log is None or partition is None or partition.leader == self._node_id:
            return self.leader(topic, index, epoch)[0]
        if epoch != NO_EPOCH and epoch != hosted.partition.leader_epoch:
            _check_epoch(topic, partition, epoch)
        return hosted.log

    def hosted(self, topic: str, index: int) -> HostedPartition | None:
        """Return the partition if other nodes have copies of it."""
        return None if self.replicas is None else self.replicas.find(topic, index)

    def existing(self, topic: str, index: int) -> UnifiedLog | None:
        """Return the log; None if the partition was never used. A log that is not open is opened at once, which blocks.

        Raise `KafkaStorageError` if it cannot be opened.
        """
        return self._logs.get(topic, index)

    def size(self, topic: str, index: int) -> int:
        """Return the bytes of the log's batches; of a log that is not open yet, those of its files."""
        topic_partition = TopicPartition(topic, index)
        if topic_partition in self._logs.unopened or topic_partition in self._logs.offline:
            return self._logs.size_on_disk(topic_partition)
        log = self._logs.get(topic, index)
        return 0 if log is None else log.size

    def topic_id(self, topic_partition: TopicPartition) -> UUID | None:
        """Return the id of a partition's topic; None if there is no such partition, or no replica of it here."""
        topic = self._image.topics.get(topic_partition.topic)
        partition = None if topic is None else topic.partitions.get(topic_partition.partition)
        if topic is None or partition is None:
            return None
        return topic.topic_id if self.alone or self._node_id in partition.replicas else None

    def directory_id(self, topic_partition: TopicPartition) -> UUID | None:
        """Return the id of the log directory that the metadata assign to a partition; None if they assign none."""
        partition = self._image.partition(*topic_partition)
        return None if partition is None else partition.directory_of(self._node_id)

    def reconcile_directories(self, removed: Collection[UUID]) -> None:
        """Compare the directories of logs with the metadata; `removed` are the topics that its log has deleted."""
        topics = {topic_id: topic.name for topic_id, topic in self._image.topics_by_id.items()}
        self._logs.reconcile(topics, removed, has_others=not self.alone)

    def configure(self, topic: str) -> LogConfig:
        """Return the topic's options on top of the broker's defaults.

        Unserved options (of tiered storage, of older releases) are ignored: a metadata log of Kafka may have them.
        """
        own = {name: text for name, text in self._image.topic_configs(topic).items() if name in TOPIC_OPTIONS}
        return LogConfig.from_topic(own, self.defaults)

    def update_config(self, topic: str | None = None) -> None:
        """Apply changed options of a topic, or (None) of the broker, to the open logs."""
        self._logs.defaults = self.defaults
        for opened in self._logs.opened:
            opened.producer_expiration_ms = self._logs.producer_expiration_ms
            if topic is None or opened.topic == topic:
                opened.config = self.configure(opened.topic)

    def create(self, topic_partition: TopicPartition) -> UnifiedLog:
        """Create the log of a partition that is new on this node."""
        topic, index = topic_partition
        return self._logs.create(topic, self._image.topics[topic].topic_id, index, self.configure(topic))

    def _is_replicated(self, topic_partition: TopicPartition) -> bool:
        """Return True if other nodes have or may have copies: a starting node reads its logs before the metadata."""
        partition = self._image.partition(*topic_partition)
        return not self.alone and (partition is None or len(partition.replicas) > 1)


def _check_epoch(topic: str, partition: PartitionImage, epoch: int) -> None:
    text = f"{topic}-{partition.partition}: leader epoch {epoch}, the broker's is {partition.leader_epoch}"
    if epoch < partition.leader_epoch:
        raise errors.FencedLeaderEpoch(text)
    raise errors.UnknownLeaderEpoch(text)
