"""The framework of options: name, type, default, limits, and how far an option is supported.

Kafka's ConfigDef. There is one table of `Option` for each kind: brokers (`pyclient.config.broker`), topics
(`pyclient.config.topic`), groups and client metrics (`pyclient.config.group`), and what clients do not have
(`pyclient.config.unsupported`). What clients have are fields of their config classes (`pyclient.config.fields`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Value = bool | int | float | str | None
"""An option's value; a list is kept as the comma-separated text that Kafka's tools print."""

Synonyms = tuple[tuple[str, int], ...]
"""Options that set another one's default, and what their unit is multiplied by; the finest unit comes first."""

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1


class ConfigType(IntEnum):
    """The types of Kafka's configuration; the numbers are those of DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


UNKNOWN, BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD = ConfigType


class Support(Enum):
    """The degrees of support for an option."""

    SERVED = "served"
    WITHOUT_EFFECT = "without effect"  # its value is checked, stored and shown, and nothing else
    REFUSED = "refused"  # it cannot be set, since ignoring it would mislead
    FOREIGN = "another client's"  # it is an option of other client libraries, and refused


SERVED, WITHOUT_EFFECT, REFUSED, FOREIGN = Support

_WHOLE_LIMITS: Final = {INT: INT_MAX, SHORT: 2**15 - 1, LONG: LONG_MAX}


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `minimum` and `maximum` are inclusive; `choices` limits a value, or each element of a list.

    A `dynamic` one may be changed while the broker runs (KIP-226). `shape` is an expression that a text matches.
    `synonyms` are the broker options that set the default of an option of topics or groups. `reason` says why an option
    is refused; a client's still accepts the values in `choices`, without effect.
    `aliases`, `convert`, `allowed` and `nullable` are of client options; `pyclient.config.fields` explains them.
    """

    name: str
    type: ConfigType
    default: Any
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[Any, ...] = ()
    dynamic: bool = False
    shape: str = ""
    synonyms: Synonyms = ()
    support: Support = SERVED
    reason: str = ""
    aliases: tuple[str, ...] = ()
    convert: Callable[[Any], Any] | None = None
    allowed: str = ""
    nullable: bool = False

    @property
    def sensitive(self) -> bool:
        """Return True if clients never get its value."""
        return self.type is PASSWORD

    def parse(self, text: str) -> Value:
        """Return the value of `text`. Raise `ValueError`, which names the allowed values."""
        text = text.strip()
        if self.type is BOOLEAN:
            return self._parse_boolean(text)
        if self.type in (STRING, LIST, CLASS, PASSWORD):
            return self._parse_text(text)
        return self._parse_number(text)

    def _parse_boolean(self, text: str) -> bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{self.name} is {text!r}: it must be true or false")
        return text.lower() == "true"

    def _parse_text(self, text: str) -> str:
        if self.shape and not re.fullmatch(self.shape, text):
            raise ValueError(f"{self.name} is {text!r}: it must be of the form {self.shape}")
        if not self.choices:
            return text
        elements = [element.strip() for element in text.split(",")] if self.type is LIST else [text]
        for element in elements:
            if element not in self.choices:
                raise ValueError(f"{self.name} is {text!r}: it must be {_or(self.choices)}")
        return ",".join(elements)

    def _parse_number(self, text: str) -> int | float:
        try:
            if "_" in text or not text.isascii():
                raise ValueError(text)  # Python accepts underscores in numbers, Java does not
            value = float(text) if self.type is DOUBLE else int(text)
        except ValueError:
            raise ValueError(f"{self.name} is {text!r}: it must be a {self._kind()}") from None
        maximum = self.maximum if self.maximum is not None else _WHOLE_LIMITS.get(self.type)
        minimum = self.minimum if self.minimum is not None else -(_WHOLE_LIMITS.get(self.type, LONG_MAX)) - 1
        if not minimum <= value or (maximum is not None and not value <= maximum):
            raise ValueError(f"{self.name} is {text}: it must be {self._range()}")
        if self.choices and str(value) not in self.choices:
            raise ValueError(f"{self.name} is {text}: it must be {_or(self.choices)}")
        return value

    def _kind(self) -> str:
        return "number" if self.type is DOUBLE else "whole number"

    def _range(self) -> str:
        if self.minimum is None or self.maximum is not None:
            low = "" if self.minimum is None else f"from {self.minimum} "
            high = self.maximum if self.maximum is not None else _WHOLE_LIMITS.get(self.type, LONG_MAX)
            return f"a {self._kind()} {low}to {high}"
        return f"at least {self.minimum} (and fit Kafka's type {self.type.name.lower()})"


def table_of(*options: Option) -> dict[str, Option]:
    """Return the options by name. Raise `ValueError` for a name that occurs twice."""
    table = {option.name: option for option in options}
    if len(table) < len(options):
        raise ValueError("an option is declared twice")
    return table


def items_of(text: str) -> tuple[str, ...]:
    """Return the distinct items of a list's text."""
    return tuple(dict.fromkeys(item for item in (part.strip() for part in text.split(",")) if item))


def render(value: Value) -> str | None:
    """Return a value as Kafka's tools print it: `true`, `0.5`, `delete`."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).upper().replace("E+", "E")  # 1.7976931348623157E308, as Java has it


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `" (did you mean ...?)"` for a misspelt name, "" if no known name is similar."""
    from difflib import get_close_matches  # only errors need it

    close = get_close_matches(name, list(known), n=1, cutoff=0.7)
    return f" (did you mean {close[0]}?)" if close else ""


def _or(choices: tuple[str, ...]) -> str:
    return choices[0] if len(choices) == 1 else f"{', '.join(choices[:-1])} or {choices[-1]}"
