"""A small writer of Python source, for the encode and decode functions that the codec compiles."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from struct import Struct
from typing import Any, Final

FEW: Final = 16
ITEMS_A_STEP: Final = 32
"""Items of arrays that are encoded or decoded between two pauses: 10 to 50 us."""


@cache
def few_packers(code: str) -> list[Callable[..., bytes]]:
    """`pack` methods for 0, 1, ... values of a format: short arrays are the usual ones, and formats cost to parse."""
    return [Struct(f">{count}{code}").pack for count in range(FEW)]


@cache
def few_unpackers(code: str) -> list[Callable[..., tuple[Any, ...]]]:
    """`unpack_from` methods for 0, 1, ... values of a format."""
    return [Struct(f">{count}{code}").unpack_from for count in range(FEW)]


class Source:
    """Lines at a depth, the names they use, and a run of neighbouring fixed-width values not yet written.

    Neighbours of fixed width are gathered in a run and share one `struct` call; `flush` writes it. Each subclass says
    how (`write_run`). With `in_steps` the function is a generator that pauses in long arrays.
    """

    def __init__(self, names: dict[str, Any], *, in_steps: bool = False) -> None:
        self.names = names
        self.in_steps = in_steps
        self.run: list[tuple[str, str]] = []
        self._lines: list[str] = []
        self._depth = 0
        self._count = 0

    def line(self, text: str) -> None:
        """Add a line at the current depth."""
        self._lines.append("    " * self._depth + text)

    def fresh(self, stem: str) -> str:
        """A variable name not used before."""
        self._count += 1
        return f"{stem}{self._count}"

    def refer(self, stem: str, value: object) -> str:
        """A name by which the source can refer to `value`."""
        if self.names.setdefault(stem, value) is not value:
            raise ValueError(f"two things are called {stem}")
        return stem

    def packer(self, format: str, method: str) -> str:
        """A name for a bound method of a `Struct`."""
        name = f"{method}_{format}".replace("?", "t")
        if name not in self.names:
            self.names[name] = getattr(Struct(">" + format), method)
        return name

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """An indented block; no run reaches across its edges."""
        self.flush()
        with self.detour(header):
            before = len(self._lines)
            yield
            self.flush()
            if len(self._lines) == before:
                self.line("pass")

    @contextmanager
    def detour(self, header: str) -> Iterator[None]:
        """An indented block that leaves the run open, for lines that only prepare values."""
        self.line(header)
        self._depth += 1
        yield
        self._depth -= 1

    def flush(self) -> None:
        """Write what is in the run."""
        if self.run:
            run, self.run = self.run, []
            self.write_run(run)

    def begin_steps(self) -> None:
        """At the start of the function: the count of items until its next pause."""
        if self.in_steps:
            self.line(f"left = {ITEMS_A_STEP}")
            self.line("steps = 0")
            self.line("if 0: yield")  # a generator even where no array is

    def step(self, *before_pause: str) -> None:
        """At the end of an item: pause after every `ITEMS_A_STEP` of them."""
        if self.in_steps:
            self.line("left -= 1")
            with self.detour("if not left:"):
                for text in (*before_pause, f"left = {ITEMS_A_STEP}", "steps += 1", "yield"):
                    self.line(text)

    def write_run(self, run: list[tuple[str, str]]) -> None:
        """Write one `struct` call for (format code, expression or target) pairs."""
        raise NotImplementedError

    def compile(self, function: str) -> Callable[..., Any]:
        """The function of that name. Its source is kept in `linecache`, so that tracebacks and debuggers show it."""
        text = "\n".join(self._lines) + "\n"
        filename = f"<pyclient {function}>"
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        exec(compile(text, filename, "exec"), self.names)
        compiled: Callable[..., Any] = self.names[function]
        return compiled
