"""The partitions that this node leads, and their logs: opened when first asked for, configured as the image says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient import errors
from pyclient.broker_embedded.log.config import TOPIC_CONFIGS, LogConfig
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from pyclient.broker_embedded.controller.image import MetadataImage, PartitionImage
    from pyclient.broker_embedded.log.manager import LogManager
    from pyclient.broker_embedded.log.partition_log import PartitionLog


NO_EPOCH: Final = -1
"""Stands for the leader epoch of a client that knows none (KIP-320)."""


class Partitions:
    """From a topic and a partition's number to the log that this node leads, or the error that a client is told."""

    def __init__(self, node_id: int, image: MetadataImage, logs: LogManager, defaults: LogConfig) -> None:
        self._node_id = node_id
        self._image = image
        self._logs = logs
        self.defaults = defaults
        logs.config_for = self.configure

    def leader(self, topic: str, index: int, epoch: int = NO_EPOCH) -> tuple[PartitionLog, int]:
        """The log and the leader epoch. `epoch` is what the client takes for it.

        Raises `UnknownTopicOrPartition`, `NotLeaderOrFollower` (also while the log is not open yet, see `log_waits`),
        `FencedLeaderEpoch`, `UnknownLeaderEpoch`, and what hinders the log's opening.
        """
        partition = self._image.partition(topic, index)
        if partition is None:
            raise errors.UnknownTopicOrPartition(f"there is no partition {topic}-{index}")
        if partition.leader != self._node_id:
            raise errors.NotLeaderOrFollower(f"broker {partition.leader} leads {topic}-{index}")
        if epoch != NO_EPOCH and epoch != partition.leader_epoch:
            _check_epoch(topic, partition, epoch)
        log = self._logs.find(topic, index)
        return (log if log is not None else self._create(topic, index)), partition.leader_epoch

    def existing(self, topic: str, index: int) -> PartitionLog | None:
        """The log, if anything was ever written or read there. It is opened, at once, for who has time."""
        return self._logs.get(topic, index)

    def size(self, topic: str, index: int) -> int:
        """Bytes of the log's batches; of one that is not open yet those of its files."""
        at = TopicPartition(topic, index)
        if at in self._logs.unopened:
            return self._logs.size_on_disk(at)
        log = self._logs.get(topic, index)
        return 0 if log is None else log.size

    def remove_strays(self) -> None:
        """Delete what is left of topics that the metadata does not know: a crash interrupted their deletion."""
        found: dict[str, bool] = {}
        for at, topic_id in self._logs.topic_ids():
            topic = self._image.topics.get(at.topic)
            known = topic is not None and topic_id in (topic.topic_id, None)
            found[at.topic] = known or found.get(at.topic, False)
        for name, known in found.items():
            if not known:
                self._logs.delete_topic(name)

    def configure(self, topic: str) -> LogConfig:
        """What the topic's options make of the broker's defaults.

        Options that are not served here (of tiered storage, of older releases) may be in a log that Kafka wrote.
        """
        own = {name: text for name, text in self._image.topic_configs(topic).items() if name in TOPIC_CONFIGS}
        return LogConfig.from_topic(own, self.defaults)

    def reconfigure(self, topic: str | None = None) -> None:
        """The options of a topic, or (None) the broker's defaults, have changed: tell the logs that are open."""
        self._logs.defaults = self.defaults
        for opened in self._logs.opened:
            if topic is None or opened.topic == topic:
                opened.config = self.configure(opened.topic)

    def _create(self, topic: str, index: int) -> PartitionLog:
        return self._logs.create(topic, self._image.topics[topic].topic_id, index, self.configure(topic))


def _check_epoch(topic: str, partition: PartitionImage, epoch: int) -> None:
    at = f"{topic}-{partition.partition}: leader epoch {epoch}, the broker's is {partition.leader_epoch}"
    if epoch < partition.leader_epoch:
        raise errors.FencedLeaderEpoch(at)
    raise errors.UnknownLeaderEpoch(at)
