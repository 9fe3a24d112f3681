"""The options of topics that elections depend on, from the image and the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.controller.image import BROKER_RESOURCE
from pyclient.config.topic import TOPIC_OPTIONS

if TYPE_CHECKING:
    from pyclient.broker_embedded.config.broker_config import BrokerConfig
    from pyclient.broker_embedded.controller.image import MetadataImage
    from pyclient.config.options import Value

_ALL_BROKERS: Final = ""


class ImageTopicOptions:
    """Options as they are set on a topic, else on all brokers, else in this node's configuration."""

    def __init__(self, image: MetadataImage, config: BrokerConfig) -> None:
        self._image = image
        self._config = config

    def min_insync_replicas(self, topic: str) -> int:
        """Return min.insync.replicas of a topic."""
        value = self._value(topic, "min.insync.replicas")
        assert isinstance(value, int)
        return value

    def unclean_leader_election(self, topic: str) -> bool:
        """Return unclean.leader.election.enable of a topic."""
        return self._value(topic, "unclean.leader.election.enable") is True

    def _value(self, topic: str, name: str) -> Value:
        text = self._image.topic_configs(topic).get(name)
        if text is None:
            text = self._image.configs.get((BROKER_RESOURCE, _ALL_BROKERS), {}).get(name)
        return self._config.values[name] if text is None else TOPIC_OPTIONS[name].parse(text)
