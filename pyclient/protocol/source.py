"""Generate Python source for the encode and decode functions that the codec compiles."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from struct import Struct
from typing import Any, Final

FEW: Final = 16
ITEMS_A_STEP: Final = 32
"""Array items that are encoded or decoded between two pauses (docs/measurements.md, "Requests of many items")."""


@cache
def few_packers(code: str) -> list[Callable[..., bytes]]:
    """Return `pack` methods for 0, 1, ... values of a format: most arrays are short, and parsing a format is slow."""
    return [Struct(f">{count}{code}").pack for count in range(FEW)]


@cache
def few_unpackers(code: str) -> list[Callable[..., tuple[Any, ...]]]:
    """Return `unpack_from` methods for 0, 1, ... values of a format."""
    return [Struct(f">{count}{code}").unpack_from for count in range(FEW)]


class Source:
    """Indented source lines, the names they use, and the run of adjacent fixed-width values not yet written.

    Adjacent fixed-width values are collected in a run and share one `struct` call; `flush` writes it with the
    subclass's `write_run`. With `in_steps` the function is a generator that pauses in long arrays.
    """

    def __init__(self, names: dict[str, Any], *, in_steps: bool = False) -> None:
        self.names = names
        self.in_steps = in_steps
        self.run: list[tuple[str, str]] = []
        self._lines: list[str] = []
        self._depth = 0
        self._count = 0

    def line(self, text: str) -> None:
        """Add a line at the current indentation."""
        self._lines.append("    " * self._depth + text)

    def fresh(self, stem: str) -> str:
        """Return an unused variable name."""
        self._count += 1
        return f"{stem}{self._count}"

    def refer(self, stem: str, value: object) -> str:
        """Return a name by which the source can refer to `value`."""
        if self.names.setdefault(stem, value) is not value:
            raise ValueError(f"the name {stem} refers to another value already")
        return stem

    def packer(self, format: str, method: str) -> str:
        """Return a name for a bound method of a `Struct`."""
        name = f"{method}_{format}".replace("?", "t")
        if name not in self.names:
            self.names[name] = getattr(Struct(">" + format), method)
        return name

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Open an indented block; the run is flushed at its start and end."""
        self.flush()
        with self.detour(header):
            before = len(self._lines)
            yield
            self.flush()
            if len(self._lines) == before:
                self.line("pass")

    @contextmanager
    def detour(self, header: str) -> Iterator[None]:
        """Open an indented block without flushing the run, for lines that only prepare values."""
        self.line(header)
        self._depth += 1
        yield
        self._depth -= 1

    def flush(self) -> None:
        """Write the run."""
        if self.run:
            run, self.run = self.run, []
            self.write_run(run)

    def begin_steps(self) -> None:
        """Start the function: set the counter of items until the next pause."""
        if self.in_steps:
            self.line(f"left = {ITEMS_A_STEP}")
            self.line("steps = 0")
            self.line("if 0: yield")  # a generator even without arrays

    def step(self, *before_pause: str) -> None:
        """End an array item: pause after every `ITEMS_A_STEP` items."""
        if self.in_steps:
            self.line("left -= 1")
            with self.detour("if not left:"):
                for text in (*before_pause, f"left = {ITEMS_A_STEP}", "steps += 1", "yield"):
                    self.line(text)

    def write_run(self, run: list[tuple[str, str]]) -> None:
        """Write one `struct` call for (format code, expression or target) pairs."""
        raise NotImplementedError

    def compile(self, function: str) -> Callable[..., Any]:
        """Compile and return the function. Its source is kept in `linecache` for tracebacks and debuggers."""
        text = "\n".join(self._lines) + "\n"
        filename = f"<pyclient {function}>"
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        exec(compile(text, filename, "exec"), self.names)
        compiled: Callable[..., Any] = self.names[function]
        return compiled
