"""Values of options and their sources: topic, broker or cluster at run time, static configuration, or default."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.controller.image import BROKER_RESOURCE
from pyclient.config.broker import BROKER_OPTIONS, OF_OLDER_RELEASES, SERVED_OPTIONS, SET_DYNAMICALLY
from pyclient.config.group import GROUP_OPTIONS, METRICS_OPTIONS
from pyclient.config.options import ConfigType, render
from pyclient.config.topic import TOPIC_OPTIONS, in_topic_unit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyclient.broker_embedded.config.broker_config import BrokerConfig
    from pyclient.broker_embedded.controller.image import MetadataImage
    from pyclient.config.options import Option

CLUSTER: Final = ""
"""The resource name of the options of all brokers."""

_HIDDEN: Final = "internal."  # Kafka does not list these options for tests either


class Source(IntEnum):
    """The source of an option's value; the numbers are those of DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_CLUSTER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    LOGGER = 6
    METRICS = 7
    GROUP = 8


Synonym = tuple[str, "str | None", Source]


@dataclass(frozen=True, slots=True)
class Entry:
    """One option with its value. `synonyms` are its possible (name, value, source), the effective one first.

    The value of a `sensitive` option is always None.
    """

    name: str
    value: str | None
    source: Source
    type: ConfigType
    doc: str
    synonyms: tuple[Synonym, ...]
    read_only: bool = False
    sensitive: bool = False


class Configs:
    """The options of brokers, topics, groups and client metrics, as in DescribeConfigs and CreateTopics responses.

    `config` has the options at the broker's start; options set later are in the image. `current` has both: it is
    another object after each change.
    """

    def __init__(self, config: BrokerConfig, image: MetadataImage) -> None:
        self.current = config
        self._config = config
        self._image = image

    def apply_changes(self) -> None:
        """Put the options that were set at run time for this broker into `current`."""
        self.current = self._config.with_dynamic(*(self._set_on(each) for each in self._layers))

    def is_of_this_broker(self, resource: str) -> bool:
        """Return True if the options of a broker resource apply to this broker."""
        return resource in self._layers

    def with_changes(self, resource: str, changes: Mapping[str, str | None]) -> BrokerConfig:
        """Return the configuration as it would be with these changes to a broker resource: this node's or another's.

        Another node's static options are not known here; they count as this node's.
        """
        layers_of = self._layers if resource in self._layers else (CLUSTER, resource)
        layers = {each: dict(self._set_on(each)) for each in layers_of}
        for name, value in changes.items():
            if value is None:
                layers[resource].pop(name, None)
            else:
                layers[resource][name] = value
        return self._config.with_dynamic(*layers.values())

    def of_broker(self) -> Iterator[Entry]:
        """Yield every option of this broker."""
        known = {name: option for name, option in BROKER_OPTIONS.items() if name not in OF_OLDER_RELEASES}
        for name, option in known.items():
            synonyms = tuple(self._broker_synonyms(name))
            source = synonyms[0][2] if synonyms else Source.DEFAULT
            if (name.startswith(_HIDDEN) or name in SET_DYNAMICALLY) and source is Source.DEFAULT:
                continue
            yield _entry(option, synonyms, read_only=not option.dynamic)
        for name in dict.fromkeys((*self._set_on(str(self._node_id)), *self._set_on(CLUSTER))):
            if name not in known:
                yield _unknown(name, tuple(self._dynamic_synonyms(name)))

    def of_cluster(self) -> Iterator[Entry]:
        """Yield the options set at run time for all brokers."""
        for name, value in self._set_on(CLUSTER).items():
            synonyms: tuple[Synonym, ...] = ((name, value, Source.DYNAMIC_CLUSTER),)
            option = None if name in OF_OLDER_RELEASES else BROKER_OPTIONS.get(name)
            yield _unknown(name, synonyms) if option is None else _entry(option, synonyms)

    def of_topic(self, own: Mapping[str, str]) -> Iterator[Entry]:
        """Yield every option of a topic; `own` are those set on the topic."""
        for name, option in TOPIC_OPTIONS.items():
            if name.startswith(_HIDDEN) and name not in own:
                continue
            synonyms = tuple(self._topic_synonyms(option, own))
            default = (name, render(option.default), Source.DEFAULT)
            effective = synonyms[0] if synonyms else default
            value = self._in_topic_unit(option, effective)
            yield Entry(name, value, effective[2], option.type, option.doc, synonyms)

    def of_group(self, own: Mapping[str, str]) -> Iterator[Entry]:
        """Yield every option of a group; `own` are those set on the group."""
        for name, option in GROUP_OPTIONS.items():
            explicit: tuple[Synonym, ...] = ((name, own[name], Source.GROUP),) if name in own else ()
            default: Synonym = (name, render(option.default), Source.DEFAULT)
            inherited = self._broker_synonyms(option.synonyms[0][0]) if option.synonyms else (default,)
            yield _entry(option, (*explicit, *inherited))

    def of_metrics(self, own: Mapping[str, str]) -> Iterator[Entry]:
        """Yield every option of client metrics; `own` are those set on the resource."""
        for name, option in METRICS_OPTIONS.items():
            yield _entry(option, ((name, own[name], Source.METRICS),) if name in own else ())

    @property
    def _node_id(self) -> int:
        return self._config.integer("node.id")

    @property
    def _layers(self) -> tuple[str, str]:
        """The broker resources whose options apply to this node; the last one overrides."""
        return CLUSTER, str(self._node_id)

    def _set_on(self, resource: str) -> Mapping[str, str]:
        return self._image.configs.get((BROKER_RESOURCE, resource), {})

    def _topic_synonyms(self, option: Option, own: Mapping[str, str]) -> Iterator[Synonym]:
        if option.name in own:
            yield option.name, own[option.name], Source.TOPIC
        for broker_name, _unit in option.synonyms:
            yield from self._dynamic_synonyms(broker_name)
            if broker_name in self._config.explicit:
                yield broker_name, self._config.explicit[broker_name], Source.STATIC_BROKER
        # as in Kafka, an option with several units has no default in the finest unit
        if len(option.synonyms) == 1 and SERVED_OPTIONS[option.synonyms[0][0]].default is not None:
            yield option.synonyms[0][0], render(option.default), Source.DEFAULT

    def _broker_synonyms(self, name: str) -> Iterator[Synonym]:
        yield from self._dynamic_synonyms(name)
        static = self._static(name)
        if static is not None:
            yield name, static, Source.STATIC_BROKER
        default = render(BROKER_OPTIONS[name].default)
        if default is not None and name not in SET_DYNAMICALLY:
            yield name, default, Source.DEFAULT

    def _static(self, name: str) -> str | None:
        """Return the value that a `server.properties` of this node would have."""
        config = self._config
        if name in config.explicit or name in config.ignored:
            return config.explicit.get(name, config.ignored.get(name))
        if name in ("node.id", "broker.id"):
            return str(self._node_id)
        if name in ("listeners", "advertised.listeners"):
            own = self._image.brokers.get(self._node_id)
            return None if own is None else ",".join(f"{each}://{host}:{port}" for each, host, port in own.endpoints)
        return {"log.dirs": ",".join(config.log_dirs), "process.roles": "broker,controller"}.get(name)

    def _dynamic_synonyms(self, name: str) -> Iterator[Synonym]:
        for resource, source in ((str(self._node_id), Source.DYNAMIC_BROKER), (CLUSTER, Source.DYNAMIC_CLUSTER)):
            value = self._set_on(resource).get(name)
            if value is not None:
                yield name, value, source

    @staticmethod
    def _in_topic_unit(option: Option, effective: Synonym) -> str | None:
        name, value, source = effective
        if value is None or source is Source.TOPIC:
            return value
        return in_topic_unit(value, dict(option.synonyms).get(name, 1))


def _entry(option: Option, synonyms: tuple[Synonym, ...], *, read_only: bool = False) -> Entry:
    """Return an option with its synonyms; without any it has its default."""
    visible = tuple((name, None, source) for name, _value, source in synonyms) if option.sensitive else synonyms
    value, source = visible[0][1:] if visible else (render(option.default), Source.DEFAULT)
    return Entry(option.name, value, source, option.type, option.doc, visible, read_only, option.sensitive)


def _unknown(name: str, synonyms: tuple[Synonym, ...]) -> Entry:
    """Return an option that was set but is not known to this broker; its value is hidden as it may be a secret."""
    hidden = tuple((name, None, source) for name, _value, source in synonyms)
    return Entry(name, None, synonyms[0][2], ConfigType.UNKNOWN, "", hidden, read_only=True, sensitive=True)
