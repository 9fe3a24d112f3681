"""`python -m tests.chaos --seed 1 --seconds 360`: chaos runs; prints a report and fails if anything was violated."""

from __future__ import annotations

import argparse
import logging
import random
import sys
from pathlib import Path

from tests.chaos.nemeses import ALL_FAULTS, FAULTS, WIDE_FAULTS, of_share
from tests.chaos.run import CONTROLS, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    parser.add_argument("--seconds", type=float, default=360.0)
    parser.add_argument("--fault-seconds", type=float, default=4.0, help="how long a fault lasts")
    parser.add_argument("--breadth", choices=("plain", "wide"), default="plain", help="wide: more clients and faults")
    parser.add_argument("--only", action="append", choices=sorted(ALL_FAULTS), help="only these faults")
    parser.add_argument("--share", type=_share, default=(1, 1), metavar="K/N", help="only every N-th of these faults")
    parser.add_argument("--each-once", action="store_true", help="go on until each of the faults has come once")
    parser.add_argument("--control", choices=CONTROLS, help="kill leaders under acks=1, which must lose records")
    parser.add_argument("--history", type=Path, help="write what happened to this file")
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    sys.stdout.write(f"seed {options.seed}\n")
    wide = options.breadth == "wide" or not WIDE_FAULTS.keys().isdisjoint(options.only or ())
    names = of_share(options.only or (ALL_FAULTS if wide else FAULTS), *options.share)
    if not names:
        parser.error("there is no fault in this share")
    result = run(
        options.seed,
        options.seconds,
        names,
        options.fault_seconds,
        options.control,
        wide=wide,
        each_once=options.each_once,
        kill_clients=wide and not options.only,
    )
    sys.stdout.write(f"{result.report()}\n")
    if options.history is not None:
        result.history.write(options.history)
    return 1 if result.violations or result.failures else 0


def _share(text: str) -> tuple[int, int]:
    """Return the numbers of a share, as "1/2"."""
    share, shares = map(int, text.split("/"))
    if not 1 <= share <= shares:
        raise ValueError(text)
    return share, shares


if __name__ == "__main__":
    sys.exit(main())
