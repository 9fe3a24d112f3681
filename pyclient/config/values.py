"""Convert what a user gave, often a string, to a value of an option's type."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Final

INT_MAX: Final = 2**31 - 1
"""The maximum of options that are 32-bit integers on the wire or in Kafka."""


def read_int(value: Any) -> int:
    """Return a whole number of at most 64 bits, from a number or a string; raise `ValueError` for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError
    if isinstance(value, float) and not value.is_integer():
        raise ValueError
    number = int(value)
    if not -(2**63) <= number < 2**63:
        raise ValueError("it is too large for 64 bits")
    return number


def _read_float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError
    number = float(value)
    if not isfinite(number):
        raise ValueError("it is not finite")
    return number


def _read_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().casefold() in ("true", "false"):
        return value.strip().casefold() == "true"
    raise ValueError


def _read_str(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _read_strings(value: Any) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)) or not all(isinstance(item, str) for item in items):
        raise ValueError
    return tuple(item.strip() for item in items if item.strip())


READERS: Mapping[Any, Callable[[Any], Any]] = {
    int: read_int,
    float: _read_float,
    bool: _read_bool,
    str: _read_str,
    tuple[str, ...]: _read_strings,
}
"""The conversion function of each type; it raises `ValueError` for an invalid value."""

NOUNS: Mapping[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "a string",
    tuple[str, ...]: "strings, as a list or with commas",
    ssl.SSLContext: "an ssl.SSLContext",
}
"""The name of each type in errors."""
