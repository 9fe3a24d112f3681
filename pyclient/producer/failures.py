"""Failed sends whose results were not observed: logged when their futures are freed, raised by `flush` or `close`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

logger: Final = logging.getLogger("pyclient.producer")


class Failure:
    """The failed records of one batch, and which of them were observed."""

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
        """Mark these records of the batch as observed."""
        self._observed.update(indexes)

    @property
    def unobserved(self) -> int:
        """The number of failed records that were neither observed nor reported."""
        return 0 if self.reported else self.count - len(self._observed)

    def bury(self) -> None:
        """Report unobserved records when the batch's last future is freed."""
        self.log.bury(self)


class UnobservedFailures:
    """All failures of one producer since the last `take`.

    It keeps one small object for each failed batch that still has futures, and two numbers for all others. The lock
    is reentrant, because a future may be freed during any allocation, this class's own included.
    """

    def __init__(self) -> None:
        self.records = 0  # failed since the producer was created, observed or not
        self._lock = threading.RLock()
        self._alive: dict[int, Failure] = {}
        self._next = 0
        self._freed = 0
        self._first_freed: tuple[int, BaseException] | None = None
        self._collected: list[tuple[Failure, int]] | None = None
        self.speak_now: Callable[[], bool] = lambda: True
        self.speak_later: Callable[[Callable[[], None]], None] = lambda report: report()

    def after_fork(self) -> None:
        """Stop reporting in a forked child, where futures are freed as well: the parent reports its failures."""
        self._lock = threading.RLock()  # a thread of the parent may have held the old one
        self.speak_now = lambda: False
        self.speak_later = lambda report: None

    def add(self, failure: Failure) -> None:
        """Add a failed batch."""
        with self._lock:
            failure.number = self._next
            self._next += 1
            self.records += failure.count
            self._alive[failure.number] = failure

    def bury(self, failure: Failure) -> None:
        """Count and log the unobserved records of a batch whose last future is freed."""
        with self._lock:
            self._alive.pop(failure.number, None)
            count = failure.unobserved
            if not count:
                return
            self._freed += count
            if self._first_freed is None or failure.number < self._first_freed[0]:
                self._first_freed = (failure.number, failure.error)
            if self._collected is not None:
                self._collected.append((failure, count))
                return
        self._log([(failure, count)])

    @contextmanager
    def in_one_line(self) -> Iterator[None]:
        """Log unobserved failures in this context as one line, as thousands of batches may fail together."""
        mine = False  # an outer context logs the line
        try:
            with self._lock:
                if self._collected is None:
                    self._collected, mine = [], True
            yield
        finally:
            if mine:
                with self._lock:
                    buried, self._collected = self._collected, None
                if buried:
                    self._log(buried)

    def _log(self, buried: list[tuple[Failure, int]]) -> None:
        if self.speak_now():
            _report(buried)
        else:
            self.speak_later(lambda: _report(buried))

    def take(self) -> tuple[int, BaseException] | None:
        """Return the number of unobserved failures since the last call and the first error; None if there are none."""
        with self._lock:
            return self._taken()

    def _taken(self) -> tuple[int, BaseException] | None:
        alive = [failure for failure in list(self._alive.values()) if failure.unobserved]
        count = self._freed + sum(failure.unobserved for failure in alive)
        firsts = [(failure.number, failure.error) for failure in alive]
        if self._first_freed is not None:
            firsts.append(self._first_freed)
        for failure in alive:
            failure.reported = True
        self._alive.clear()
        self._freed, self._first_freed = 0, None
        return (count, min(firsts, key=lambda first: first[0])[1]) if firsts else None


def _report(buried: list[tuple[Failure, int]]) -> None:
    first = min((failure for failure, _ in buried), key=lambda failure: failure.number)
    count = sum(count for _, count in buried)
    others = len({(failure.topic, failure.partition) for failure, _ in buried}) - 1
    places = f"{first.topic}-{first.partition}"
    if others:
        places += f" and {others} other partition{'s' if others > 1 else ''}"
    logger.error(
        "%d %s not delivered to %s, and the result was not checked: %s%r",
        count, "record was" if count == 1 else "records were", places,
        "the first error: " if len(buried) > 1 else "", first.error,
    )  # fmt: skip
