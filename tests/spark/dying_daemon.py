"""A daemon for Spark's Python workers, in which the first attempts of every task end at a chosen call of a client.

The attempt's number, the task and a seed choose the call; the process ends there without any cleaning up, as after a
signal KILL. What was chosen is appended to a file, one line for each end. The environment has the parameters.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

POINTS = (
    "Consumer.assign", "Consumer.poll", "Producer.send_many", "Producer.send_many+", "Producer.flush",
    "Producer.flush+", "Producer.init_transactions", "Producer.init_transactions+", "Producer.begin_transaction",
    "Producer.send_offsets_to_transaction", "Producer.send_offsets_to_transaction+", "Producer.commit_transaction",
    "Producer.commit_transaction+", "ExactlyOnceWriter._committed+",
)  # fmt: skip
"""Calls before which, or with + after which, a process can end."""


def point_of(seed: str, task: str, attempt: int, *, exactly_once: bool) -> str:
    """Return the point at which an attempt of a task ends."""
    of_transactions = ("transaction", "offsets", "_committed")
    possible = [each for each in POINTS if exactly_once or not any(word in each for word in of_transactions)]
    return random.Random(f"{seed} {task} {attempt}").choice(possible)


def watch(owner: type, name: str, end_at: Callable[[str], None]) -> None:
    """Let a method report before and after it has run."""
    method = getattr(owner, name)

    def watched(*args: Any, **kwargs: Any) -> Any:
        end_at(f"{owner.__name__}.{name}")
        result = method(*args, **kwargs)
        end_at(f"{owner.__name__}.{name}+")
        return result

    setattr(owner, name, watched)


def main() -> None:
    """Load the clients, watch their calls, and serve Spark."""
    from pyclient.consumer.consumer import Consumer
    from pyclient.producer.producer import Producer
    from pyclient.spark import daemon
    from pyclient.spark.exactly_once import ExactlyOnceWriter

    environment = os.environ
    seed, ends, log = environment["DYING_SEED"], int(environment["DYING_ENDS"]), environment["DYING_LOG"]
    exactly_once = environment["DYING_EXACTLY_ONCE"] == "1"

    def end_at(point: str) -> None:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None or context.attemptNumber() >= ends:
            return
        batch = context.getLocalProperty("streaming.sql.batchId")
        task = f"{batch}-{context.partitionId()}"
        if point_of(seed, task, context.attemptNumber(), exactly_once=exactly_once) != point:
            return
        with open(log, "a") as file:
            file.write(f"{task} {context.attemptNumber()} {point}\n")
        os._exit(9)

    for owner in (Consumer, Producer, ExactlyOnceWriter):
        for name in {point.partition(".")[2].removesuffix("+") for point in POINTS if point.startswith(owner.__name__)}:
            watch(owner, name, end_at)
    daemon.main()


if __name__ == "__main__":
    main()
