"""`make bench`: the client benchmarks, one after the other; arguments that both know go to producer and consumer."""

import sys

from benchmarks import consumer, producer, rebalance


def main() -> None:
    """All of them; exits with 1 when a goal of any is missed."""
    missed = False
    for benchmark in (producer, consumer, rebalance):
        try:
            benchmark.main()
        except SystemExit as end:
            missed = missed or bool(end.code)
        if benchmark is consumer:
            del sys.argv[1:]
    raise SystemExit(1 if missed else 0)


if __name__ == "__main__":
    main()
