"""The parts of all controls: the endpoint, its errors, and the parsing of its fields."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

from pyclient.errors import ClientError, ConfigError, KafkaTimeout

T = TypeVar("T")
C = TypeVar("C")
Values = Mapping[str, Any]

_LONGEST: Final = 3600.0  # seconds that a request may wait
_FARTHEST: Final = 1e9  # maximum seconds of an advance of the clock, or of a pause
_WAIT: Final = 10.0
LARGEST_COUNT: Final = 2**63 - 1

TIMEOUT: Final = {"timeout": "how many seconds to wait; default 10"}
"""The field of an endpoint that waits."""


class NotFound(ClientError, LookupError):
    """The object of the request does not exist."""


class NoAnswer(ClientError):
    """The node did not answer: its process hangs or has ended."""


class WrongState(ClientError):
    """The node is not in a state that allows the request."""


class MethodNotAllowed(ClientError):
    """The path exists only with other methods."""


class Endpoint(NamedTuple, Generic[C]):
    """One endpoint. `{}` in a path is replaced by a name or number; `fields` are the accepted fields.

    `call` gets the state of the node's controls, the value of `{}`, and the fields of the request.
    """

    method: str
    path: str
    doc: str
    fields: Mapping[str, str]
    call: Callable[[C, str, Values], Coroutine[Any, Any, Any]]


async def within(waiting: Coroutine[Any, Any, T], values: Values, state: Callable[[], str]) -> T:
    """Return the result of `waiting`. Raise `KafkaTimeout` with the text of `state()` after the given `timeout`."""
    try:
        seconds = seconds_of(values, "timeout", _WAIT)
    except ConfigError:
        waiting.close()
        raise
    try:
        return await asyncio.wait_for(waiting, seconds)
    except TimeoutError:
        raise KafkaTimeout(f"timed out after {seconds:g} s: {state()}") from None


def seconds_of(values: Values, name: str, default: float | None) -> float:
    """Return the seconds in a field. Raise `ConfigError` if it is no duration, or missing without a default."""
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
    """Return the whole number from 0 in a field. Raise `ConfigError` if it is none."""
    given = values.get(name, default)
    try:
        count = int(given)
    except (TypeError, ValueError, OverflowError):
        count = -1
    if isinstance(given, (bool, float)) or not 0 <= count <= LARGEST_COUNT:
        raise ConfigError(f"{name} is {_short(given)}: it must be a whole number from 0 to {LARGEST_COUNT}")
    return count


def number_of(values: Values, name: str) -> float:
    """Return the number from 0 in a field. Raise `ConfigError` if it is none."""
    given: Any = values.get(name)
    try:
        number = float(given)
    except (TypeError, ValueError, OverflowError):
        number = -1.0
    if isinstance(given, bool) or not 0 <= number <= LARGEST_COUNT:
        raise ConfigError(f"{name} is {_short(given)}: it must be a number from 0 to {LARGEST_COUNT}")
    return number


def flag_of(values: Values, name: str, *, default: bool) -> bool:
    """Return the bool in a field, also given as text in a query. Raise `ConfigError` if it is none."""
    given = values.get(name, default)
    flag = {"true": True, "false": False}.get(given) if isinstance(given, str) else given
    if not isinstance(flag, bool):
        raise ConfigError(f"{name} is {_short(given)}: it must be true or false")
    return flag


def text_of(values: Values, name: str) -> str | None:
    """Return the text in a field, or None if it is missing. Raise `ConfigError` if it is no text."""
    given = values.get(name)
    if given is not None and not isinstance(given, str):
        raise ConfigError(f"{name} is {_short(given)}: it must be a text")
    return given


def optional_count_of(values: Values, name: str) -> int | None:
    """Return the whole number from 0 in a field, or None if it is missing. Raise `ConfigError` if it is none."""
    return None if values.get(name) is None else count_of(values, name, 0)
