"""`python -m tests.broker_embedded.raft`: simulate many metadata quorums; exit status 1 at the first violated property.

make simulate SEEDS=100000 FIRST=0
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.broker_embedded.raft.properties import PropertyViolated
from tests.broker_embedded.raft.simulation import simulate


def main(arguments: list[str] | None = None) -> int:
    """Read the command line and run the seeds; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.broker_embedded.raft", description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds")
    options = parser.parse_args(arguments)
    begun = time.monotonic()
    committed, virtual = 0, 0.0
    for seed in range(options.first, options.first + options.seeds):
        try:
            simulation = simulate(seed)
        except PropertyViolated as error:
            _say(f"{error}\nreplay: python -m tests.broker_embedded.raft --first {seed} --seeds 1")
            return 1
        committed += len(simulation.properties.committed)
        virtual += simulation.now
        done = seed + 1 - options.first
        if not done % 5000:
            _say(f"{done} seeds, {time.monotonic() - begun:.0f} s")
    _say(
        f"{options.seeds} seeds from {options.first}: {committed} records committed in {virtual:.0f} s of virtual "
        f"time, {time.monotonic() - begun:.0f} s of real time, no property violated"
    )
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
