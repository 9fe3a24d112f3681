"""Failed sends that nobody looked at: logged when their futures die, raised by the next `flush` or `close`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

logger: Final = logging.getLogger("pyclient.producer")


class Failure:
    """The failed records of one batch, and which of them somebody has looked at."""

    __slots__ = ("_observed", "count", "error", "log", "number", "partition", "reported", "topic")

    def __init__(self, log: UnobservedFailures, topic: str, partition: int, count: int, error: BaseException) -> None:
        self.log = log
        self.topic = topic
        self.partition = partition
        self.count = count
        self.error = error
        self.reported = False  # a flush or close has raised it
        self.number = 0
        self._observed: set[int] = set()

    def observe(self, indexes: Iterable[int]) -> None:
        """Somebody was told about these records of the batch."""
        self._observed.update(indexes)

    @property
    def unobserved(self) -> int:
        """How many records failed without anybody knowing."""
        return 0 if self.reported else self.count - len(self._observed)

    def bury(self) -> None:
        """The last future of the batch is gone: nobody can look any more."""
        self.log.bury(self)


class UnobservedFailures:
    """All failures of one producer since the last `take`.

    It keeps one small object for each failed batch that still has futures, and two numbers for all others. The lock
    is reentrant, because a future may die inside any allocation, this class's own included.
    """

    def __init__(self) -> None:
        self.records = 0  # that failed since the producer began, whether or not somebody looked
        self._lock = threading.RLock()
        self._alive: dict[int, Failure] = {}
        self._next = 0
        self._gone = 0
        self._first_gone: tuple[int, BaseException] | None = None
        self._together: list[tuple[Failure, int]] | None = None
        self.speak_now: Callable[[], bool] = lambda: True
        self.speak_later: Callable[[Callable[[], None]], None] = lambda report: report()

    def after_fork(self) -> None:
        """Called in a child made by `fork`, where futures die as well; to tell of failures is the parent's affair."""
        self._lock = threading.RLock()  # the parent's may have been held by a thread that is not here
        self.speak_now = lambda: False
        self.speak_later = lambda report: None

    def add(self, failure: Failure) -> None:
        """A batch failed."""
        with self._lock:
            failure.number = self._next
            self._next += 1
            self.records += failure.count
            self._alive[failure.number] = failure

    def bury(self, failure: Failure) -> None:
        """Counts and logs what nobody looked at; called by the batch's last future."""
        with self._lock:
            self._alive.pop(failure.number, None)
            count = failure.unobserved
            if not count:
                return
            self._gone += count
            if self._first_gone is None or failure.number < self._first_gone[0]:
                self._first_gone = (failure.number, failure.error)
            if self._together is not None:
                self._together.append((failure, count))
                return
        self._speak([(failure, count)])

    @contextmanager
    def in_one_line(self) -> Iterator[None]:
        """What is buried meanwhile is logged as one: of a thousand batches given up at once, one line says enough."""
        mine = False  # else it goes into the line of whoever began one
        try:
            with self._lock:
                if self._together is None:
                    self._together, mine = [], True
            yield
        finally:
            if mine:
                with self._lock:
                    buried, self._together = self._together, None
                if buried:
                    self._speak(buried)

    def _speak(self, buried: list[tuple[Failure, int]]) -> None:
        if self.speak_now():
            _report(buried)
        else:
            self.speak_later(lambda: _report(buried))

    def take(self) -> tuple[int, BaseException] | None:
        """How many records failed unobserved since the last call, and the first one's error; None if none did."""
        with self._lock:
            return self._taken()

    def _taken(self) -> tuple[int, BaseException] | None:
        alive = [failure for failure in list(self._alive.values()) if failure.unobserved]
        count = self._gone + sum(failure.unobserved for failure in alive)
        firsts = [(failure.number, failure.error) for failure in alive]
        if self._first_gone is not None:
            firsts.append(self._first_gone)
        for failure in alive:
            failure.reported = True
        self._alive.clear()
        self._gone, self._first_gone = 0, None
        return (count, min(firsts, key=lambda first: first[0])[1]) if firsts else None


def _report(buried: list[tuple[Failure, int]]) -> None:
    first = min((failure for failure, _ in buried), key=lambda failure: failure.number)
    count = sum(count for _, count in buried)
    others = len({(failure.topic, failure.partition) for failure, _ in buried}) - 1
    places = f"{first.topic}-{first.partition}"
    if others:
        places += f" and {others} other partition{'s' if others > 1 else ''}"
    logger.error(
        "%d %s not delivered to %s, and nobody looked at the result: %s%r",
        count, "record was" if count == 1 else "records were", places,
        "the first error: " if len(buried) > 1 else "", first.error,
    )  # fmt: skip
