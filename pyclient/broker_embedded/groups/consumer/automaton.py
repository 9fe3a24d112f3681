"""Match whole topic names against a parsed regular expression, in time proportional to the name's length.

The expression becomes a nondeterministic automaton; the sets of states that it reaches are cached, so that many names
cost little more than one lookup per character.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

ALPHABET: Final = frozenset(string.ascii_letters + string.digits + "._-")
"""The characters allowed in topic names."""

MAX_STATES: Final = 2_500
MAX_VISITS: Final = 200_000
"""Limit of visited states until `reset_budget` is called again: about 40 ms."""

_MAX_CACHED: Final = 20_000  # states in the cache
_WORD: Final = frozenset(string.ascii_letters + string.digits + "_")


class Edge(Enum):
    """A condition on a position between two characters."""

    START = "start"
    END = "end"
    WORD = "word boundary"
    NO_WORD = "no word boundary"

    def holds(self, before: str, after: str) -> bool:
        """Return True if the position between these characters meets the condition; "" is the end of the name."""
        if self is Edge.START:
            return not before
        if self is Edge.END:
            return not after
        return ((before in _WORD) != (after in _WORD)) == (self is Edge.WORD)


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set."""

    allowed: frozenset[str]


@dataclass(frozen=True, slots=True)
class Sequence:
    """Nodes in sequence."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several nodes."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A node repeated at least `low` and at most `high` times (None: no limit)."""

    node: Node
    low: int
    high: int | None


Node = Chars | Sequence | Choice | Repeat | Edge


class Automaton:
    """A compiled regular expression. State 0 accepts."""

    def __init__(self, node: Node) -> None:
        """Raise OverflowError for an expression of more than 2,500 states."""
        self._jumps: list[list[tuple[Edge | None, int]]] = [[]]
        self._reads: list[tuple[frozenset[str], int] | None] = [None]
        self._start = frozenset({self._build(node, 0)})
        self._steps: dict[tuple[frozenset[int], str, str], frozenset[int]] = {}
        self._cached = 0  # states in `_steps`
        self._budget = MAX_VISITS

    def _state(self, read: tuple[frozenset[str], int] | None, *jumps: tuple[Edge | None, int]) -> int:
        if len(self._jumps) >= MAX_STATES:
            raise OverflowError(f"more than {MAX_STATES} states")
        self._jumps.append(list(jumps))
        self._reads.append(read)
        return len(self._jumps) - 1

    def _build(self, node: Node, then: int) -> int:
        """Return the state that matches `node` and then continues with `then`."""
        match node:
            case Chars(allowed):
                return self._state((allowed, then))
            case Edge():
                return self._state(None, (node, then))
            case Sequence(parts):
                for part in reversed(parts):
                    then = self._build(part, then)
                return then
            case Choice(options):
                return self._state(None, *((None, self._build(option, then)) for option in options))
            case Repeat():
                return self._repeat(node, then)

    def _repeat(self, node: Repeat, then: int) -> int:
        if node.high is None:
            loop = self._state(None, (None, then))
            self._jumps[loop].append((None, self._build(node.node, loop)))
            then = loop
        else:
            end = then
            for _ in range(node.high - node.low):
                then = self._state(None, (None, end), (None, self._build(node.node, then)))
        for _ in range(node.low):
            then = self._build(node.node, then)
        return then

    def reset_budget(self) -> None:
        """Allow another `MAX_VISITS` visits of states."""
        self._budget = MAX_VISITS

    def matches(self, name: str) -> bool:
        """Return True if the whole name matches. Raise OverflowError if the visit budget is exhausted."""
        states, before = self._start, ""
        for char in name:
            states = self._step(states, before, char)
            if not states:
                return False
            before = char
        return 0 in self._closure(states, before, "")

    def _step(self, states: frozenset[int], before: str, char: str) -> frozenset[int]:
        key = (states, before, char)
        known = self._steps.get(key)
        if known is None:
            reads = (self._reads[state] for state in self._closure(states, before, char))
            known = frozenset(read[1] for read in reads if read is not None and char in read[0])
            self._cached += 1 + len(states) + len(known)
            if self._cached > _MAX_CACHED:
                self._steps.clear()
                self._cached = 1 + len(states) + len(known)
            self._steps[key] = known
        return known

    def _closure(self, states: frozenset[int], before: str, after: str) -> Iterator[int]:
        """Yield the states reachable between these two characters without reading one."""
        seen = set(states)
        waiting = list(states)
        while waiting:
            state = waiting.pop()
            self._budget -= 1
            if self._budget < 0:
                raise OverflowError(f"more than {MAX_VISITS} states are visited")
            yield state
            for edge, target in self._jumps[state]:
                if target not in seen and (edge is None or edge.holds(before, after)):
                    seen.add(target)
                    waiting.append(target)
