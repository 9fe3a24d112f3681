"""Changes of options at run time: compute them from a request, and validate them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from pyclient import errors
from pyclient.broker_embedded.log.config import LogConfig, check_asked
from pyclient.config.broker import BROKER_OPTIONS, OF_OLDER_RELEASES, refusal
from pyclient.config.broker_security import FIXED as SECURITY
from pyclient.config.broker_security import own_option
from pyclient.config.group import GROUP_OPTIONS, METRICS_OPTIONS, limits_of
from pyclient.config.options import INT, INT_MAX, LIST, REFUSED, SERVED, ConfigType, Option, Value, nearest
from pyclient.config.topic import TOPIC_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_COUNT: Final = re.compile(r"[0-9]{1,10}", re.ASCII)

Changes = dict[str, "str | None"]
"""The new value of each option that changes; None removes it."""


_FIXED: Final = frozenset({"log.dir", "log.dirs"})
"""Broker options that this broker gets in other ways, and that cannot change while it runs."""


CORDONED: Final = "cordoned.log.dirs"
_PER_BROKER: Final = frozenset({CORDONED})
_NUMBER: Final = re.compile("[+-]?[0-9]{1,10}")


class Operation(IntEnum):
    """The operations of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class Alteration:
    """One option of an IncrementalAlterConfigs request, with the operation's number."""

    name: str
    operation: int
    value: str | None


def incremental(
    alterations: Sequence[Alteration],
    current: Mapping[str, str],
    type_of: Callable[[str], ConfigType | None],
    default_of: Callable[[str], str | None],
) -> Changes:
    """Return the changes of the operations to `current`; a list that is not set starts from `default_of`.

    Raise `InvalidRequest` for an unknown operation, a missing value or a duplicate name, `InvalidConfig` for a list
    operation on another type.
    """
    _check_names([each.name for each in alterations])
    changes: Changes = {}
    for each in alterations:
        try:
            operation = Operation(each.operation)
        except ValueError:
            raise errors.InvalidRequest(f"{each.name}: unknown operation {each.operation}") from None
        if operation is Operation.DELETE:
            changes[each.name] = None
            continue
        if each.value is None:
            raise errors.InvalidRequest(f"{each.name}: {operation.name} requires a value, got null")
        if operation is Operation.SET:
            changes[each.name] = each.value
            continue
        if type_of(each.name) is not LIST:
            raise errors.InvalidConfig(f"{each.name}: {operation.name} requires an option of type list")
        old = _items(current.get(each.name) or default_of(each.name) or "")
        given = _items(each.value)
        if operation is Operation.APPEND:
            if not given:
                raise errors.InvalidConfig(f"{each.name}: APPEND requires at least one item")
            new = [*old, *(item for item in given if item not in old)]
        else:
            new = [item for item in old if item not in given]
        changes[each.name] = ",".join(new)
    return _without_unchanged(changes, current)


def replaced(given: Sequence[tuple[str, str | None]], current: Mapping[str, str]) -> Changes:
    """Return the changes of AlterConfigs, which removes options that are not given. Raise `InvalidRequest`."""
    _check_names([name for name, _value in given])
    changes: Changes = dict.fromkeys(current)
    for name, value in given:
        if value is None:
            raise errors.InvalidRequest(f"{name}: an option requires a value, got null")
        changes[name] = value
    return _without_unchanged(changes, current)


def check_topic(changes: Changes, current: Mapping[str, str], defaults: LogConfig) -> None:
    """Raise `InvalidConfig` unless the changes are valid for a topic with the options `current`.

    Unknown options in `current` are accepted: the metadata log may have been written by Kafka.
    """
    check_asked({name: value for name, value in changes.items() if value is not None})
    result = {**current, **changes}
    LogConfig.from_topic(
        {name: value for name, value in result.items() if value is not None and name in TOPIC_OPTIONS}, defaults
    )


def check_broker(changes: Changes, check_cordoned: Callable[[str], object], *, of_all: bool) -> None:
    """Raise `InvalidRequest`, with Kafka's message, unless these broker options may change at run time.

    With `of_all` they change for all brokers. `check_cordoned` raises `ConfigError` for an invalid cordoned.log.dirs.
    """
    checked = {name: option for name in changes if (option := _checked(name)) is not None}
    fixed = [name for name in changes if _is_fixed(name) or (name in checked and not checked[name].dynamic)]
    if fixed:
        raise errors.InvalidRequest(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    local = [name for name in changes if name in _PER_BROKER]
    if local and of_all:
        raise errors.InvalidRequest(
            f"Cannot update these configs at default cluster level, broker id must be specified: [{', '.join(local)}]"
        )
    for name, value in changes.items():
        reason = refusal(name)
        if reason is not None:
            raise errors.InvalidRequest(f"{name}: not supported by the embedded broker: {reason}")
        if value is not None and name in checked:
            try:
                checked[name].parse(value)
                if name == CORDONED:
                    check_cordoned(value)
            except (ValueError, errors.ConfigError) as error:
                raise errors.InvalidRequest(str(error)) from None


def _is_fixed(name: str) -> bool:
    return name in _FIXED or name in SECURITY or own_option(name) is not None


def check_limits_of_connections(changes: Changes, result: Mapping[str, Value]) -> None:
    """Raise `InvalidRequest`, with Kafka's message, for connection limits that admit no client.

    `result` has the values of all options after the changes.
    """
    limit = changes.get("max.connections")
    if limit is not None and not BROKER_OPTIONS["max.connections"].parse(limit):
        raise errors.InvalidRequest(
            "Invalid value org.apache.kafka.common.config.ConfigException: Invalid max.connections 0 for configuration "
            "Invalid dynamic configuration"
        )
    overrides = str(result["max.connections.per.ip.overrides"] or "")
    per_ip = changes.get("max.connections.per.ip")
    if per_ip is not None and not overrides and not BROKER_OPTIONS["max.connections.per.ip"].parse(per_ip):
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


def _checked(name: str) -> Option | None:
    """Return the option if Kafka 4.3 has it and it is not refused. Others are stored without validation."""
    option = BROKER_OPTIONS.get(name)
    return None if option is None or option.support is REFUSED or name in OF_OLDER_RELEASES else option


def check_group(result: Mapping[str, str], limit_of: Callable[[str], int]) -> None:
    """Raise `InvalidConfig` unless a group may have these options; `limit_of` returns a broker option's value."""
    for name, text in result.items():
        option = GROUP_OPTIONS.get(name)
        if option is None:
            raise errors.InvalidConfig(f"{name}: unknown group option{nearest(name, GROUP_OPTIONS)}")
        value = _parsed(option, text)
        for bound, is_low in zip(limits_of(option), (True, False), strict=True):
            if bound is None or not isinstance(value, int):
                continue
            limit = limit_of(bound.name) if bound.support is SERVED else bound.default
            assert isinstance(limit, int)
            if (value < limit) if is_low else (value > limit):
                raise errors.InvalidConfig(f"{name} is {text}: {bound.name} is {limit}")


def check_metrics(result: Mapping[str, str]) -> None:
    """Raise `InvalidRequest`, with Kafka's message, unless client metrics may have these options (KIP-714).

    Raise `InvalidConfig` for an invalid pattern or number.
    """
    for name, text in result.items():
        option = METRICS_OPTIONS.get(name)
        if option is None:
            raise errors.InvalidRequest(f"Unknown client metrics configuration: {name}")
        if option.type is INT and not _NUMBER.fullmatch(text.strip()):
            raise errors.InvalidConfig(f"Invalid value {text} for configuration {name}: Not a number of type INT")
        try:
            option.parse(text)
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


def _parsed(option: Option, text: str) -> Value:
    try:
        return option.parse(text)
    except ValueError as error:
        raise errors.InvalidConfig(str(error)) from None


def group_type(name: str) -> ConfigType | None:
    """Return the type of a group option, None if the option does not exist."""
    option = GROUP_OPTIONS.get(name)
    return None if option is None else option.type


def metrics_type(_name: str) -> ConfigType | None:
    """Return None: as in Kafka, lists of client metrics support neither APPEND nor SUBTRACT."""
    return None


def topic_type(name: str) -> ConfigType | None:
    """Return the type of a topic option, None if the option does not exist."""
    option = TOPIC_OPTIONS.get(name)
    return None if option is None else option.type


def broker_type(name: str) -> ConfigType | None:
    """Return the type of a broker option, None if this broker does not know or refuses it."""
    option = BROKER_OPTIONS.get(name)
    return None if option is None or option.support is REFUSED else option.type


def _check_names(names: Sequence[str]) -> None:
    if len(set(names)) != len(names):
        raise errors.InvalidRequest("an option is named more than once for one resource")


def _items(text: str) -> list[str]:
    return [item for item in (part.strip() for part in text.split(",")) if item]


def _without_unchanged(changes: Changes, current: Mapping[str, str]) -> Changes:
    return {name: value for name, value in changes.items() if current.get(name) != value}
