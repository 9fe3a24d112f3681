"""All declared messages, and values for them: from hypothesis, or one fixed sample that sets every field."""

from __future__ import annotations

import functools
import pkgutil
import uuid
from collections.abc import Iterator
from importlib import import_module
from random import Random
from typing import Any

from hypothesis import strategies as st

from pyclient.protocol import messages
from pyclient.protocol.fields import CoordinatorKey, Message, Request, Response
from pyclient.protocol.kinds import ArrayOf, Fixed, Kind, Nested, Text
from pyclient.protocol.parts import Field, blank, fields_of

BASES = (Message, Request, Response, CoordinatorKey)


@functools.cache
def all_messages() -> list[type[Message]]:
    found = [
        value
        for module in pkgutil.iter_modules(messages.__path__, f"{messages.__name__}.")
        for value in vars(import_module(module.name)).values()
        if isinstance(value, type) and issubclass(value, Message) and value not in BASES
    ]
    return sorted(found, key=lambda cls: cls.__name__)


def versions_of(cls: type[Message]) -> range:
    first, last = cls.versions
    return range(first, last + 1)


def all_versions() -> Iterator[tuple[type[Message], int]]:
    for cls in all_messages():
        for version in versions_of(cls):
            yield cls, version


def label(cls: type[Message], version: int) -> str:
    return f"{cls.__name__} v{version}"


# --- hypothesis strategies --------------------------------------------------------------------------------------


@functools.cache
def strategy_for(cls: type[Any], version: int) -> st.SearchStrategy[Any]:
    """Return a strategy for instances with arbitrary values in the version's fields."""
    present = {each.name: _field(each, version) for each in fields_of(cls) if each.present_in(version)}
    return st.fixed_dictionaries(present).map(lambda values: cls(**values))


def _field(each: Field, version: int) -> st.SearchStrategy[Any]:
    values = _value(each.kind, version)
    return st.none() | values if each.nullable_in(version) else values


def _value(kind: Kind, version: int) -> st.SearchStrategy[Any]:
    if isinstance(kind, Nested):
        return strategy_for(kind.cls, version)
    if isinstance(kind, ArrayOf):
        return st.lists(_value(kind.item, version), max_size=2)
    if isinstance(kind, Text):
        return st.text(max_size=5) | st.just("long " * 30)
    if not isinstance(kind, Fixed):
        return st.binary(max_size=5) | st.just(bytes(130))
    match kind.name:
        case "Bool":
            return st.booleans()
        case "Uuid":
            return st.uuids()
        case "Float64":
            return st.floats(allow_nan=False)
    return st.integers(*integer_range(kind))


def integer_range(kind: Fixed) -> tuple[int, int]:
    bits = kind.size * 8
    return (0, 2**bits - 1) if kind.code.isupper() else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


# --- one fixed sample -------------------------------------------------------------------------------------------


def filled(cls: type[Any], version: int) -> Any:
    """Return an instance in which no field is empty, null or at its default, and all numbers differ."""
    numbers = iter(range(1, 100_000))

    def instance(one: type[Any]) -> Any:
        return one(**{each.name: value(each.kind) for each in fields_of(one) if each.present_in(version)})

    def value(kind: Kind) -> Any:
        if isinstance(kind, Nested):
            return instance(kind.cls)
        if isinstance(kind, ArrayOf):
            return [value(kind.item), value(kind.item)]
        if isinstance(kind, Text):
            return f"täxt-{next(numbers)}"
        if not isinstance(kind, Fixed):
            return b"bytes-%d" % next(numbers)
        if kind.name == "Uuid":
            return uuid.UUID(int=next(numbers) << 64 | 7)
        if kind.name == "Bool":
            return True
        return next(numbers) % integer_range(kind)[1]

    return instance(cls)


def minimal(cls: type[Any], version: int) -> Any:
    """Return an instance with null in every nullable field, and empty or zero values elsewhere."""
    instance = blank(cls)
    for each in fields_of(cls):
        if each.present_in(version):
            if each.nullable_in(version):
                setattr(instance, each.name, None)
            elif isinstance(each.kind, ArrayOf) and isinstance(each.kind.item, Nested):
                setattr(instance, each.name, [minimal(each.kind.item.cls, version)])
            elif isinstance(each.kind, Nested):
                setattr(instance, each.name, minimal(each.kind.cls, version))
    return instance


def randomized(cls: type[Any], version: int, rng: Random) -> Any:
    """Return an instance with some fields null, empty or at their defaults; much faster than `strategy_for`."""

    def instance(one: type[Any]) -> Any:
        given = {}
        for each in fields_of(one):
            if each.present_in(version) and (each.required or rng.random() < 0.7):
                given[each.name] = None if each.nullable_in(version) and rng.random() < 0.2 else value(each.kind)
        return one(**given)

    def value(kind: Kind) -> Any:
        if isinstance(kind, Nested):
            return instance(kind.cls)
        if isinstance(kind, ArrayOf):
            return [
                value(kind.item) for _ in range(rng.choice((0, 1, 1, 2, 17)) if isinstance(kind.item, Fixed) else 1)
            ]
        if isinstance(kind, Text):
            return "é" * rng.choice((0, 1, 5, 64))
        if not isinstance(kind, Fixed):
            return rng.randbytes(rng.choice((0, 3, 127, 128)))
        match kind.name:
            case "Bool":
                return rng.random() < 0.5
            case "Uuid":
                return uuid.UUID(int=rng.getrandbits(128))
            case "Float64":
                return rng.uniform(-1e9, 1e9)
        return rng.randint(*integer_range(kind))

    return instance(cls)
