"""What every measured piece of work has in common: its payload, its settings, and how it is timed and told."""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Callable, Mapping

LINGER_MS = 5
BATCH_BYTES = 131_072

Prepare = Callable[[str, str, int, str, int], Callable[[], None]]
"""Takes servers, topic, size, codec and count; prepares, and returns what is to be timed."""


def values(size: int) -> list[bytes]:
    """A thousand different values of about log-like compressibility."""
    stem = b"2026-11-21T12:00:00.000Z INFO service=billing request="
    return [(stem + b"%016x " % (n * 0x9E3779B97F4A7C15 % 2**64) + b"ok " * size)[:size] for n in range(1000)]


def run_one(clients: Mapping[str, Prepare]) -> None:
    """Does the work that the command line names, in this process alone, and prints what it took as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("client", choices=sorted(clients))
    parser.add_argument("--servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--codec", required=True)
    parser.add_argument("--count", type=int, required=True)
    given = parser.parse_args()
    run = clients[given.client](given.servers, given.topic, given.size, given.codec, given.count)
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    run()
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"seconds": seconds, "cpu": cpu, "max_rss_kb": after.ru_maxrss}), flush=True)
    os._exit(0)  # what was to be measured is over; clients differ in how long they take to close
