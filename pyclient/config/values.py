"""From what a user gave, often a string, to a value of an option's type."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import Any


def _read_int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError
    if isinstance(value, float) and not value.is_integer():
        raise ValueError
    return int(value)


def _read_float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError
    number = float(value)
    if number != number:
        raise ValueError("not a number")
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
    int: _read_int,
    float: _read_float,
    bool: _read_bool,
    str: _read_str,
    tuple[str, ...]: _read_strings,
}
"""How a value of a type is read; each raises `ValueError` for one that cannot be."""

NOUNS: Mapping[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "a string",
    tuple[str, ...]: "strings, as a list or with commas",
    ssl.SSLContext: "an ssl.SSLContext",
}
"""What a type is called in an error."""
