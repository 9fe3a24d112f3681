"""The producer benchmark's tables: absolute figures, the ratio to a peer, and whether a goal is reached."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from benchmarks.memory_work import BUFFER_MEMORY
from benchmarks.produce_cases import Case, Entry, Found

SLACK = 32 * 1024 * 1024  # bytes over buffer_memory
HELD = 80  # bytes for each record whose future is held
_MB = 1e6


def show_throughput(case: Case, found: Mapping[str, Found], broker: str) -> None:
    """Records and bytes a second, CPU a record, and the ratios to the peer that each is compared with."""
    table = _table(case, found, broker, "msg/s", "MB/s", "CPU us/msg", "rate ratio", "CPU ratio", "goal")
    for name, one in found.items():
        if not one.runs:
            table.add_row(name, one.failure or "no run")
            continue
        cells = [name, f"{one.rate:,.0f}", f"{one.rate * case.size / _MB:,.1f}", f"{one.cpu_us:.2f}"]
        peer = found.get(one.entry.against)
        if peer is not None and peer.runs:
            ratio = one.rate / peer.rate
            cells += [f"{ratio:.2f}", f"{one.cpu_us / peer.cpu_us:.2f}", _verdict(one.entry, ratio)]
        table.add_row(*cells)
    Console(width=120).print(table)


def show_latency(case: Case, found: Mapping[str, Found], broker: str) -> None:
    """Milliseconds from when a record was due to when its delivery was seen."""
    table = _table(case, found, broker, "p50 ms", "p90 ms", "p99 ms", "p50 ratio", "p99 ratio", "goal")
    for name, one in found.items():
        if not one.runs:
            table.add_row(name, one.failure or "no run")
            continue
        cells = [name, *(f"{one.middle(share):.3f}" for share in ("p50", "p90", "p99"))]
        peer = found.get(one.entry.against)
        if peer is not None and peer.runs:
            ratios = [one.middle(share) / peer.middle(share) for share in ("p50", "p99")]
            cells += [*(f"{ratio:.2f}" for ratio in ratios), "reached" if max(ratios) <= 1 else "<= 1"]
        table.add_row(*cells)
    Console(width=120).print(table)


def show_memory(case: Case, found: Mapping[str, Found], broker: str) -> None:
    """Megabytes that the process grew by, and those that it may."""
    table = _table(case, found, broker, "grown MB", "allowed MB", "futures held", "goal")
    for name, one in found.items():
        if not one.runs:
            table.add_row(name, one.failure or "no run")
            continue
        growth = max(run["growth"] for run in one.runs)
        held = one.middle("held")
        allowed = BUFFER_MEMORY + SLACK + HELD * held
        verdict = "" if not name.startswith("pyclient") else "reached" if growth <= allowed else "missed"
        table.add_row(name, f"{growth / _MB:.1f}", f"{allowed / _MB:.1f}", f"{held:,.0f}", verdict)
    Console(width=120).print(table)


def _table(case: Case, found: Mapping[str, Found], broker: str, *columns: str) -> Table:
    runs = max(len(one.runs) for one in found.values())
    place = f"{case.partitions} partition{'s' if case.partitions > 1 else ''}, {broker}, {runs} runs"
    table = Table(title=f"{case.title}\n{case.size} B, {case.codec}, {place}")
    table.add_column("client", min_width=28)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _verdict(entry: Entry, ratio: float) -> str:
    if not entry.goal:
        return ""
    return f">= {entry.goal:g} {'reached' if ratio >= entry.goal else 'missed'}"
