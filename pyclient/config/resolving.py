"""From keywords and a Kafka-style dictionary to a config."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pyclient.config.client import ClientConfig
from pyclient.config.options import options_of
from pyclient.errors import ConfigError

C = TypeVar("C", bound="ClientConfig")


def resolve(
    cls: type[C],
    options: Mapping[str, Any],
    config: Mapping[str, Any] | None = None,
) -> C:
    """A config from keyword `options` and a Kafka-style `config` dictionary.

    The dictionary's names have dots or underscores, its values may be strings: `{"linger.ms": "5"}`. A keyword of
    `None` means the default where `None` is no value of the option; in the dictionary, which says what it wants, it is
    impossible. Raises `ConfigError` for an option that is unknown, impossible, not supported, or given twice.
    """
    specs = options_of(cls)
    names = {alias: name for name, spec in specs.items() for alias in (name, *spec.rule.aliases)}
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for given, value, source, by_keyword in _given(options, config):
        name = names.get(given.replace(".", "_"))
        if name is None:
            raise ConfigError(_unknown(cls, given, names))
        if value is None and by_keyword and not specs[name].nullable:
            continue
        if name in origin:
            raise ConfigError(f"{name} is given twice: {origin[name]} and {source}")
        origin[name] = source
        values[name] = specs[name].read(value)
    return cls(**values)


def _given(options: Mapping[str, Any], config: Mapping[str, Any] | None) -> Iterable[tuple[str, Any, str, bool]]:
    """Name, value, where it was given in words, and whether that is as a keyword."""
    for name, value in options.items():
        yield name, value, f"as keyword {name}", True
    if config is not None and not isinstance(config, Mapping):
        raise ConfigError(f"config={config!r} is not possible: it takes a dictionary, like {{'linger.ms': '5'}}")
    for name, value in (config or {}).items():
        if not isinstance(name, str):
            raise ConfigError(f"config has the key {name!r}: option names are strings, like 'linger.ms'")
        yield name, value, f"in config as {name!r}", False


def _unknown(cls: type[ClientConfig], given: str, names: Mapping[str, str]) -> str:
    plain = given.replace(".", "_")
    hint = cls.not_supported.get(plain)
    if hint is None and plain.startswith("sasl_"):
        hint = "SASL is not supported yet"
    if hint is not None:
        return f"option {given} is not supported: {hint}"
    import difflib  # only the path of an error needs these

    from pyclient.config.foreign import OPTIONS

    kind = cls.__name__.removesuffix("Config").lower()
    instead = OPTIONS.get(kind, {}).get(plain)
    if instead is not None:
        return f"option {given} is another client's: {instead}"
    near = difflib.get_close_matches(plain, names, n=1, cutoff=0.6)
    if near:
        return f"unknown option {given}; did you mean {names[near[0]]}?"
    return f"unknown option {given}; {kind.capitalize()} takes: {', '.join(sorted(set(names.values())))}"
