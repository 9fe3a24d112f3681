"""A daemon for Spark's Python workers, in which the first attempts of every task end at a chosen call of a client.

The attempt's number, the task and a seed choose the call; the process ends there without any cleaning up, as after a
signal KILL. The first attempt of some tasks goes on instead, and at its call asks for the end of a coordinator of its
transaction. What was chosen is appended to a file, one line for each end. The environment has the parameters.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Any, Final

POINTS = (
    "Consumer.assign", "Consumer.poll", "Producer.send_many", "Producer.send_many+", "Producer.flush",
    "Producer.flush+", "Producer.init_transactions", "Producer.init_transactions+", "Producer.begin_transaction",
    "Producer.send_offsets_to_transaction", "Producer.send_offsets_to_transaction+", "Producer.commit_transaction",
    "Producer.commit_transaction+", "ExactlyOnceWriter._committed+",
)  # fmt: skip
"""Calls before which, or with + after which, a process can end."""

NUMBER_OF_WRITE: Final = "dying.write"
"""The property of a task that has the number of a batch that is no micro-batch."""


@dataclass(frozen=True, slots=True)
class Request:
    """A kill that a task requests: of the coordinator of its transactional id, or of its marker's group."""

    point: str
    kind: str  # "transactions" or "groups"
    waits: bool  # until the coordinator has ended; else it ends while the task goes on


def point_of(seed: str, task: str, attempt: int, *, exactly_once: bool) -> str:
    """Return the point at which an attempt of a task ends."""
    of_transactions = ("transaction", "offsets", "_committed")
    possible = [each for each in POINTS if exactly_once or not any(word in each for word in of_transactions)]
    return random.Random(f"{seed} {task} {attempt}").choice(possible)


def request_of(seed: str, task: str) -> Request:
    """Return the kill that a task requests in its first attempt, not before it begins to write."""
    chosen = random.Random(f"{seed} {task} coordinator")
    point = chosen.choice([each for each in POINTS if not each.startswith("Consumer")])
    return Request(point, chosen.choice(["transactions", "groups"]), chosen.random() < 0.5)


def watch(owner: type, name: str, end_at: Callable[[str], None]) -> None:
    """Let a method report before and after it has run."""
    method = getattr(owner, name)

    def watched(*args: Any, **kwargs: Any) -> Any:
        end_at(f"{owner.__name__}.{name}")
        result = method(*args, **kwargs)
        end_at(f"{owner.__name__}.{name}+")
        return result

    setattr(owner, name, watched)


class Ends:
    """The kills that tasks of this process suffer or request."""

    def __init__(self) -> None:
        environment = os.environ
        self._seed, self._log = environment["DYING_SEED"], environment["DYING_LOG"]
        self._ends = int(environment["DYING_ENDS"])
        self._exactly_once = environment["DYING_EXACTLY_ONCE"] == "1"
        self._asking = environment["DYING_ASKING"].split()
        self._requests = Path(environment["DYING_REQUESTS"])
        self._asked: set[str] = set()

    def at(self, point: str) -> None:
        """Kill this process, or request the kill of a coordinator, if that is due for its task at this point."""
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None or context.attemptNumber() >= self._ends:
            return
        batch = context.getLocalProperty("streaming.sql.batchId") or context.getLocalProperty(NUMBER_OF_WRITE)
        task, attempt = f"{batch}-{context.partitionId()}", context.attemptNumber()
        if attempt == 0 and task in self._asking:
            request = request_of(self._seed, task)
            if request.point == point and task not in self._asked:
                self._asked.add(task)
                self._ask(request, task, context)
        elif point_of(self._seed, task, attempt, exactly_once=self._exactly_once) == point:
            with open(self._log, "a") as file:
                file.write(f"{task} {attempt} {point}\n")
            os._exit(9)

    def _ask(self, request: Request, task: str, context: Any) -> None:
        """Write a file that names the coordinator; the process that kills it removes the file."""
        query = context.getLocalProperty("sql.streaming.queryId") or f"write-{task.partition('-')[0]}"
        place, draft = self._requests / task, self._requests / f".{task}"
        draft.write_text(f"{request.kind} pyclient-sink-{query}-{context.partitionId()} {request.point}")
        draft.rename(place)
        while request.waits and place.exists():
            sleep(0.02)  # polls for the file's removal


def main() -> None:
    """Load the clients, watch their calls, and serve Spark."""
    from pyclient.consumer.consumer import Consumer
    from pyclient.producer.producer import Producer
    from pyclient.spark import daemon
    from pyclient.spark.exactly_once import ExactlyOnceWriter

    ends = Ends()
    for owner in (Consumer, Producer, ExactlyOnceWriter):
        for name in {point.partition(".")[2].removesuffix("+") for point in POINTS if point.startswith(owner.__name__)}:
            watch(owner, name, ends.at)
    daemon.main()


if __name__ == "__main__":
    main()
