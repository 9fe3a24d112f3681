"""`python -m tests.torture`: break the broker's storage for a time, and say which promises did not hold."""

from __future__ import annotations

import argparse
import logging
import random
import sys

from tests.torture.torture import WAYS, torture


def main() -> int:
    """Read the command line and run; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30), help="repeats a run")
    parser.add_argument("--seconds", type=float, default=120, help="how long, in all")
    parser.add_argument("--only", choices=sorted(WAYS), action="append", help="one way to break it, may be repeated")
    options = parser.parse_args()
    logging.getLogger("pyclient.broker_embedded").propagate = False
    logging.getLogger("pyclient.broker_embedded").addHandler(logging.NullHandler())
    print(f"seed {options.seed}", flush=True)  # noqa: T201 - a command's answer to its user
    failed = False
    ways = options.only or sorted(WAYS)
    for way in ways:
        cases, broken = torture(way, options.seed, options.seconds / len(ways))
        print(f"{way}: {cases} cases, {len(broken)} broken promises", flush=True)  # noqa: T201
        for each in broken:
            print(f"  {each}", flush=True)  # noqa: T201
        failed = failed or bool(broken)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
