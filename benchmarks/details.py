"""Small measurements of one part each: cases by name, of which `--only` selects some, and the table of their figures.

Microbenchmarks take turns, and the least time of all turns counts: other programs on the machine only make it longer.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping
from statistics import median
from typing import NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

TURNS = 15

Work = Callable[[], object]
Clock = Callable[[], int]


class Figure(NamedTuple):
    """A measured value and its unit."""

    what: str
    value: float
    unit: str

    def __str__(self) -> str:
        return f"{self.value:,.0f}" if self.value >= 1000 else f"{self.value:.3g}"


Case = Callable[[], Iterator[Figure]]


def turns(works: Mapping[str, Work], repeats: int = TURNS, clock: Clock = time.thread_time_ns) -> dict[str, list[int]]:
    """Return the nanoseconds of each work in each turn, by default those of this thread on the processor."""
    for work in works.values():
        work()  # a first one, uncounted
    taken: dict[str, list[int]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            started = clock()
            work()
            taken[name].append(clock() - started)
    return taken


def least(
    works: Mapping[str, Work], count: int = 1, repeats: int = TURNS, clock: Clock = time.thread_time_ns
) -> Iterator[Figure]:
    """Yield each work's least nanoseconds for one of `count` items, in a unit that suits it."""
    for name, taken in turns(works, repeats, clock).items():
        yield span(name, min(taken) / count)


def ratio(what: str, taken: Mapping[str, list[int]], one: str, other: str) -> Figure:
    """Return how many times as long as the other one of two works takes: the median of the turns."""
    pairs = zip(taken[one], taken[other], strict=True)
    return Figure(what, median(mine / theirs for mine, theirs in pairs), "times")


def span(what: str, nanoseconds: float) -> Figure:
    """Return a time as a figure."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= size:
            return Figure(what, nanoseconds / size, unit)
    return Figure(what, nanoseconds, "ns")


def run(description: str | None, cases: Mapping[str, Case]) -> None:
    """Measure the cases that the command line selects, and print a table of each."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=list(cases), help="this case; may be repeated")
    for name in parser.parse_args().only or cases:
        table = Table(title=name, title_justify="left")
        table.add_column("")
        table.add_column("", justify="right")
        table.add_column("")
        for figure in cases[name]():
            table.add_row(escape(figure.what), str(figure), figure.unit)
        Console(width=110).print(table)
