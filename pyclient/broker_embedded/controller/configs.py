"""What an option is worth and who set it: the topic, the broker's configuration, or Kafka's default."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.broker_settings import BROKER_SETTINGS
from pyclient.broker_embedded.log.config import TOPIC_CONFIGS
from pyclient.broker_embedded.settings import SettingType, render

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyclient.broker_embedded.config import BrokerConfig
    from pyclient.broker_embedded.log.config import ConfigKey

_HIDDEN: Final = "internal."  # options for tests, which Kafka does not list either


class Source(IntEnum):
    """Who set an option; the numbers are those of DescribeConfigs."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True)
class Entry:
    """One option with its value. `synonyms` are the (name, value, source) it may come from, the winner first."""

    name: str
    value: str | None
    source: Source
    type: SettingType
    doc: str
    synonyms: tuple[tuple[str, str | None, Source], ...]


class Configs:
    """The options of a broker and of its topics, as DescribeConfigs and CreateTopics tell them."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config

    def of_broker(self) -> Iterator[Entry]:
        """Every option of this broker."""
        for name, setting in BROKER_SETTINGS.items():
            if name.startswith(_HIDDEN) and name not in self._config.explicit:
                continue
            synonyms = tuple(self._broker_synonyms(name))
            value = render(self._config.values[name])
            source = synonyms[0][2] if synonyms else Source.DEFAULT
            yield Entry(name, value, source, setting.type, setting.doc, synonyms)

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

    def _topic_synonyms(
        self, name: str, key: ConfigKey, own: Mapping[str, str]
    ) -> Iterator[tuple[str, str | None, Source]]:
        if name in own:
            yield name, own[name], Source.TOPIC
        for broker_name, _unit in key.broker_names:
            if broker_name in self._config.explicit:
                yield broker_name, self._config.explicit[broker_name], Source.STATIC_BROKER
        if len(key.broker_names) == 1:  # one that comes in several units has no default in its finest, as in Kafka
            yield key.broker_names[0][0], key.render(key.default), Source.DEFAULT

    def _broker_synonyms(self, name: str) -> Iterator[tuple[str, str | None, Source]]:
        if name in self._config.explicit:
            yield name, self._config.explicit[name], Source.STATIC_BROKER
        default = render(BROKER_SETTINGS[name].default)
        if default is not None:
            yield name, default, Source.DEFAULT

    @staticmethod
    def _in_topic_unit(key: ConfigKey, winner: tuple[str, str | None, Source]) -> str | None:
        name, value, source = winner
        if value is None or source is Source.TOPIC:
            return value
        return key.scaled(value, dict(key.broker_names).get(name, 1))
