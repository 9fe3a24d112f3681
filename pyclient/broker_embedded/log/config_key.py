"""Definition of a topic config: its name, type and limits, and the parsing and rendering of its values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Literal

from pyclient import errors

ConfigType = Literal["int", "long", "double", "boolean", "string", "list"]


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One topic config: its name, type and limits, and the broker options that set its default.

    `broker_names` are (name, factor) pairs, the finest unit first: the factor turns the broker's unit into the topic's.
    """

    name: str
    type: ConfigType
    doc: str
    broker_names: tuple[tuple[str, int], ...]
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    shape: str = ""  # a regular expression that the rendered value must match
    default: Any = None  # Kafka's, typed

    @property
    def field(self) -> str:
        """Return the name of the field in `LogConfig`."""
        return self.name.removeprefix("internal.").replace(".", "_")

    def parse(self, text: str, name: str | None = None) -> Any:
        """Return the typed value of `text`. Raise `errors.InvalidConfig`, which names the allowed values."""
        try:
            value = _PARSERS[self.type](text)
        except ValueError:
            raise errors.InvalidConfig(f"{name or self.name}={text!r}: not a {self.type}") from None
        if self.minimum is not None and not value >= self.minimum:  # nor is NaN
            raise errors.InvalidConfig(f"{name or self.name}={text!r}: must be at least {self.minimum}")
        if self.maximum is not None and value > self.maximum:
            raise errors.InvalidConfig(f"{name or self.name}={text!r}: must be at most {self.maximum}")
        for item in value if isinstance(value, tuple) else (value,):
            if self.choices and str(item) not in self.choices:
                raise errors.InvalidConfig(f"{name or self.name}={text!r}: allowed are {', '.join(self.choices)}")
        if self.shape and not re.fullmatch(self.shape, self.render(value), re.ASCII):
            raise errors.InvalidConfig(f"{name or self.name}={text!r}: not of the form {self.shape}")
        return value

    def scaled(self, text: str, factor: int) -> str:
        """Return `text` converted to the topic's unit; -1 (no limit) stays."""
        if factor == 1 or text.strip() == "-1":
            return text
        try:
            return str(int(text) * factor)
        except ValueError:
            return text

    def render(self, value: Any) -> str:
        """Return `value` as Kafka prints it."""
        if isinstance(value, bool):
            return "true" if value else "false"
        return ",".join(value) if isinstance(value, tuple) else str(value)


def _integer(bits: int) -> Any:
    def parse(text: str) -> int:
        text = text.strip()
        value = int(text)
        if "_" in text or not text.isascii() or not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise ValueError(text)
        return value

    return parse


def _boolean(text: str) -> bool:
    value = text.strip().lower()
    if value not in ("true", "false"):
        raise ValueError(text)
    return value == "true"


def _list(text: str) -> tuple[str, ...]:
    items = tuple(item.strip() for item in text.split(",") if item.strip())
    return tuple(dict.fromkeys(items))


_PARSERS: Final = {
    "int": _integer(32),
    "long": _integer(64),
    "double": float,
    "boolean": _boolean,
    "string": str.strip,
    "list": _list,
}
