"""`python -m tests.simulation`: simulate clusters with clients and faults; exit status 1 if a seed violates something.

make simulate CLUSTER_SEEDS=10000 FIRST=0
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Iterator

from tests.simulation.simulation import Outcome, simulate


def main(arguments: list[str] | None = None) -> int:
    """Read the command line and run the seeds; return the exit status."""
    options = parse(arguments)
    gc.freeze()  # there are two garbage collections for each seed
    begun, records, virtual, failed = time.monotonic(), 0, 0.0, 0
    for done, outcome in enumerate(outcomes(options), 1):
        records += outcome.acknowledged
        virtual += outcome.seconds
        if outcome.violations:
            failed += 1
            _say(outcome.report(options.trace))
            if not options.keep_going:
                return 1
        if not done % 500:
            _say(f"{done} seeds, {time.monotonic() - begun:.0f} s")
    _say(
        f"{options.seeds} clusters from seed {options.first}: {records} records acknowledged in {virtual:.0f} s of "
        f"virtual time, {time.monotonic() - begun:.0f} s of real time, {failed} seeds with violations"
    )
    return 1 if failed else 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Return the options of a command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds")
    parser.add_argument("--faults", type=int, default=6, help="how many faults strike each cluster")
    parser.add_argument("--kill-in-rebalances", action="store_true", help="kill a copier whenever a rebalance begins")
    parser.add_argument("--power-in-turn", action="store_true", help="after each fault a node loses its power")
    parser.add_argument("--older-copies", action="store_true", help="nodes get older copies of their disks")
    parser.add_argument("--power-of-all", action="store_true", help="all nodes lose their power; each append is synced")
    parser.add_argument("--damage", action="store_true", help="bits of logs are flipped before faults")
    parser.add_argument("--long-isolation", action="store_true", help="a leader is isolated for 20 s")
    parser.add_argument("--unsynced", action="store_true", help="no append is synced")
    parser.add_argument("--trace", type=int, default=30, help="how many lines of a failing seed's trace are printed")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failing seed")
    return parser.parse_args(arguments)


def outcomes(options: argparse.Namespace) -> Iterator[Outcome]:
    """Yield the outcomes of the seeds, one after the other."""
    for seed in range(options.first, options.first + options.seeds):
        yield simulate(
            seed,
            faults=options.faults,
            kill_in_rebalances=options.kill_in_rebalances,
            power_in_turn=options.power_in_turn,
            older_copies=options.older_copies,
            power_of_all=options.power_of_all,
            damage=options.damage,
            long_isolation=options.long_isolation,
            unsynced=options.unsynced,
        )


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
