"""What the controls of every kind are made of: an endpoint, its errors, and the reading of what was given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from pyclient.errors import ClientError, ConfigError, KafkaTimeout

if TYPE_CHECKING:
    from pyclient.broker_embedded.controls.controls import Controls

T = TypeVar("T")
Values = Mapping[str, Any]

_LONGEST: Final = 3600.0  # seconds that a request may wait
_FARTHEST: Final = 1e9  # seconds that a clock may jump, or a pause last
_WAIT: Final = 10.0
LARGEST_COUNT: Final = 2**63 - 1

TIMEOUT: Final = {"timeout": "how many seconds to wait; 10 if not said"}
"""The field of an endpoint that waits."""


class NotThere(ClientError, LookupError):
    """What the request is about does not exist."""


class NotNow(ClientError):
    """The node is not in a state for it."""


class MethodNotAllowed(ClientError):
    """The path exists, with other methods."""


class Endpoint(NamedTuple):
    """One thing to ask for. `{}` in a path stands for a name or number; `fields` are what may be given."""

    method: str
    path: str
    doc: str
    fields: Mapping[str, str]
    call: Callable[[Controls, str, Values], Coroutine[Any, Any, Any]]


async def within(waiting: Coroutine[Any, Any, T], values: Values, state: Callable[[], str]) -> T:
    """What is waited for, within the `timeout` that was given; then `KafkaTimeout` with `state()` in words."""
    try:
        seconds = seconds_of(values, "timeout", _WAIT)
    except ConfigError:
        waiting.close()
        raise
    try:
        return await asyncio.wait_for(waiting, seconds)
    except TimeoutError:
        raise KafkaTimeout(f"not within {seconds:g} s: {state()}") from None


def seconds_of(values: Values, name: str, default: float | None) -> float:
    """A duration in a field, a number of seconds; `ConfigError` if it is none, or missing without a default."""
    given = values.get(name, default)
    try:
        seconds = float(given)
    except (TypeError, ValueError, OverflowError):
        seconds = -1.0
    most = _LONGEST if name != "seconds" else _FARTHEST
    if isinstance(given, bool) or not 0 <= seconds <= most:
        raise ConfigError(f"{name} is {_short(given)}: it must be a number of seconds from 0 to {most:.0f}")
    return seconds


def _short(given: object) -> str:
    return f"{given!r:.100}"


def count_of(values: Values, name: str, default: int) -> int:
    """A whole number from 0 in a field; `ConfigError` if it is none."""
    given = values.get(name, default)
    try:
        count = int(given)
    except (TypeError, ValueError, OverflowError):
        count = -1
    if isinstance(given, (bool, float)) or not 0 <= count <= LARGEST_COUNT:
        raise ConfigError(f"{name} is {_short(given)}: it must be a whole number from 0 to {LARGEST_COUNT}")
    return count


def flag_of(values: Values, name: str, *, default: bool) -> bool:
    """True or false in a field, also as the texts of a query; `ConfigError` if it is neither."""
    given = values.get(name, default)
    flag = {"true": True, "false": False}.get(given) if isinstance(given, str) else given
    if not isinstance(flag, bool):
        raise ConfigError(f"{name} is {_short(given)}: it must be true or false")
    return flag


def text_of(values: Values, name: str) -> str | None:
    """A text in a field, or None if there is none; `ConfigError` if it is something else."""
    given = values.get(name)
    if given is not None and not isinstance(given, str):
        raise ConfigError(f"{name} is {_short(given)}: it must be a text")
    return given


def optional_count_of(values: Values, name: str) -> int | None:
    """The same, or None if it was not given."""
    return None if values.get(name) is None else count_of(values, name, 0)
