"""The group coordinator's runtime on a broker: time, timers, and the partitions of `__consumer_offsets`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pyclient.broker_embedded.controller.coordinator_topic import CoordinatorServices, CoordinatorTopic
from pyclient.broker_embedded.controller.image import GROUP_RESOURCE
from pyclient.broker_embedded.controller.topics import OFFSETS_TOPIC
from pyclient.broker_embedded.groups.config import GroupConfig
from pyclient.broker_embedded.groups.consumer.topics import TopicInfo
from pyclient.broker_embedded.groups.coordinator_runtime import StoredRecord, TransactionEnd
from pyclient.broker_embedded.log.end_transaction_marker import read_marker
from pyclient.records import decode_key_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from random import Random
    from uuid import UUID

    from pyclient.broker_embedded.controller.configs import Configs
    from pyclient.broker_embedded.controller.image import MetadataImage
    from pyclient.broker_embedded.groups.consumer.topics import Topics
    from pyclient.broker_embedded.scheduling.timers import Timer, Timers
    from pyclient.clock import Clock, Rng


class ImageTopics:
    """The topics of a metadata image for consumer groups."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    @property
    def version(self) -> int:
        """Return the image's version, which rises at least with every change of the metadata."""
        return self._image.version

    def find(self, name: str) -> TopicInfo | None:
        """Return the topic with a name; None if it does not exist."""
        topic = self._image.topics.get(name)
        return None if topic is None else TopicInfo(topic.topic_id, len(topic.partitions))

    def name_of(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with an id; None if it does not exist."""
        topic = self._image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def names(self) -> Iterator[str]:
        """Return all topics, also internal ones: Kafka matches patterns against them, too."""
        return iter(self._image.topics)


class GroupServices(CoordinatorServices, Protocol):
    """The services of a node that the group coordinator takes."""

    @property
    def configs(self) -> Configs:
        """The options of the node."""

    @property
    def rng(self) -> Rng:
        """The node's random generator."""

    @property
    def timers(self) -> Timers:
        """The node's timers."""


class BrokerRuntime:
    """The `CoordinatorRuntime` of a broker."""

    def __init__(self, services: GroupServices) -> None:
        self._services = services
        self._broker_config = services.configs.current
        self._config = GroupConfig.of(services.configs.current)
        self._topic = CoordinatorTopic(OFFSETS_TOPIC, services)

    @property
    def clock(self) -> Clock:
        """Return the node's clock."""
        return self._services.clock

    @property
    def rng(self) -> Random:
        """Return the node's random generator."""
        return self._services.rng

    @property
    def group_config(self) -> GroupConfig:
        """Return the coordinator's options, with dynamic changes."""
        if self._broker_config is not self._services.configs.current:  # an option was set at run time
            self._broker_config = self._services.configs.current
            self._config = GroupConfig.of(self._broker_config)
        return self._config

    @property
    def topics(self) -> Topics:
        """Return the topics of the cluster."""
        return ImageTopics(self._services.image)

    def group_options(self, group_id: str) -> Mapping[str, str]:
        """Return the options that are set on the group."""
        return self._services.image.configs.get((GROUP_RESOURCE, group_id), {})

    def schedule(self, delay: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` in `delay` seconds."""
        return self._services.timers.schedule(delay, callback)

    def partition_count(self) -> int:
        """Return the number of partitions of `__consumer_offsets`, 0 if the topic does not exist."""
        return self._topic.partition_count()

    def append(self, partition: int, batch: bytes) -> None:
        """Append a batch to the log of a partition."""
        self._topic.append(partition, batch)

    def read_partition(self, partition: int) -> Iterator[StoredRecord | TransactionEnd]:
        """Yield every record and every end of a transaction; nothing if the partition was never written."""
        for buffer, position, header in self._topic.batches(partition):
            if header.is_control:
                marker = read_marker(buffer[position : position + header.size], header) if header.count else None
                if marker is not None:
                    yield TransactionEnd(header.producer_id, marker.commit)
                continue
            producer_id = header.producer_id if header.is_transactional else -1
            for _offset, _timestamp, key, value in decode_key_values(buffer, position, header):
                yield StoredRecord(key, value, producer_id)
