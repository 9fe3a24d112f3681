"""The declaration of one option, its type, and the conversion of its value."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyclient.config.values import NOUNS, READERS
from pyclient.errors import ConfigError

_KEY = "option"
_HIDDEN = "<hidden>"


@dataclass(frozen=True, slots=True)
class Option:
    """The declaration of one option, stored in the metadata of its dataclass field."""

    doc: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[Any, ...] | None = None
    convert: Callable[[Any], Any] | None = None
    allowed: str | None = None
    aliases: tuple[str, ...] = ()
    secret: bool = False


def option(
    default: Any,
    *,
    doc: str,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Iterable[Any] | None = None,
    convert: Callable[[Any], Any] | None = None,
    allowed: str | None = None,
    aliases: Iterable[str] = (),
    secret: bool = False,
) -> Any:
    """Return a dataclass field that declares an option.

    The field's annotation is the type: `int`, `float`, `bool`, `str`, a tuple of `str`, or one of them or `None`;
    values of other types are not converted. `minimum` and `maximum` are inclusive. `choices`, which may also be given
    as a `Literal` of strings, are compared case-insensitively and stored as written here. `convert` replaces the type's
    conversion: it gets the user's value and returns the option's or raises `ValueError`; `allowed` then describes the
    possible values. `aliases` are other clients' names of the option. The value of a `secret` option never appears in
    an error or a repr.
    """
    rule = Option(
        doc=doc,
        minimum=minimum,
        maximum=maximum,
        choices=None if choices is None else tuple(choices),
        convert=convert,
        allowed=allowed,
        aliases=tuple(aliases),
        secret=secret,
    )
    return dataclasses.field(default=default, repr=not secret, metadata={_KEY: rule})


@dataclass(frozen=True, slots=True)
class Spec:
    """One option of a config class: its name, its type and its declaration."""

    name: str
    kind: Any
    nullable: bool
    rule: Option

    def read(self, value: Any) -> Any:
        """Convert a value given by the user; raise `ConfigError` if it is not allowed."""
        if value is None and self.nullable:
            return None
        try:
            value = self._typed(value)
        except ValueError as error:
            raise ConfigError(self._complaint(value, str(error))) from None
        rule = self.rule
        if (rule.minimum is not None and value < rule.minimum) or (rule.maximum is not None and value > rule.maximum):
            raise ConfigError(self._complaint(value))
        if rule.choices is not None:
            return self._choose(value)
        return value

    def _typed(self, value: Any) -> Any:
        if self.rule.convert is not None:
            return self.rule.convert(value)
        reader = READERS.get(self.kind)
        if reader is not None:
            return reader(value)
        if isinstance(self.kind, type) and not isinstance(value, self.kind):
            raise ValueError
        return value

    def _choose(self, value: Any) -> Any:
        folded = value.casefold() if isinstance(value, str) else value
        for choice in self.rule.choices or ():
            if (choice.casefold() if isinstance(choice, str) else choice) == folded:
                return choice
        raise ConfigError(self._complaint(value))

    def _complaint(self, value: Any, detail: str = "") -> str:
        shown = _HIDDEN if self.rule.secret else f"{value!r:.200}"
        text = f"{self.name}={shown} is not possible: it takes {self.allowed()}"
        return f"{text} ({detail})" if detail and not self.rule.secret else text

    def allowed(self) -> str:
        """Return a text that describes the possible values."""
        rule = self.rule
        if rule.allowed is not None:
            return rule.allowed
        if rule.choices is not None:
            return " or ".join(str(choice) for choice in rule.choices)
        noun = NOUNS.get(self.kind, getattr(self.kind, "__name__", str(self.kind)))
        if rule.minimum is not None and rule.maximum is not None:
            noun += f" from {rule.minimum:.15g} to {rule.maximum:.15g}"
        elif rule.minimum is not None:
            noun += f" of at least {rule.minimum:.15g}"
        elif rule.maximum is not None:
            noun += f" of at most {rule.maximum:.15g}"
        return f"{noun} or None" if self.nullable else noun


_SPECS: dict[type, Mapping[str, Spec]] = {}


def options_of(cls: type) -> Mapping[str, Spec]:
    """Return the options of a config class, a dataclass of `option(...)` fields, by name, in their declared order."""
    if cls not in _SPECS:
        _SPECS[cls] = types.MappingProxyType(_specs_of(cls))
    return _SPECS[cls]


def _specs_of(cls: type) -> dict[str, Spec]:
    hints = typing.get_type_hints(cls)
    specs = {}
    for field in dataclasses.fields(cls):
        rule = field.metadata.get(_KEY)
        if rule is None:
            raise TypeError(f"{cls.__name__}.{field.name} is declared without option(...)")
        kind, nullable = _split_optional(hints[field.name])
        if typing.get_origin(kind) is typing.Literal and rule.convert is None:
            kind, rule = str, dataclasses.replace(rule, choices=typing.get_args(kind))
        specs[field.name] = Spec(field.name, kind, nullable, rule)
    return specs


def _split_optional(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
        return (kinds[0] if len(kinds) == 1 else object), len(kinds) < len(typing.get_args(hint))
    return hint, False
