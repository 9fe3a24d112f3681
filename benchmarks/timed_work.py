"""The shared parts of all measured work: payload, settings, timing and reporting."""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Callable, Mapping
from pathlib import Path

LINGER_MS = 5
BATCH_BYTES = 131_072

Figures = Mapping[str, float]
Prepare = Callable[[str, str, int, str, int], Callable[[], Figures | None]]
"""Takes servers, topic, size, codec and count; prepares, and returns the work to measure, which may add figures."""


def values(size: int) -> list[bytes]:
    """Return a thousand different values of about log-like compressibility."""
    stem = b"2026-11-21T12:00:00.000Z INFO service=billing request="
    return [(stem + b"%016x " % (n * 0x9E3779B97F4A7C15 % 2**64) + b"ok " * size)[:size] for n in range(1000)]


def run_one(clients: Mapping[str, Prepare]) -> None:
    """Do the work that the command line names, in this process alone, and print its figures as JSON."""
    given = arguments(clients).parse_args()
    run = clients[given.client](given.servers, given.topic, given.size, given.codec, given.count)
    report(timed(run))


def arguments(clients: Mapping[str, object]) -> argparse.ArgumentParser:
    """Return the parser of such a process's command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("client", choices=sorted(clients))
    parser.add_argument("--servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--codec", required=True)
    parser.add_argument("--count", type=int, required=True)
    return parser


def timed(run: Callable[[], Figures | None]) -> Figures:
    """Return the wall and CPU seconds of one run, with the figures it adds."""
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    added = run() or {}
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": seconds, "cpu": cpu, "peak_kb": _peak_kb(), **added}


def _peak_kb() -> int:
    """Return the highest resident set of this process in KiB, without what its parent held when it forked."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1])


def report(figures: Figures) -> None:
    """Print the figures and exit; clients differ in how long they take to close."""
    print(json.dumps(figures), flush=True)
    os._exit(0)
