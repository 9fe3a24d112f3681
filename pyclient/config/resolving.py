"""Create a config from keyword arguments and a Kafka-style dictionary."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pyclient.config.client import ClientConfig
from pyclient.config.fields import options_of, read
from pyclient.errors import ConfigError

log = logging.getLogger("pyclient.config")

C = TypeVar("C", bound="ClientConfig")


def resolve(
    cls: type[C],
    options: Mapping[str, Any],
    config: Mapping[str, Any] | None = None,
) -> C:
    """Return a config made from keyword `options` and a Kafka-style `config` dictionary.

    The dictionary's names have dots or underscores, its values may be strings: `{"linger.ms": "5"}`. A keyword of
    `None` means the default, unless the option allows `None`; in the dictionary it is an error then. A dictionary may
    be shared by several kinds of clients: options that only other kinds have are ignored with a warning in the log.
    Unsupported options are accepted with values that describe what pyclient does anyway. Raise one `ConfigError` with
    every option that is unknown, invalid, not supported, or given twice.
    """
    options_by_name = options_of(cls)
    names = {alias: name for name, option in options_by_name.items() for alias in (name, *option.aliases)}
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    kind = cls.__name__.removesuffix("Config").lower()
    problems: list[str] = []
    wrong: set[str] = set()
    unused: list[str] = []
    for given, value, source, by_keyword in _given(options, config, problems):
        name = names.get(given.replace(".", "_"))
        if name is None:
            translated = _translated(kind, given, value)
            if translated is None:
                continue
            name, value = translated
        if name not in options_by_name:
            if not by_keyword and (owners := _owners(kind, given)):
                unused.append(f"{given} ({owners})")
            else:
                problems.append(_unknown(kind, given, names))
            continue
        if value is None and by_keyword and not options_by_name[name].nullable:
            continue
        if name in origin:
            problems.append(f"{name} is given twice: {origin[name]} and {source}")
            continue
        origin[name] = source
        try:
            values[name] = read(options_by_name[name], value)
        except ConfigError as error:
            problems += error.problems
            wrong.add(name)
    try:
        made = cls(**values)
    except ConfigError as error:  # skips problems of a combination that includes an option reported above
        problems += [text for text in error.problems if not any(name in text for name in wrong)]
    if problems:
        raise ConfigError(*problems)
    if unused:
        log.warning("config has options that no %s uses: %s", kind, ", ".join(unused))
    return made


def _translated(kind: str, given: str, value: Any) -> tuple[str, Any] | None:
    """Return the equivalent option and value, None if it describes the default behaviour, else the option unchanged."""
    from pyclient.config.unsupported import TRANSLATED, text_of, unsupported_by

    plain = given.replace(".", "_")
    option = unsupported_by(kind).get(plain)
    if option is not None and text_of(value) in option.choices:
        return None
    name, values = TRANSLATED.get(plain, (plain, {}))
    return (name, values[text_of(value)]) if text_of(value) in values else (given, value)


def _owners(kind: str, given: str) -> str:
    """Return the other kinds of clients that have an option, as a text; "" if this kind has advice for it."""
    from pyclient.config.unsupported import OWN, UNSUPPORTED, unsupported_by

    plain = given.replace(".", "_")
    if plain in unsupported_by(kind):
        return ""
    return " and ".join(
        f"{other}s" for other in OWN if other != kind and (plain in OWN[other] or plain in UNSUPPORTED[other])
    )


def _given(
    options: Mapping[str, Any], config: Mapping[Any, Any] | None, problems: list[str]
) -> Iterable[tuple[str, Any, str, bool]]:
    """Yield each option's name, value, source as a text, and True if it is a keyword."""
    for name, value in options.items():
        yield name, value, f"as keyword {name}", True
    if config is not None and not isinstance(config, Mapping):
        raise ConfigError(f"config={config!r} is not possible: it takes a dictionary, like {{'linger.ms': '5'}}")
    for name, value in (config or {}).items():
        if not isinstance(name, str):
            problems.append(f"config has the key {name!r}: option names are strings, like 'linger.ms'")
            continue
        yield name, value, f"in config as {name!r}", False


def _unknown(kind: str, given: str, names: Mapping[str, str]) -> str:
    import difflib  # these imports are only needed for errors

    from pyclient.config.unsupported import refusal

    plain = given.replace(".", "_")
    reason = refusal(kind, plain)
    if reason is not None:
        return f"option {given} is {reason}"
    near = difflib.get_close_matches(plain, names, n=1, cutoff=0.6)
    if near:
        return f"unknown option {given}; did you mean {names[near[0]]}?"
    return f"unknown option {given}; {kind.capitalize()} takes: {', '.join(sorted(set(names.values())))}"
