"""Checks of the arguments of `send` and the errors for invalid ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from math import isnan
from numbers import Real
from operator import index
from typing import Any, Final

from pyclient.errors import InvalidTopic, SerializationError

Serializer = Callable[[Any], bytes]
Headers = Iterable[tuple[str, bytes | None]] | Mapping[str, bytes | None]

WRONG_RECORD: Final = (TypeError, UnicodeEncodeError, OverflowError)
"""Raised by the codec for a record that cannot be written."""

_LATEST_MS: Final = 2**63 - 1
_LAST_PARTITION: Final = 2**31 - 1
_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)


def check_topic(topic: Any) -> None:
    """Raise `InvalidTopic` if this is no valid topic name."""
    if not isinstance(topic, str):
        raise InvalidTopic(f"a topic is named by a str, not by {type(topic).__name__} {topic!r}")
    if topic in (".", "..") or not _TOPIC_NAME.fullmatch(topic):
        raise InvalidTopic(
            f"{topic!r} cannot be a topic's name: it takes 1 to 249 letters, digits, '.', '_' and '-', "
            "and is neither '.' nor '..'"
        )


def check_partition(partition: Any) -> int | None:
    """Return the partition as an int, None for None; raise `ValueError` if it cannot be a partition's number."""
    number = whole_number(partition)
    if partition is not None and (number is None or not 0 <= number <= _LAST_PARTITION):
        raise ValueError(f"a partition is a number from 0 to {_LAST_PARTITION}, not {partition!r}")
    return number


def check_seconds(timeout: Any) -> None:
    """Raise `TypeError` for a timeout that is not a number, `ValueError` for NaN or a negative one; None is valid."""
    if timeout is None or (type(timeout) is float and timeout >= 0):
        return
    if isinstance(timeout, bool) or not isinstance(timeout, Real):
        raise TypeError(f"timeout={timeout!r} is not possible: it takes seconds, as a number, or None for no limit")
    if isnan(timeout) or timeout < 0:
        raise ValueError(f"timeout={timeout!r} is not possible: it takes seconds from 0, or None for no limit")


def check_callback(callback: object, name: str) -> None:
    """Raise `TypeError` unless `callback` is callable."""
    if not callable(callback):
        raise TypeError(f"{name}={callback!r} is not possible: it takes a function that is called with the future")


def whole_number(number: Any) -> int | None:
    """Return an integer of any type (numpy's too) as an int; None for anything else."""
    try:
        return None if isinstance(number, bool) else index(number)
    except TypeError:
        return None


def check_timestamp(timestamp_ms: Any) -> int:
    """Return the timestamp as an int; raise `SerializationError` if it cannot be milliseconds since the epoch."""
    try:
        time = index(timestamp_ms)
    except TypeError:
        time = -1
    if not 0 <= time <= _LATEST_MS:
        raise SerializationError(
            "the record cannot be written: a timestamp is a whole number of milliseconds since the epoch, "
            f"not {timestamp_ms!r}"
        )
    return time


def explain(
    topic: str, key: Any, value: Any, error: Exception, partition: Any = None, timestamp_ms: Any = None
) -> SerializationError:
    """Return the error for a record that cannot be encoded. Raise if its topic, partition or timestamp is invalid."""
    check_topic(topic)
    check_partition(partition)
    if timestamp_ms is not None:
        check_timestamp(timestamp_ms)
    for what, data, option in (("value", value, "value_serializer"), ("key", key, "key_serializer")):
        if data is not None and not isinstance(data, (bytes, bytearray, memoryview)):
            return SerializationError(
                f"the {what} for topic {topic!r} is {type(data).__name__}, not bytes: "
                f"pass {option}=... to the producer, or encode it first"
            )
    return SerializationError(f"a record for topic {topic!r} cannot be written: {error}")


def serialized(serializer: Serializer | None, data: Any, option: str, topic: str) -> Any:
    """Serialize a key or value; None stays None (a tombstone). Raise `SerializationError` if `serializer` fails."""
    if serializer is None or data is None:
        return data
    try:
        made = serializer(data)
    except Exception as error:  # the user's own code may raise anything
        raise SerializationError(f"{option} failed for topic {topic!r}: {error!r}") from error
    if type(made) is not bytes and made is not None:
        _check_bytes_like(made, option, topic)
    return made


def _check_bytes_like(made: Any, option: str, topic: str) -> None:
    try:
        memoryview(made)
    except TypeError as error:
        raise SerializationError(
            f"{option} gave {type(made).__name__} for topic {topic!r}: it has to give bytes, or None"
        ) from error
