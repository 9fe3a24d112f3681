"""Changing options at run time: what a request makes of those that are set, and whether that is allowed. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from pyclient import errors
from pyclient.broker_embedded.broker_settings import BROKER_SETTINGS, DYNAMIC
from pyclient.broker_embedded.group_settings import (
    GROUP_OPTIONS,
    METRICS_OPTIONS,
    OWN_OPTIONS,
    broker_setting,
    group_setting,
    limits_of,
)
from pyclient.broker_embedded.log.config import TOPIC_CONFIGS, LogConfig, check_asked
from pyclient.broker_embedded.settings import INT, INT_MAX, LIST, Setting, SettingType, Value, nearest
from pyclient.broker_embedded.settings_refused import refusal
from pyclient.broker_embedded.settings_without_effect import OF_OLDER_RELEASES, WITHOUT_EFFECT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_COUNT: Final = re.compile(r"[0-9]{1,10}", re.ASCII)

Changes = dict[str, "str | None"]
"""The new value of each option that changes; None removes it."""


_FIXED: Final = frozenset({"log.dir", "log.dirs"})
"""Options of a broker that are given in other ways than as options of ours, and that no running broker changes."""


CORDONED: Final = "cordoned.log.dirs"
_PER_BROKER: Final = frozenset({CORDONED})
_NUMBER: Final = re.compile("[+-]?[0-9]{1,10}")


class Operation(IntEnum):
    """What IncrementalAlterConfigs may do to an option."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class Alteration:
    """One option of an IncrementalAlterConfigs request, its operation still a number."""

    name: str
    operation: int
    value: str | None


def incremental(
    alterations: Sequence[Alteration],
    current: Mapping[str, str],
    type_of: Callable[[str], SettingType | None],
    default_of: Callable[[str], str | None],
) -> Changes:
    """What the operations change in `current`. `default_of` is what a list grows from that is not set.

    Raises `InvalidRequest` for an operation, a missing value or a name given twice, `InvalidConfig` for one that needs
    a list.
    """
    _check_names([each.name for each in alterations])
    changes: Changes = {}
    for each in alterations:
        try:
            operation = Operation(each.operation)
        except ValueError:
            raise errors.InvalidRequest(f"{each.name}: there is no operation {each.operation}") from None
        if operation is Operation.DELETE:
            changes[each.name] = None
            continue
        if each.value is None:
            raise errors.InvalidRequest(f"{each.name}: {operation.name} needs a value, this one is null")
        if operation is Operation.SET:
            changes[each.name] = each.value
            continue
        if type_of(each.name) is not LIST:
            raise errors.InvalidConfig(f"{each.name}: {operation.name} is for lists, which this option is not")
        before = _items(current.get(each.name) or default_of(each.name) or "")
        given = _items(each.value)
        if operation is Operation.APPEND:
            if not given:
                raise errors.InvalidConfig(f"{each.name}: APPEND needs something to append")
            after = [*before, *(item for item in given if item not in before)]
        else:
            after = [item for item in before if item not in given]
        changes[each.name] = ",".join(after)
    return _real(changes, current)


def replaced(given: Sequence[tuple[str, str | None]], current: Mapping[str, str]) -> Changes:
    """What AlterConfigs changes: what is not given goes. Raises `InvalidRequest`."""
    _check_names([name for name, _value in given])
    changes: Changes = dict.fromkeys(current)
    for name, value in given:
        if value is None:
            raise errors.InvalidRequest(f"{name}: an option needs a value, this one is null")
        changes[name] = value
    return _real(changes, current)


def check_topic(changes: Changes, current: Mapping[str, str], defaults: LogConfig) -> None:
    """Raise `InvalidConfig` unless a topic that has `current` may be changed so.

    What it has already may be unknown here: a log that Kafka wrote may say so.
    """
    check_asked({name: value for name, value in changes.items() if value is not None})
    result = {**current, **changes}
    LogConfig.from_topic(
        {name: value for name, value in result.items() if value is not None and name in TOPIC_CONFIGS}, defaults
    )


def check_broker(changes: Changes, check_cordoned: Callable[[str], object], *, of_all: bool) -> None:
    """Raise `InvalidRequest`, with Kafka's words, unless these options of a broker may be changed while it runs.

    `of_all`: they are changed for all brokers. `check_cordoned` raises `ConfigError` for a cordoned.log.dirs.
    """
    settings = {name: setting for name in changes if (setting := _of_broker(name)) is not None}
    fixed = [name for name in changes if name in _FIXED or (name in settings and not settings[name].dynamic)]
    if fixed:
        raise errors.InvalidRequest(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    own = [name for name in changes if name in _PER_BROKER]
    if own and of_all:
        raise errors.InvalidRequest(
            f"Cannot update these configs at default cluster level, broker id must be specified: [{', '.join(own)}]"
        )
    for name, value in changes.items():
        reason = refusal(name)
        if reason is not None:
            raise errors.InvalidRequest(f"{name}: not supported by the embedded broker: {reason}")
        if value is not None and name in settings:
            try:
                settings[name].parse(value)
                if name in DYNAMIC:
                    LogConfig.from_broker({name: value})  # a level of compression has gaps in its range
                if name == CORDONED:
                    check_cordoned(value)
            except (ValueError, errors.InvalidConfig, errors.ConfigError) as error:
                raise errors.InvalidRequest(str(error)) from None


def check_limits_of_connections(changes: Changes, result: Mapping[str, Value]) -> None:
    """Raise `InvalidRequest`, with Kafka's words, for limits that no client could connect under.

    `result` has the values of all options after the changes.
    """
    most = changes.get("max.connections")
    if most is not None and not BROKER_SETTINGS["max.connections"].parse(most):
        raise errors.InvalidRequest(
            "Invalid value org.apache.kafka.common.config.ConfigException: Invalid max.connections 0 for configuration "
            "Invalid dynamic configuration"
        )
    overrides = str(result["max.connections.per.ip.overrides"] or "")
    of_address = changes.get("max.connections.per.ip")
    if of_address is not None and not overrides and not BROKER_SETTINGS["max.connections.per.ip"].parse(of_address):
        raise errors.InvalidRequest(
            "requirement failed: max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides "
            "property is set."
        )
    for override in filter(None, overrides.split(",")) if "max.connections.per.ip.overrides" in changes else ():
        address, separator, count = override.strip().rpartition(":")
        if not separator or not address or not _COUNT.fullmatch(count) or int(count) > INT_MAX:
            raise errors.InvalidRequest(
                f"Error parsing configuration property 'max.connections.per.ip.overrides': {override:.100}"
            )


def _of_broker(name: str) -> Setting | None:
    """An option that Kafka knows, too. Others are kept for whoever may know them."""
    setting = BROKER_SETTINGS.get(name) or WITHOUT_EFFECT.get(name)
    return None if name in OF_OLDER_RELEASES else setting


def check_group(result: Mapping[str, str], limit_of: Callable[[str], int]) -> None:
    """Raise `InvalidConfig` unless a group may have these options; `limit_of` tells the broker's."""
    for name, text in result.items():
        setting = group_setting(name)
        if setting is None:
            raise errors.InvalidConfig(f"{name}: unknown group option{nearest(name, (*GROUP_OPTIONS, *OWN_OPTIONS))}")
        value = _parsed(name, setting, text)
        if name not in GROUP_OPTIONS:
            continue
        for bound, is_low in zip(limits_of(name), (True, False), strict=True):
            if bound is None or not isinstance(value, int):
                continue
            limit = limit_of(bound) if bound in BROKER_SETTINGS else broker_setting(bound).default
            assert isinstance(limit, int)
            if (value < limit) if is_low else (value > limit):
                raise errors.InvalidConfig(f"{name} is {text}: {bound} is {limit}")


def check_metrics(result: Mapping[str, str]) -> None:
    """Raise `InvalidRequest`, with Kafka's words, unless client metrics may have these options (KIP-714).

    Raise `InvalidConfig` for a pattern or a number that is none.
    """
    for name, text in result.items():
        setting = METRICS_OPTIONS.get(name)
        if setting is None:
            raise errors.InvalidRequest(f"Unknown client metrics configuration: {name}")
        if setting.type is INT and not _NUMBER.fullmatch(text.strip()):
            raise errors.InvalidConfig(f"Invalid value {text} for configuration {name}: Not a number of type INT")
        try:
            setting.parse(text)
        except ValueError:
            if name == "match":
                raise errors.InvalidConfig(f"Illegal client matching pattern: {text}") from None
            raise errors.InvalidRequest(
                f"Invalid value {text} for {name}, interval must be between 100 and 3600000 (1 hour)"
            ) from None
        for pattern in text.split(",") if name == "match" else ():
            try:
                re.compile(pattern.partition("=")[2])
            except re.error:
                raise errors.InvalidConfig(f"Illegal client matching pattern: {pattern}") from None


def _parsed(name: str, setting: Setting, text: str) -> Value:
    try:
        return setting.parse(text)
    except ValueError as error:
        raise errors.InvalidConfig(f"{name}: {error}") from None


def group_type(name: str) -> SettingType | None:
    """The type of a group's option, None if there is no such option."""
    setting = group_setting(name)
    return None if setting is None else setting.type


def metrics_type(_name: str) -> SettingType | None:
    """None: the options of client metrics are set as a whole; Kafka neither adds to their lists nor takes from them."""
    return None


def topic_type(name: str) -> SettingType | None:
    """The type of a topic's option, None if there is no such option."""
    key = TOPIC_CONFIGS.get(name)
    return None if key is None else SettingType[key.type.upper()]


def broker_type(name: str) -> SettingType | None:
    """The type of a broker's option, None if this broker does not know it."""
    setting = BROKER_SETTINGS.get(name) or WITHOUT_EFFECT.get(name)
    return None if setting is None else setting.type


def _check_names(names: Sequence[str]) -> None:
    if len(set(names)) != len(names):
        raise errors.InvalidRequest("an option is named more than once for one resource")


def _items(text: str) -> list[str]:
    return [item for item in (part.strip() for part in text.split(",")) if item]


def _real(changes: Changes, current: Mapping[str, str]) -> Changes:
    """Without what is so already."""
    return {name: value for name, value in changes.items() if current.get(name) != value}
