"""`make bench`: the client benchmarks, one after the other; arguments that both know go to producer and consumer."""

import sys
from typing import Final

from benchmarks import consumer, producer, rebalance

_WRONG_ARGUMENTS: Final = 2  # argparse's code


def main() -> None:
    """Run all of them; exit with 1 when a goal of any is missed."""
    missed = False
    for benchmark in (producer, consumer, rebalance):
        try:
            benchmark.main()
        except SystemExit as end:
            if end.code == _WRONG_ARGUMENTS or not {"-h", "--help"}.isdisjoint(sys.argv):
                raise
            missed = missed or bool(end.code)
        if benchmark is consumer:
            del sys.argv[1:]
    raise SystemExit(1 if missed else 0)


if __name__ == "__main__":
    main()
