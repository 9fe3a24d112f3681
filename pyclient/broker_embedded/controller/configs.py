"""What an option is worth and who set it: the topic, this broker or the cluster at run time, a file, or Kafka."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.broker_settings import BROKER_SETTINGS, DYNAMIC, GROUP_OPTIONS
from pyclient.broker_embedded.controller.image import BROKER_RESOURCE
from pyclient.broker_embedded.log.config import TOPIC_CONFIGS
from pyclient.broker_embedded.settings import SettingType, render
from pyclient.broker_embedded.settings_without_effect import WITHOUT_EFFECT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyclient.broker_embedded.config import BrokerConfig
    from pyclient.broker_embedded.controller.image import MetadataImage
    from pyclient.broker_embedded.log.config import ConfigKey

CLUSTER: Final = ""
"""The resource name of the options that are set for all brokers."""

_HIDDEN: Final = "internal."  # options for tests, which Kafka does not list either


class Source(IntEnum):
    """Who set an option; the numbers are those of DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_CLUSTER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


Synonym = tuple[str, "str | None", Source]


@dataclass(frozen=True, slots=True)
class Entry:
    """One option with its value. `synonyms` are the (name, value, source) it may come from, the winner first.

    The value of a `sensitive` one is never told: it is None here.
    """

    name: str
    value: str | None
    source: Source
    type: SettingType
    doc: str
    synonyms: tuple[Synonym, ...]
    read_only: bool = False
    sensitive: bool = False


class Configs:
    """The options of a broker and of its topics, as DescribeConfigs and CreateTopics tell them.

    `config` is what the broker was started with; what was set later is in the image.
    """

    def __init__(self, config: BrokerConfig, image: MetadataImage) -> None:
        self._config = config
        self._image = image

    def of_broker(self) -> Iterator[Entry]:
        """Every option of this broker."""
        for name, setting in BROKER_SETTINGS.items():
            synonyms = tuple(self._broker_synonyms(name))
            source = synonyms[0][2] if synonyms else Source.DEFAULT
            if name.startswith(_HIDDEN) and source is Source.DEFAULT:
                continue
            value = synonyms[0][1] if synonyms else render(self._config.values[name])
            yield Entry(name, value, source, setting.type, setting.doc, synonyms, read_only=name not in DYNAMIC)
        for name in dict.fromkeys((*self._set_on(str(self._node_id)), *self._set_on(CLUSTER))):
            if name not in BROKER_SETTINGS:
                yield _foreign(name, tuple(self._dynamic_synonyms(name)))

    def of_cluster(self) -> Iterator[Entry]:
        """The options that were set at run time for all brokers."""
        for name, value in self._set_on(CLUSTER).items():
            synonyms: tuple[Synonym, ...] = ((name, value, Source.DYNAMIC_CLUSTER),)
            setting = BROKER_SETTINGS.get(name)
            if setting is None:
                yield _foreign(name, synonyms)
            else:
                yield Entry(name, value, Source.DYNAMIC_CLUSTER, setting.type, setting.doc, synonyms)

    def of_topic(self, own: Mapping[str, str]) -> Iterator[Entry]:
        """Every option of a topic that sets `own`."""
        for name, key in TOPIC_CONFIGS.items():
            if name.startswith(_HIDDEN) and name not in own:
                continue
            synonyms = tuple(self._topic_synonyms(name, key, own))
            default = (name, key.render(key.default), Source.DEFAULT)
            winner = synonyms[0] if synonyms else default
            value = self._in_topic_unit(key, winner)
            yield Entry(name, value, winner[2], SettingType[key.type.upper()], key.doc, synonyms)

    def of_group(self, own: Mapping[str, str]) -> Iterator[Entry]:
        """Every option of a consumer group that sets `own`."""
        for name, broker_name in GROUP_OPTIONS.items():
            set_here: tuple[Synonym, ...] = ((name, own[name], Source.GROUP),) if name in own else ()
            synonyms = (*set_here, *self._broker_synonyms(broker_name))
            setting = BROKER_SETTINGS[broker_name]
            yield Entry(name, synonyms[0][1], synonyms[0][2], setting.type, setting.doc, synonyms)

    @property
    def _node_id(self) -> int:
        return self._config.integer("node.id")

    def _set_on(self, resource: str) -> Mapping[str, str]:
        return self._image.configs.get((BROKER_RESOURCE, resource), {})

    def _topic_synonyms(self, name: str, key: ConfigKey, own: Mapping[str, str]) -> Iterator[Synonym]:
        if name in own:
            yield name, own[name], Source.TOPIC
        for broker_name, _unit in key.broker_names:
            yield from self._dynamic_synonyms(broker_name)
            if broker_name in self._config.explicit:
                yield broker_name, self._config.explicit[broker_name], Source.STATIC_BROKER
        if len(key.broker_names) == 1:  # one that comes in several units has no default in its finest, as in Kafka
            yield key.broker_names[0][0], key.render(key.default), Source.DEFAULT

    def _broker_synonyms(self, name: str) -> Iterator[Synonym]:
        yield from self._dynamic_synonyms(name)
        if name in self._config.explicit:
            yield name, self._config.explicit[name], Source.STATIC_BROKER
        default = render(BROKER_SETTINGS[name].default)
        if default is not None:
            yield name, default, Source.DEFAULT

    def _dynamic_synonyms(self, name: str) -> Iterator[Synonym]:
        for resource, source in ((str(self._node_id), Source.DYNAMIC_BROKER), (CLUSTER, Source.DYNAMIC_CLUSTER)):
            value = self._set_on(resource).get(name)
            if value is not None:
                yield name, value, source

    @staticmethod
    def _in_topic_unit(key: ConfigKey, winner: Synonym) -> str | None:
        name, value, source = winner
        if value is None or source is Source.TOPIC:
            return value
        return key.scaled(value, dict(key.broker_names).get(name, 1))


def _foreign(name: str, synonyms: tuple[Synonym, ...]) -> Entry:
    """An option that somebody set and that does nothing here; it is hidden where it may be a secret."""
    _name, value, source = synonyms[0]
    setting = WITHOUT_EFFECT.get(name)
    if setting is not None:
        return Entry(name, value, source, setting.type, setting.doc, synonyms)
    hidden = tuple((name, None, source) for name, _value, source in synonyms)
    return Entry(name, None, source, SettingType.UNKNOWN, "", hidden, read_only=True, sensitive=True)
