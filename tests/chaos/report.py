"""The figures of a chaos run, by fault: gaps between acknowledgements, and times until all partitions take records."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.chaos.history import OK, ONE, Fault, History, Place

_LEAD_SECONDS: Final = 0.5


@dataclass
class FaultFigures:
    """The effect of all faults of one name: their durations, gaps and recoveries, in seconds."""

    name: str
    lasted: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    """Between two successive acknowledgements of a partition, from shortly before a fault until the next one."""
    recoveries: list[float] = field(default_factory=list)
    """From the end of a fault until each partition has acknowledged a record; infinite if one did not."""
    overtaken: int = 0
    """The number of faults before whose recovery the next one began: its effect on the recovery is not known."""

    def row(self) -> str:
        """Return a line of the report."""
        longest, p99 = max(self.gaps, default=0.0), percentile(self.gaps, 0.99)
        recovery = f"{max(self.recoveries):.2f} s" if self.recoveries else "-"
        return (
            f"{self.name:<40} {len(self.lasted):>5} {max(self.lasted):>7.1f} s {longest:>8.2f} s {p99:>8.3f} s "
            f"{recovery:>10} {self.overtaken:>9}"
        )


HEADER: Final = (
    f"{'fault':<40} {'times':>5} {'lasted':>9} {'max gap':>10} {'p99 gap':>10} {'recovery':>10} {'overtaken':>9}"
)


def figures(history: History, recovery: float) -> list[FaultFigures]:
    """Return the figures of each fault, in the order of their first times.

    They count acknowledgements with acks=all, until the next fault, and for `recovery` seconds after a fault at most.
    """
    acknowledged: dict[Place, list[float]] = defaultdict(list)
    for send in history.sends:
        if send.outcome == OK and send.kind != ONE:
            acknowledged[send.place].append(send.ended)
    times = [sorted(each) for each in acknowledged.values()]
    found: dict[str, FaultFigures] = {}
    for fault, following in _with_next(history.faults):
        end = min(fault.ended + recovery, following)
        made = found.setdefault(fault.name, FaultFigures(fault.name))
        made.lasted.append(fault.ended - fault.began)
        for each in times:
            low, high = bisect_left(each, fault.began - _LEAD_SECONDS), bisect_left(each, end)
            made.gaps += [later - earlier for earlier, later in itertools.pairwise(each[low : high + 1])]
        wait = max((_wait(each, fault.ended) for each in times), default=math.inf)
        if fault.ended + wait > following:
            made.overtaken += 1
        else:
            made.recoveries.append(wait)
    return list(found.values())


def _with_next(faults: Sequence[Fault]) -> Iterator[tuple[Fault, float]]:
    """Yield each fault with the time at which the next one begins."""
    ordered = sorted(faults, key=lambda each: each.began)
    yield from zip(ordered, [*(each.began for each in ordered[1:]), math.inf], strict=False)


def _wait(times: list[float], since: float) -> float:
    at = bisect_left(times, since)
    return times[at] - since if at < len(times) else math.inf


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least that share of the values does not exceed; 0 without values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0
