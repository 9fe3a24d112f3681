"""The producer benchmark's tables: absolute figures, the ratio to a peer, and whether a goal is reached."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from benchmarks.latency import Latency
from benchmarks.memory_work import BUFFER_MEMORY
from benchmarks.produce_cases import BARE, CONFLUENT, Case, Found

SLACK = 32 * 1024 * 1024  # bytes over buffer_memory
HELD = 80  # bytes for each record whose future is held
_MB = 1e6
_RESULTS = {True: "reached", False: "missed"}


def show_throughput(case: Case, found: Mapping[str, Found], broker: str) -> bool:
    """Print records and bytes a second, CPU a record, and ratios to the peer; return False when a goal is missed.

    An entry with a goal against confluent-kafka may not need more CPU per record, either. If a bare socket was
    measured, the table has the share of its rate that the others reach, and for a missed goal the socket's own ratio.
    """
    met = True
    bare = found[BARE] if BARE in found and found[BARE].runs else None
    columns = ("msg/s", "MB/s", "CPU us/msg", *(["of bare"] if bare else []), "rate ratio", "CPU ratio", "goal")
    table = _table(case, _runs(broker, found), *columns)
    for name, one in found.items():
        if not one.runs:
            table.add_row(name, one.failure or "no run")
            continue
        cells = [name, f"{one.rate:,.0f}", f"{one.rate * case.size / _MB:,.1f}", f"{one.cpu_us:.2f}"]
        if bare:
            cells.append(f"{one.rate / bare.rate:.2f}")
        peer = found.get(one.entry.against)
        if peer is not None and peer.runs:
            ratio, cpu = one.rate / peer.rate, one.cpu_us / peer.cpu_us
            cheap = cpu <= 1 or not one.entry.against.startswith(CONFLUENT.partition("-")[0])
            reached = not one.entry.goal or (ratio >= one.entry.goal and cheap)
            goal = f">= {one.entry.goal:g} {_RESULTS[reached]}" if one.entry.goal else ""
            if bare and not reached:
                goal += f", bare {bare.rate / peer.rate:.1f}"
            met = met and reached
            cells += [f"{ratio:.2f}", f"{cpu:.2f}", goal]
        table.add_row(*cells)
    Console(width=130).print(table)
    return met


def show_large_buffer(case: Case, found: Mapping[str, Found], broker: str) -> bool:
    """Print the rates, and the most memory that each process held: ours may be the peer's and 32 MiB.

    Return False when a goal is missed.
    """
    met = show_throughput(case, found, broker)
    for name, one in found.items():
        peer = found.get(one.entry.against)
        if peer is None or not (one.runs and peer.runs):
            continue
        ours, theirs = (each.middle("peak_kb") * 1024 for each in (one, peer))
        reached = ours <= theirs + SLACK
        met = met and reached
        text = f"{name}: {ours / _MB:.0f} MB resident at most; {peer.entry.name}: {theirs / _MB:.0f} MB"
        Console(width=130).print(f"{text}; no more than that and {SLACK / _MB:.0f} MB {_RESULTS[reached]}")
    return met


def show_latency(case: Case, found: Latency, broker: str) -> bool:
    """Print the milliseconds from a record's due time to its delivery; return False when a goal is missed.

    Percentiles and their ratios to the peer's turn of the same round are medians over the turns; the last column is
    over all records of all turns. The title has the number of rounds that count, and the share of the machine's time
    that its host took in them.
    """
    met, clients = True, found.clients
    turns = max(len(client.turns) for client in clients.values())
    columns = ("p50 ms", "p90 ms", "p99 ms", "p50 ratio", "p99 ratio", "goal", "p99 of all")
    table = _table(case, f"{broker}, {turns} of {found.rounds} rounds, host {found.taken_away:.1%}", *columns)
    for name, client in clients.items():
        cells = [name, *(f"{client.middle(share):.3f}" for share in (50, 90, 99))]
        peer = clients.get(client.entry.against)
        if peer is None:
            cells += ["", "", ""]
        else:
            ratios = [client.ratio(peer, share) for share in (50, 99)]
            met = met and max(ratios) <= 1
            cells += [*(f"{ratio:.2f}" for ratio in ratios), f"<= 1 {_RESULTS[max(ratios) <= 1]}"]
        table.add_row(*cells, f"{client.overall(99):.3f}")
    Console(width=130).print(table)
    return met


def show_memory(case: Case, found: Mapping[str, Found], broker: str) -> bool:
    """Print the megabytes that the process grew by and may grow by; return False when it is more."""
    met = True
    table = _table(case, _runs(broker, found), "grown MB", "allowed MB", "futures held", "goal")
    for name, one in found.items():
        if not one.runs:
            table.add_row(name, one.failure or "no run")
            continue
        growth = max(run["growth"] for run in one.runs)
        held = one.middle("held")
        allowed = BUFFER_MEMORY + SLACK + HELD * held
        ours = name.startswith("pyclient")
        met = met and (growth <= allowed or not ours)
        result = _RESULTS[growth <= allowed] if ours else ""
        table.add_row(name, f"{growth / _MB:.1f}", f"{allowed / _MB:.1f}", f"{held:,.0f}", result)
    Console(width=130).print(table)
    return met


def _runs(broker: str, found: Mapping[str, Found]) -> str:
    return f"{broker}, {max(len(one.runs) for one in found.values())} runs"


def _table(case: Case, broker: str, *columns: str) -> Table:
    place = f"{case.partitions} partition{'s' if case.partitions > 1 else ''}, {broker}"
    table = Table(title=f"{case.title}\n{case.size} B, {case.codec}, {place}")
    table.add_column("client", min_width=28)
    for column in columns:
        table.add_column(column, justify="right")
    return table
