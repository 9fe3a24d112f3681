"""Changing options at run time: what a request makes of those that are set, and whether that is allowed. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from pyclient import errors
from pyclient.broker_embedded.broker_settings import BROKER_SETTINGS
from pyclient.broker_embedded.group_settings import (
    GROUP_OPTIONS,
    METRICS_OPTIONS,
    OWN_OPTIONS,
    broker_setting,
    group_setting,
    limits_of,
)
from pyclient.broker_embedded.log.config import TOPIC_CONFIGS, LogConfig, check_asked
from pyclient.broker_embedded.settings import LIST, Setting, SettingType, Value, nearest
from pyclient.broker_embedded.settings_refused import refusal
from pyclient.broker_embedded.settings_without_effect import OF_OLDER_RELEASES, WITHOUT_EFFECT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Changes = dict[str, "str | None"]
"""The new value of each option that changes; None removes it."""


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


def check_broker(changes: Changes) -> None:
    """Raise `InvalidRequest` unless these options of a broker may be changed while it runs."""
    settings = {name: setting for name in changes if (setting := _of_broker(name)) is not None}
    fixed = [name for name, setting in settings.items() if not setting.dynamic]
    if fixed:
        raise errors.InvalidRequest(f"these options cannot be changed while the broker runs: {', '.join(fixed)}")
    for name, value in changes.items():
        reason = refusal(name)
        if reason is not None:
            raise errors.InvalidRequest(f"{name}: not supported by the embedded broker: {reason}")
        if value is not None and name in settings:
            try:
                settings[name].parse(value)
            except ValueError as error:
                raise errors.InvalidRequest(str(error)) from None


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
    """Raise `InvalidRequest` unless client metrics may have these options (KIP-714), `InvalidConfig` for a pattern."""
    for name, text in result.items():
        setting = METRICS_OPTIONS.get(name)
        if setting is None:
            raise errors.InvalidRequest(f"{name}: unknown option of client metrics{nearest(name, METRICS_OPTIONS)}")
        try:
            setting.parse(text)
        except ValueError as error:
            refused = errors.InvalidConfig if name == "match" else errors.InvalidRequest
            raise refused(str(error)) from None
        for pattern in text.split(",") if name == "match" else ():
            try:
                re.compile(pattern.partition("=")[2])
            except re.error as error:
                raise errors.InvalidConfig(f"{name}: {pattern!r} is no regular expression: {error}") from None


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
