"""Counts of what was sent and what was answered, for each API and error code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

from pyclient.protocol.kinds import ArrayOf, Nested
from pyclient.protocol.parts import fields_of

_MOST_ITEMS: Final = 8  # of an array whose error codes are looked at

Collector = Callable[[Any, set[int]], None]


@cache
def collector(cls: type) -> Collector:
    """Return a function that adds the error codes of an answer, at any depth, to a set."""
    codes = [each.name for each in fields_of(cls) if each.name.endswith("error_code")]
    parts = list(_parts(cls))

    def collect(message: Any, found: set[int]) -> None:
        for name in codes:
            found.add(getattr(message, name))
        for name, many, inner in parts:
            value = getattr(message, name)
            if value is None:
                continue
            for each in value[:_MOST_ITEMS] if many else (value,):
                inner(each, found)

    return collect


def _parts(cls: type) -> Iterator[tuple[str, bool, Collector]]:
    for each in fields_of(cls):
        kind, many = each.kind, isinstance(each.kind, ArrayOf)
        if isinstance(kind, ArrayOf):
            kind = kind.item
        if isinstance(kind, Nested) and _has_codes(kind.cls):
            yield each.name, many, collector(kind.cls)


@cache
def _has_codes(cls: type) -> bool:
    kinds = [each.kind.item if isinstance(each.kind, ArrayOf) else each.kind for each in fields_of(cls)]
    return any(each.name.endswith("error_code") for each in fields_of(cls)) or any(
        isinstance(kind, Nested) and _has_codes(kind.cls) for kind in kinds
    )


class Tally:
    """Inputs by how they ended: answered with which error codes, unanswered, or with the end of the connection."""

    def __init__(self) -> None:
        self.inputs = 0
        self.answers: dict[str, Counter[int]] = {}
        self.closed: Counter[str] = Counter()
        self.waiting: Counter[str] = Counter()

    def answered(self, name: str, message: Any) -> set[int]:
        """Count an answer; return the error codes in it."""
        self.inputs += 1
        found: set[int] = set()
        collector(type(message))(message, found)
        counts = self.answers.setdefault(name, Counter())
        for code in found or (0,):
            counts[code] += 1
        return found

    def ended(self, name: str) -> None:
        """Count a connection that the broker closed instead of answering."""
        self.inputs += 1
        self.closed[name] += 1

    def abandoned(self, name: str) -> None:
        """Count a request that waited too long, and whose connection was closed."""
        self.inputs += 1
        self.waiting[name] += 1

    def lines(self) -> Iterator[str]:
        """Yield a table: each API with its answers by error code."""
        for name in sorted({*self.answers, *self.closed, *self.waiting}):
            counts = self.answers.get(name, Counter())
            codes = " ".join(f"{code}:{count}" for code, count in sorted(counts.items()))
            yield f"  {name:<30} closed:{self.closed[name]} waiting:{self.waiting[name]} {codes}"
