"""The group coordinator's runtime on a broker: time, timers, and the partitions of `__consumer_offsets`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.controller.image import GROUP_RESOURCE
from pyclient.broker_embedded.controller.topics import OFFSETS_TOPIC
from pyclient.broker_embedded.groups.config import GroupConfig
from pyclient.broker_embedded.groups.consumer.topics import TopicInfo
from pyclient.broker_embedded.groups.coordinator_runtime import StoredRecord, TransactionEnd
from pyclient.broker_embedded.log.end_transaction_marker import read_marker
from pyclient.errors import KafkaStorageError
from pyclient.records import check_crc, decode_key_values, iter_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from random import Random
    from uuid import UUID

    from pyclient.broker_embedded.config.broker_config import BrokerConfig
    from pyclient.broker_embedded.controller.image import MetadataImage
    from pyclient.broker_embedded.groups.consumer.topics import Topics
    from pyclient.broker_embedded.scheduling.timers import Timer
    from pyclient.broker_embedded.services import BrokerServices
    from pyclient.clock import Clock

_READ_BYTES: Final = 4 << 20


class ImageTopics:
    """The topics of a metadata image for consumer groups."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    @property
    def version(self) -> int:
        """Return the image's version, which rises with every change of the metadata."""
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


def _group_config(config: BrokerConfig) -> GroupConfig:
    return GroupConfig.from_mapping(
        {name: value for name, value in config.values.items() if isinstance(value, (str, int))}
    )


class BrokerRuntime:
    """The `CoordinatorRuntime` of a broker."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services
        self._broker_config = services.configs.current
        self._config = _group_config(services.configs.current)
        topic = services.image.topics.get(OFFSETS_TOPIC)
        self._offsets_topic_id = None if topic is None else topic.topic_id
        self._offsets_partitions = 0 if topic is None else len(topic.partitions)

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
            self._config = _group_config(self._broker_config)
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
        """Return the number of partitions of `__consumer_offsets`, 0 if the topic does not exist.

        It is the number that the topic had when it was created or the node started: groups do not move to partitions
        that are added later, as in Kafka. (Kafka also keeps offsets.topic.num.partitions until its next start if the
        topic is created with another number, and most groups have no coordinator until then.)
        """
        topic = self._services.image.topics.get(OFFSETS_TOPIC)
        if topic is None:
            return 0
        if topic.topic_id != self._offsets_topic_id:
            self._offsets_topic_id, self._offsets_partitions = topic.topic_id, len(topic.partitions)
        return self._offsets_partitions

    def append(self, partition: int, batch: bytes) -> None:
        """Append a batch to the log of a partition."""
        log, epoch = self._services.partitions.leader(OFFSETS_TOPIC, partition)
        hosted = self._services.partitions.hosted(OFFSETS_TOPIC, partition)
        if hosted is not None:
            hosted.partition.check_min_isr()
        log.append(batch, leader_epoch=epoch, now_ms=self._services.clock.time_ms(), origin="coordinator")

    def read_partition(self, partition: int) -> Iterator[StoredRecord | TransactionEnd]:
        """Yield every record and every end of a transaction; nothing if the partition was never written."""
        log = self._services.partitions.existing(OFFSETS_TOPIC, partition)
        offset = 0 if log is None else log.start_offset
        while log is not None and offset < log.end_offset:
            buffer = log.read_bytes(offset, _READ_BYTES)
            if not buffer:  # the file is shorter than the log
                raise KafkaStorageError(f"{log!r} cannot be read at offset {offset}")
            for position, header in iter_batches(buffer):
                check_crc(buffer, position, header)
                offset = header.next_offset
                if header.is_control:
                    batch = buffer[position : position + header.size]
                    marker = read_marker(batch, header) if header.count else None
                    if marker is not None:
                        yield TransactionEnd(header.producer_id, marker.commit)
                    continue
                producer_id = header.producer_id if header.is_transactional else -1
                for _offset, _timestamp, key, value in decode_key_values(buffer, position, header):
                    yield StoredRecord(key, value, producer_id)
