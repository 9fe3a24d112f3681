"""The reference of options: written from the table of options, for `help()`, for `pyclient options` and for docs/."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import Final

from pyclient.config.client import ClientConfig
from pyclient.config.options import Spec, options_of

_WIDTH: Final = 100


class _Documentation:
    """A class's `__doc__`: its own text, and behind it the options, which are only looked up when it is read."""

    def __init__(self, own: str, config: type[ClientConfig]) -> None:
        self._own = own
        self._config = config

    def __get__(self, instance: object, owner: type) -> str:
        return f"{self._own.rstrip()}\n\n{textwrap.indent(as_text(self._config), '    ')}\n    "


def document(cls: type, config: type[ClientConfig]) -> None:
    """Make a client's docstring list the options of `config`; a decorator would hide the class from type checkers."""
    cls.__doc__ = _Documentation(cls.__doc__ or "", config)  # type: ignore[assignment]  # a descriptor does


def as_text(config: type[ClientConfig]) -> str:
    """The options of one kind of client, as `help()` shows them."""
    parts = ["Options (keywords, or in `config` with dots):"]
    for spec in options_of(config).values():
        parts.append(f"{spec.name}: {spec.allowed()}. Default: {default_of(config, spec)}.")
        parts.append(textwrap.indent(textwrap.fill(_description(spec), _WIDTH), "    "))
    return "\n".join(parts)


def as_markdown(*configs: type[ClientConfig]) -> str:
    """The whole reference; options that every client has come first."""
    parts = [
        "# Options",
        "Written by `pyclient options --markdown` from the table of options; do not edit it.",
        "Options are keyword arguments of the clients, named as Kafka's own with `_` for `.`, or entries of a `config` "
        'dictionary, with dots or underscores: `Producer("host:9092", linger_ms=5)`, '
        '`Producer(config={"bootstrap.servers": "host:9092", "linger.ms": "5"})`. One `ConfigError` reports everything '
        "that is wrong with them.",
        *_section("Every client", ClientConfig, skip=frozenset()),
    ]
    common = frozenset(options_of(ClientConfig))
    for config in configs:
        parts += _section(config.__name__.removesuffix("Config"), config, skip=common)
    return "\n\n".join(parts) + "\n"


def _section(title: str, config: type[ClientConfig], *, skip: frozenset[str]) -> Iterator[str]:
    yield f"## {title}"
    rows = ["| option | takes | default | what it does |", "|---|---|---|---|"]
    for spec in options_of(config).values():
        if spec.name not in skip:
            cells = (f"`{spec.name}`", spec.allowed(), f"`{default_of(config, spec)}`", _description(spec))
            escaped = [re.sub(r"([|<>])", r"\\\1", cell) for cell in cells]
            rows.append(f"| {' | '.join(escaped)} |")
    yield "\n".join(rows)
    refused = dict(config.not_supported)
    if skip:
        refused = {name: hint for name, hint in refused.items() if ClientConfig.not_supported.get(name) != hint}
    if refused:
        yield "Kafka's options that are refused, but for values that describe what is done anyway:"
        yield "\n".join(f"- `{name.replace('_', '.')}`: {hint}" for name, hint in sorted(refused.items()))


def default_of(config: type[ClientConfig], spec: Spec) -> str:
    """The option's default as it would be written in a program."""
    default = config.__dataclass_fields__[spec.name].default
    return repr(default)


def _description(spec: Spec) -> str:
    aliases = ", ".join(f"`{alias.replace('_', '.')}`" for alias in spec.rule.aliases)
    return f"{spec.rule.doc} Also: {aliases}." if aliases else spec.rule.doc
