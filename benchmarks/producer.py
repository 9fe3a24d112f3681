"""The producer compared with other clients: throughput, CPU, latency, memory, as ratios in one run.

`python -m benchmarks.producer [--only NAME] [--runs N] [--count N] [--bootstrap-servers HOST:PORT]`

NAME is one of send (one call a record), large-buffer (1 KB records, 256 MB of `buffer_memory`), bulk (`send_many`),
pure (without the compiled codec), latency, memory, topics (the first record to each of many).
Clients take turns, each in a process of its own that has warmed up, all of a round on the same fresh topic; the first
round does not count, and memory is made ready for each run, since its first use is several times slower than any later.
For latency the processes live on and take short turns (`benchmarks/latency.py`).
Without `--bootstrap-servers` everything runs on the embedded broker in its own process, then on a real Kafka that
was under load before until its JVM had compiled what it does. The tables of bulk have bare sockets in them that send
prebuilt batches: no client is quicker than those, and "of bare" says how near each comes to them.
Exits with 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.clusters import fresh_topic, measured_clusters
from benchmarks.latency import run_latency
from benchmarks.produce_cases import BULK, LARGE_BUFFER, LATENCY, MEMORY, PURE, SEND, TOPICS, Case, Found
from benchmarks.produce_tables import show_large_buffer, show_latency, show_memory, show_throughput
from benchmarks.warming import memory_at_hand, warm_up

CASES = {
    "send": SEND,
    "large-buffer": LARGE_BUFFER,
    "bulk": BULK,
    "pure": PURE,
    "latency": LATENCY,
    "memory": MEMORY,
    "topics": TOPICS,
}
SHOW = {"memory": show_memory, "large-buffer": show_large_buffer}
FROZEN_SECONDS = 0.08  # of every tenth of a second, for a broker that is slower than its producer


def run_case(case: Case, servers: str, runs: int, count: int) -> dict[str, Found]:
    """Do interleaved runs of every entry; the first round is not counted."""
    found = {entry.name: Found(entry) for entry in case.entries}
    for number in range(runs + 1):
        with fresh_topic(servers, case.partitions) as topic:
            for entry in case.entries:
                memory_at_hand()
                found[entry.name].measure(case, servers, topic, count, counts=number > 0)
    return found


@contextmanager
def slowed_down(pid: int | None) -> Iterator[None]:
    """Stop a broker process of our own for four fifths of the time during the block; nothing without a process id."""
    if pid is None:
        yield
        return
    over = threading.Event()

    def stop_and_go() -> None:
        while not over.wait(0.1 - FROZEN_SECONDS):
            os.kill(pid, signal.SIGSTOP)
            over.wait(FROZEN_SECONDS)
            os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=stop_and_go)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def main() -> None:
    """Measure every case, or the one asked for, and print a table for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=sorted(CASES), help="measure this alone")
    parser.add_argument("--bootstrap-servers", help="measure on this cluster; without it, on an embedded one")
    parser.add_argument("--count", type=int, default=300_000, help="records of 100 bytes in a run")
    parser.add_argument("--runs", type=int, default=5, help="interleaved runs; medians are printed")
    given = parser.parse_args()
    met = True
    for servers, name, pid in measured_clusters(given.bootstrap_servers):
        if not (given.bootstrap_servers or pid):
            warm_up(servers)
        for kind, cases in CASES.items():
            if given.only in (None, kind):
                for case in cases:
                    if kind == "latency":
                        met = show_latency(case, run_latency(case, servers, given.runs), name) and met
                        continue
                    if case.slow_broker and pid is None:
                        continue
                    with slowed_down(pid if case.slow_broker else None):
                        found = run_case(case, servers, case.runs or given.runs, given.count)
                    met = SHOW.get(kind, show_throughput)(case, found, name) and met
    raise SystemExit(0 if met else 1)


if __name__ == "__main__":
    main()
