"""Changes of the metadata, gathered while records are applied to an image, for the parts of a node that act on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyclient.broker_embedded.controller.image import TOPIC_RESOURCE
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from pyclient.broker_embedded.controller.image import MetadataImage, PartitionImage

_UNREGISTER, _TOPIC, _PARTITION, _CONFIG, _PARTITION_CHANGE, _REMOVE_TOPIC, _FEATURE = 1, 2, 3, 4, 5, 9, 12
_REGISTER_CONTROLLER, _CLEAR_ELR = 27, 28
_ID_OF_BROKER: Final = {0: "broker_id", _UNREGISTER: "broker_id", 7: "id", 8: "id", 17: "broker_id"}
"""Record types about a broker, and their field with its id."""


class MetadataDelta:
    """The changes that records make to `image`; `apply` applies them, and notes what they change.

    A topic that was created and deleted within the delta is not in it.
    """

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.created_topics: dict[UUID, str] = {}
        self.deleted_topics: dict[UUID, str] = {}
        self.partitions: dict[TopicPartition, tuple[PartitionImage | None, PartitionImage | None]] = {}
        """Each partition that changed as it was before and as it is now, None where it did not or does not exist."""
        self.brokers: set[int] = set()
        """The ids of brokers that were registered, changed, fenced, unfenced or unregistered."""
        self.controllers: set[int] = set()
        """The ids of controllers that were registered."""
        self.configs: set[tuple[int, str]] = set()
        """The type and name of each resource whose options changed."""
        self.features = False
        """True if a feature level changed."""

    def __repr__(self) -> str:
        return (
            f"<MetadataDelta created={list(self.created_topics.values())} "
            f"deleted={list(self.deleted_topics.values())} partitions={len(self.partitions)} "
            f"brokers={sorted(self.brokers)} configs={sorted(self.configs)}>"
        )

    def __bool__(self) -> bool:
        """Return True if anything changed."""
        topics = self.created_topics or self.deleted_topics or self.partitions
        return bool(topics or self.brokers or self.controllers or self.configs or self.features)

    @classmethod
    def between(cls, before: MetadataImage, image: MetadataImage) -> MetadataDelta:
        """Return what differs between an image as it was before and as it is now."""
        delta = cls(image)
        for topic_id, topic in before.topics_by_id.items():
            if topic_id not in image.topics_by_id:
                delta.deleted_topics[topic_id] = topic.name
        for topic_id, topic in image.topics_by_id.items():
            if topic_id not in before.topics_by_id:
                delta.created_topics[topic_id] = topic.name
        replaced = {name for name in delta.deleted_topics.values() if name in image.topics}
        for side in (before, image):
            for topic in side.topics.values():
                for index in topic.partitions:
                    was, now = before.partition(topic.name, index), image.partition(topic.name, index)
                    if was != now or topic.name in replaced:
                        delta.partitions[TopicPartition(topic.name, index)] = was, now
        delta.brokers = {
            node for node in before.brokers | image.brokers if _differ(before.brokers, image.brokers, node)
        }
        nodes = before.controllers | image.controllers
        delta.controllers = {node for node in nodes if _differ(before.controllers, image.controllers, node)}
        delta.configs = {
            each for each in before.configs | image.configs if _differ(before.configs, image.configs, each)
        }
        delta.features = before.features != image.features
        return delta

    def apply(self, record: Any) -> None:
        """Apply a record to the image and note what it changes."""
        kind = record.api_key
        image = self.image
        if kind in (_PARTITION, _PARTITION_CHANGE):
            topic = image.topics_by_id[record.topic_id]
            before = topic.partitions.get(record.partition_id)
            image.apply(record)
            self._changed(TopicPartition(topic.name, record.partition_id), before)
            return
        if kind == _REMOVE_TOPIC:
            topic = image.topics_by_id[record.topic_id]
            if image.topic_configs(topic.name):
                self.configs.add((TOPIC_RESOURCE, topic.name))
            image.apply(record)
            for index, partition in topic.partitions.items():
                self._changed(TopicPartition(topic.name, index), partition)
            if self.created_topics.pop(record.topic_id, None) is None:
                self.deleted_topics[record.topic_id] = topic.name
            return
        if kind == _CLEAR_ELR:
            self._clear_elr(record)
            return
        image.apply(record)
        if kind == _TOPIC:
            self.created_topics[record.topic_id] = record.name
        elif kind == _CONFIG:
            self.configs.add((record.resource_type, record.resource_name))
        elif kind == _REGISTER_CONTROLLER:
            self.controllers.add(record.controller_id)
        elif kind == _FEATURE:
            self.features = True
        elif kind in _ID_OF_BROKER:
            self.brokers.add(getattr(record, _ID_OF_BROKER[kind]))

    def _clear_elr(self, record: Any) -> None:
        before = {
            TopicPartition(topic.name, index): partition
            for topic in self.image.topics.values()
            for index, partition in topic.partitions.items()
            if record.topic_name in ("", topic.name)
        }
        self.image.apply(record)
        for topic_partition, partition in before.items():
            if self.image.partition(*topic_partition) is not partition:
                self._changed(topic_partition, partition)

    def _changed(self, topic_partition: TopicPartition, before: PartitionImage | None) -> None:
        """Note a partition that was `before`, unless an earlier record of the delta has changed it already."""
        if topic_partition in self.partitions:
            before = self.partitions[topic_partition][0]
        after = self.image.partition(*topic_partition)
        if before is None and after is None:
            self.partitions.pop(topic_partition, None)
        else:
            self.partitions[topic_partition] = before, after


def _differ(before: Mapping[Any, Any], now: Mapping[Any, Any], key: Any) -> bool:
    return bool(before.get(key) != now.get(key))
