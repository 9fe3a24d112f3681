"""Declare client options as fields of a dataclass, and read the values that users give, often strings."""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import Any, Final

from pyclient.config.options import (
    BOOLEAN,
    CLASS,
    DOUBLE,
    LIST,
    LONG,
    LONG_MAX,
    PASSWORD,
    STRING,
    UNKNOWN,
    ConfigType,
    Option,
)
from pyclient.errors import ConfigError

_KEY: Final = "option"
_HIDDEN: Final = "<hidden>"
_PASSWORD_IN_URL: Final = re.compile(r"//[^/@\s]*@")


def option(
    default: Any,
    *,
    doc: str,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Iterable[Any] = (),
    convert: Callable[[Any], Any] | None = None,
    allowed: str = "",
    aliases: Iterable[str] = (),
    secret: bool = False,
) -> Any:
    """Return a dataclass field that declares an option.

    The field's annotation is the type: `int`, `float`, `bool`, `str`, a tuple of `str`, or one of them or `None`;
    values of other types are not converted. `minimum` and `maximum` are inclusive. `choices`, which may also be given
    as a `Literal` of strings, are compared case-insensitively and stored as written here. `convert` replaces the type's
    conversion: it gets the user's value and returns the option's or raises `ValueError`; `allowed` then describes the
    possible values. `aliases` are other clients' names of the option. The value of a `secret` option never appears in
    an error or a repr; nor does it in the text of an error that its `convert` raises.
    """
    declared = Option(
        "",  # its name and type are the field's, which `options_of` reads
        PASSWORD if secret else UNKNOWN,
        default,
        doc,
        minimum,
        maximum,
        tuple(choices),
        aliases=tuple(aliases),
        convert=convert,
        allowed=allowed,
    )
    return dataclasses.field(default=default, repr=not secret, metadata={_KEY: declared})


_OPTIONS: Final[dict[type, Mapping[str, Option]]] = {}
_TYPES: Final[Mapping[Any, ConfigType]] = {
    int: LONG,
    float: DOUBLE,
    bool: BOOLEAN,
    str: STRING,
    tuple[str, ...]: LIST,
    object: UNKNOWN,
}


def options_of(cls: type) -> Mapping[str, Option]:
    """Return the options of a config class, a dataclass of `option(...)` fields, by name, in their declared order."""
    if cls not in _OPTIONS:
        hints = typing.get_type_hints(cls)
        fields = dataclasses.fields(cls)
        _OPTIONS[cls] = types.MappingProxyType({each.name: _declared(cls, each, hints[each.name]) for each in fields})
    return _OPTIONS[cls]


def _declared(cls: type, field: dataclasses.Field[Any], hint: Any) -> Option:
    declared: Option | None = field.metadata.get(_KEY)
    if declared is None:
        raise TypeError(f"{cls.__name__}.{field.name} is declared without option(...)")
    kind, nullable = _split_optional(hint)
    choices = declared.choices
    if typing.get_origin(kind) is typing.Literal and declared.convert is None:
        kind, choices = str, typing.get_args(kind)
    kind = declared.type if declared.sensitive else _TYPES.get(kind, CLASS)
    if kind not in _NOUNS and not (choices or declared.allowed):
        raise TypeError(f"{cls.__name__}.{field.name} is of a type that needs allowed=... to describe its values")
    return dataclasses.replace(declared, name=field.name, type=kind, choices=choices, nullable=nullable)


def _split_optional(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
        return (kinds[0] if len(kinds) == 1 else object), len(kinds) < len(typing.get_args(hint))
    return hint, False


def read(option: Option, value: Any) -> Any:
    """Convert a value given by the user; raise `ConfigError` if it is not allowed."""
    if value is None and option.nullable:
        return None
    try:
        value = (option.convert or _READERS.get(option.type, _unchanged))(value)
    except ValueError as error:
        raise ConfigError(_complaint(option, value, str(error))) from None
    low, high = option.minimum, option.maximum
    if (low is not None and value < low) or (high is not None and value > high):
        raise ConfigError(_complaint(option, value))
    return _choose(option, value) if option.choices else value


def _choose(option: Option, value: Any) -> Any:
    folded = value.casefold() if isinstance(value, str) else value
    for choice in option.choices:
        if (choice.casefold() if isinstance(choice, str) else choice) == folded:
            return choice
    raise ConfigError(_complaint(option, value))


def _complaint(option: Option, value: Any, detail: str = "") -> str:
    shown = _HIDDEN if option.sensitive else _PASSWORD_IN_URL.sub(rf"//{_HIDDEN}@", f"{value!r:.200}")
    text = f"{option.name}={shown} is not possible: it takes {describe(option)}"
    return f"{text} ({detail})" if detail else text


_NOUNS: Final[Mapping[ConfigType, str]] = {
    LONG: "a whole number",
    DOUBLE: "a number",
    BOOLEAN: "True or False",
    STRING: "a string",
    PASSWORD: "a string",
    LIST: "strings, as a list or with commas",
}


def describe(option: Option) -> str:
    """Return a text that describes the possible values."""
    if option.allowed:
        return option.allowed
    if option.choices:
        return " or ".join(str(choice) for choice in option.choices)
    noun = _NOUNS[option.type]
    if option.minimum is not None and option.maximum is not None:
        noun += f" from {option.minimum:.15g} to {option.maximum:.15g}"
    elif option.minimum is not None:
        noun += f" of at least {option.minimum:.15g}"
    elif option.maximum is not None:
        noun += f" of at most {option.maximum:.15g}"
    return f"{noun} or None" if option.nullable else noun


def read_int(value: Any) -> int:
    """Return a whole number of at most 64 bits, from a number or a string; raise `ValueError` for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError
    if isinstance(value, float) and not value.is_integer():
        raise ValueError
    number = int(value)
    if not -LONG_MAX - 1 <= number <= LONG_MAX:
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


def _unchanged(value: Any) -> Any:
    return value


_READERS: Final[Mapping[ConfigType, Callable[[Any], Any]]] = {
    LONG: read_int,
    DOUBLE: _read_float,
    BOOLEAN: _read_bool,
    STRING: _read_str,
    PASSWORD: _read_str,
    LIST: _read_strings,
}
