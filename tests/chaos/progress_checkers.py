"""The invariants of liveness: records are acknowledged during faults and after them, and processes do not grow."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Final

from tests.chaos.history import CLIENTS, OK, ONE, Fault, History, ProcessState

QUIET_SECONDS: Final = 20.0
"""A time without faults that is as long as that is judged by what it acknowledges."""
_WINDOW_SECONDS: Final = 2.0
_RECOVERED: Final = 0.9  # of what was acknowledged before the first fault
_LIFE_SECONDS: Final = 30.0  # shorter lives of a process say nothing about growth
_MEMORY: Final = "memory"
_MORE: Final[dict[str, Callable[[ProcessState], float]]] = {
    "open files": lambda each: each.files / 200,
    "threads": lambda each: each.threads / 20,
    _MEMORY: lambda each: each.memory / (96 << 20),
}
"""A process's use of each resource, as a share of its allowed growth: connections and logs come and go."""


def stalls(history: History, longest: float) -> Iterator[str]:
    """Find faults after whose end no send succeeded for more than `longest` seconds."""
    times = sorted(send.ended for send in history.sends if send.outcome == OK)
    last = max((send.ended for send in history.sends), default=0.0)
    for fault in history.faults:
        at = bisect_right(times, fault.ended)
        if last > fault.ended + longest and (at == len(times) or times[at] - fault.ended > longest):
            yield f"{fault.name}: no send succeeded within {longest:g} s after it was healed"


def idle_faults(history: History, wanted: int, seconds: float) -> Iterator[str]:
    """Find faults of so many seconds or more, with a majority connected, in which too few sends succeeded."""
    times = sorted(send.ended for send in history.sends if send.outcome == OK)
    for fault in history.faults:
        if fault.majority and fault.ended - fault.began >= seconds:
            count = bisect_right(times, fault.ended) - bisect_right(times, fault.began)
            if count < wanted:
                yield f"{fault.name}: {count} sends succeeded in its {fault.ended - fault.began:.1f} s, not {wanted}"


def unrecovered_rates(history: History) -> Iterator[str]:
    """Find longer times after a fault that never had the rate of acknowledgements from before the first fault.

    The records of producers with acks=1 and of transactions do not count: these have no steady rate.
    """
    faults = sorted(history.faults, key=lambda each: each.began)
    times = sorted(
        send.ended for send in history.sends if send.outcome == OK and send.kind != ONE and not send.transaction
    )
    if not faults or not times:
        return
    before = _count(times, faults[0].began - 2 * _WINDOW_SECONDS, faults[0].began) / 2
    for fault, until in _quiet_times(faults, times[-1]):
        starts = [each for each in times if fault.ended <= each <= until - _WINDOW_SECONDS]
        best = max((_count(times, each, each + _WINDOW_SECONDS) for each in starts), default=0)
        if best < _RECOVERED * before:
            yield (
                f"{fault.name}: in the {until - fault.ended:.1f} s after it was healed at most {best} sends succeeded "
                f"in {_WINDOW_SECONDS:g} s, before all faults {before:g}"
            )


def _quiet_times(faults: Sequence[Fault], end: float) -> Iterator[tuple[Fault, float]]:
    """Yield the faults that a longer time without faults follows, each with the end of that time."""
    following = [*(each.began for each in faults[1:]), end]
    for fault, until in zip(faults, following, strict=True):
        if until - fault.ended >= QUIET_SECONDS:
            yield fault, until


def _count(times: Sequence[float], began: float, ended: float) -> int:
    return bisect_left(times, ended) - bisect_left(times, began)


def growing_processes(history: History) -> Iterator[str]:
    """Find processes with far more open files, threads or memory at the end of their life than in the beginning.

    The memory of the clients does not count: the history of the run is in their process.
    """
    lives: dict[tuple[int, int], list[ProcessState]] = defaultdict(list)
    for state in history.processes:
        lives[state.node, state.life].append(state)
    for (node, life), states in lives.items():
        if states[-1].at - states[0].at < _LIFE_SECONDS:
            continue
        third = max(1, len(states) // 3)
        for name, share in _MORE.items():
            if name == _MEMORY and node == CLIENTS:
                continue
            first, last = (median(map(share, each)) for each in (states[:third], states[-third:]))
            if last - first > 1:
                yield f"node {node}, life {life}: its {name} grew from {states[third - 1]} to {states[-1]}"


def usage(history: History) -> Iterator[str]:
    """Yield what the process of the clients used, and those of each node."""
    by_node: dict[int, list[ProcessState]] = defaultdict(list)
    for state in history.processes:
        by_node[state.node].append(state)
    for node, seen in sorted(by_node.items()):
        files, threads, memory = (
            f"{min(values)} to {max(values)}"
            for values in zip(*((each.files, each.threads, each.memory >> 20) for each in seen), strict=True)
        )
        name = "clients" if node == CLIENTS else f"node {node}"
        yield f"{name}: {files} open files, {threads} threads, {memory} MiB; {seen[-1].life} lives"
