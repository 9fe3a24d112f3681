"""Delivery: the outcome of a batch, shared by its records' futures and completed once for all of them.

`DeliveryContext` is the context that the deliveries of one producer share, `UnobservedFailures` the failed sends whose
results were not looked at: they are logged when their futures are freed, and raised by `flush` or `close`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar

from pyclient.clock import Clock
from pyclient.errors import ForkError, KafkaError, TransactionAborted
from pyclient.net.latch import Latch
from pyclient.producer.callbacks import CallbackRunner
from pyclient.producer.implementation import BatchOutcome
from pyclient.types import RecordMetadata

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

    def report_unobserved(self) -> None:
        """Report unobserved records when the batch's last future is freed."""
        self.log.report_unobserved(self)


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
        self.may_log_now: Callable[[], bool] = lambda: True
        self.log_later: Callable[[Callable[[], None]], None] = lambda report: report()

    def after_fork(self) -> None:
        """Stop reporting in a forked child, where futures are freed as well: the parent reports its failures."""
        self._lock = threading.RLock()  # a thread of the parent may have held the old one
        self.may_log_now = lambda: False
        self.log_later = lambda report: None

    def add(self, failure: Failure) -> None:
        """Add a failed batch."""
        with self._lock:
            failure.number = self._next
            self._next += 1
            self.records += failure.count
            self._alive[failure.number] = failure

    def report_unobserved(self, failure: Failure) -> None:
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
                    unobserved, self._collected = self._collected, None
                if unobserved:
                    self._log(unobserved)

    def _log(self, unobserved: list[tuple[Failure, int]]) -> None:
        if self.may_log_now():
            _report(unobserved)
        else:
            self.log_later(lambda: _report(unobserved))

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


def _report(unobserved: list[tuple[Failure, int]]) -> None:
    first = min((failure for failure, _ in unobserved), key=lambda failure: failure.number)
    count = sum(count for _, count in unobserved)
    others = len({(failure.topic, failure.partition) for failure, _ in unobserved}) - 1
    places = f"{first.topic}-{first.partition}"
    if others:
        places += f" and {others} other partition{'s' if others > 1 else ''}"
    logger.error(
        "%d %s not delivered to %s, and the result was not checked: %s%r",
        count, "record was" if count == 1 else "records were", places,
        "the first error: " if len(unobserved) > 1 else "", first.error,
    )  # fmt: skip


Wake = Callable[[], object]


class DeliveryContext:
    """The context shared by all deliveries of one producer."""

    __slots__ = ("_waiters", "callbacks", "clock", "failures", "fast_path", "lock", "loop", "pid", "unnotified")

    def __init__(self, callbacks: CallbackRunner, loop: asyncio.AbstractEventLoop | None, clock: Clock) -> None:
        self.callbacks = callbacks
        self.clock = clock
        self.failures = UnobservedFailures()
        self.lock = threading.Lock()
        self.loop = loop
        """The loop that completes deliveries; its thread must not block for one."""
        self.pid = os.getpid()
        self.fast_path: Any = None
        """The producer's `FastPath`, from which a waiting thread may read its record's response itself."""
        self.unnotified: dict[Delivery, None] = {}
        """Deliveries whose outcome is decided, but whose futures and callbacks are not notified yet."""
        self._waiters: list[Wake] = []

    def notified(self, delivery: Delivery) -> None:
        """Note that the futures of an `unnotified` delivery are notified, and wake waiters."""
        self.unnotified.pop(delivery, None)
        while self._waiters:
            with suppress(IndexError):  # another thread popped it
                self._waiters.pop()()

    def wait_until_notified(self, deliveries: Sequence[Delivery], timeout: float | None) -> bool:
        """Wait until the futures of all these, and of their parts, are notified.

        Return False after `timeout` seconds (None: no limit).
        """
        end = None if timeout is None else self.clock.monotonic() + timeout
        while self._any_unnotified(deliveries):
            if self.must_not_block():
                raise RuntimeError("futures were waited for on the event loop that completes them")
            latch = Latch()
            self._waiters.append(latch.open)
            if not self._any_unnotified(deliveries):  # `notified` may have run before the latch was in the list
                break
            if not latch.wait(None if end is None else end - self.clock.monotonic()):
                return False
        return True

    def _any_unnotified(self, deliveries: Sequence[Delivery]) -> bool:
        # loops instead of any(): an interrupt while a generator is closed is printed and lost
        for each in deliveries:
            for last in each.last_parts():
                if last in self.unnotified:
                    return True
        return False

    def must_not_block(self) -> bool:
        """Return True if the calling thread runs the loop that completes deliveries."""
        return self.loop is not None and asyncio._get_running_loop() is self.loop

    @property
    def foreign(self) -> bool:
        """True in a forked child, where no delivery is ever completed."""
        return self.pid != os.getpid()

    def after_fork(self, pending: Sequence[Delivery]) -> None:
        """Detach the callbacks of incomplete deliveries in a forked child."""
        self.failures.after_fork()
        for delivery in pending:
            delivery.callbacks = None  # compiled futures append to an existing list without a check

    def check_process(self) -> None:
        """Raise `ForkError` in a forked child."""
        if self.foreign:
            raise ForkError(f"delivery results are only available in process {self.pid}, which sent the record")

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "a record's outcome is only available in the process that sent it, so its future cannot be pickled: "
            "pass on what result() returns"
        )


E = TypeVar("E", bound=BaseException)

_Waiter = tuple[int, Wake]


class State(Enum):
    """The state of a batch: PENDING until it is DELIVERED, FAILED or SPLIT into parts that have their own state."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"
    SPLIT = "split"


def fresh_copy(error: E) -> E:
    """Return a copy of the error, without its traceback."""
    copy = type(error).__new__(type(error), *error.args)
    copy.args = error.args
    copy.__dict__.update(error.__dict__)
    copy.__cause__ = error.__cause__
    return copy


class Delivery(BatchOutcome):
    """The outcome of one batch's records, with its waiters and callbacks.

    Only the producer's sender completes it, exactly once; any thread may read it and wait.
    """

    __slots__ = ()

    count: int
    context: DeliveryContext
    state: State
    error: BaseException | None
    record_errors: Mapping[int, BaseException]
    failure: Failure | None
    parts: Sequence[Delivery]
    starts: Sequence[int]
    waiters: list[_Waiter] | None

    def __init__(self, context: DeliveryContext, topic: str, partition: int, count: int = 0) -> None:
        super().__init__()
        self.context = context
        self.topic = topic
        self.partition = partition
        self.state = State.PENDING
        self.count = count  # 0 while records may still be added
        self.base_offset = -1
        self.log_append_time_ms = -1
        self.error = self.failure = self.waiters = None
        self.record_errors = {}
        self.parts = self.starts = ()

    def __del__(self) -> None:
        failure = getattr(self, "failure", None)  # an interrupt may have cut __init__ short
        if failure is not None:
            failure.report_unobserved()

    def __repr__(self) -> str:
        return f"<Delivery {self.topic}-{self.partition} {self.state.name}>"

    # -- completing: only by the sender

    def deliver(self, count: int, base_offset: int, log_append_time_ms: int = -1) -> bool:
        """Complete the batch as delivered; return False if it was completed before."""
        with self.context.lock:
            if self.state is not State.PENDING:
                return False
            self.count, self.base_offset, self.log_append_time_ms = count, base_offset, log_append_time_ms
            self.state = State.DELIVERED
            self.delivered = True
            waiters, callbacks = self.waiters, self.callbacks
            self.waiters = self.callbacks = None
        self._notify(waiters or (), callbacks)
        return True

    def fail(self, count: int, error: BaseException, record_errors: Mapping[int, BaseException] | None = None) -> bool:
        """Complete the batch as failed; `record_errors` has errors that differ from `error`, by index.

        Return False if it was completed before.
        """
        with self.context.lock:
            if self.state is not State.PENDING:
                return False
            self.record_errors = record_errors or {}  # before `error`, which `peek` checks first
            self.count, self.error = count, error
            self.failure = Failure(self.context.failures, self.topic, self.partition, count, error)
            self.failure.reported = isinstance(error, TransactionAborted)  # the abort has its own caller
            self.context.failures.add(self.failure)
            self.state = State.FAILED
            waiting = self._take()
        self._notify(*waiting)
        return True

    def split(self, starts: Sequence[int], parts: Sequence[Delivery]) -> None:
        """Replace the batch by parts: the records from `starts[n]` are those of `parts[n]`. Waiters move there."""
        with self.context.lock:
            self.parts, self.starts = parts, starts
            self.state = State.SPLIT
            waiters, callbacks = self._take()
        for index, wake in waiters:
            part, inner = self.locate(index)
            part.when_done(inner, wake)
        for index, callback, future in zip(callbacks[::3], callbacks[1::3], callbacks[2::3], strict=True):
            part, inner = self.locate(index)
            part.add_callback(inner, callback, future)

    def _take(self) -> tuple[list[_Waiter], list[Any]]:
        waiters, callbacks = self.waiters or [], self.callbacks or []
        self.waiters = self.callbacks = None
        return waiters, callbacks

    def _notify(self, waiters: Sequence[_Waiter], callbacks: list[Any] | None) -> None:
        try:
            if callbacks:
                self.context.callbacks.submit(list(zip(callbacks[1::3], callbacks[2::3], strict=True)))
        finally:
            for _, wake in waiters:
                wake()

    # -- reading and waiting: any thread

    def locate(self, index: int) -> tuple[Delivery, int]:
        """Return the delivery, after splits, that has record `index`, and the record's index there."""
        delivery = self
        while delivery.state is State.SPLIT:
            part = bisect_right(delivery.starts, index) - 1
            index -= delivery.starts[part]
            delivery = delivery.parts[part]
        return delivery, index

    def pending(self) -> Delivery | None:
        """Return this delivery, or the first of its parts, that is not complete; None if there is none."""
        if self.state is State.SPLIT:
            for part in self.parts:
                if (found := part.pending()) is not None:
                    return found
            return None
        return self if self.state is State.PENDING else None

    def last_parts(self) -> Sequence[Delivery]:
        """Return this delivery, or after splits its innermost parts."""
        if self.state is State.SPLIT:
            return [last for part in self.parts for last in part.last_parts()]
        return (self,)

    def when_done(self, index: int, wake: Wake) -> None:
        """Call `wake` once the record is complete, at once if it is; `wake` must be quick and must not raise."""
        with self.context.lock:
            if self.state is State.PENDING:
                self.waiters = self.waiters or []
                self.waiters.append((index, wake))
                return
        if self.state is State.SPLIT:
            part, inner = self.locate(index)
            part.when_done(inner, wake)
        else:
            wake()

    def forget(self, wake: Wake) -> None:
        """Remove a `wake` that was given to `when_done`."""
        with self.context.lock:
            if self.waiters is not None:
                self.waiters = list(filter(lambda waiter: waiter[1] is not wake, self.waiters))
        for part in self.parts:
            part.forget(wake)

    def add_callback(self, index: int, callback: Callable[[Any], object], future: Any) -> None:
        """Call `callback(future)` once the record is complete, on the producer's callback thread or event loop."""
        with self.context.lock:
            if self.state is State.PENDING:
                self.callbacks = self.callbacks or []
                self.callbacks += (index, callback, future)
                return
        if self.state is State.SPLIT:
            part, inner = self.locate(index)
            part.add_callback(inner, callback, future)
        else:
            self.context.callbacks.submit([(callback, future)])

    def error_of(self, index: int) -> BaseException | None:
        """Return the record's error, None if it did not fail; marks it as observed.

        Each caller gets a copy: a raised error references the frames that it passed, and they the future.
        """
        if self.failure is None or self.error is None:
            return None
        self.failure.observe((index,))
        return self.peek(index)

    def peek(self, index: int) -> BaseException | None:
        """Return the record's error like `error_of`, without marking it as observed."""
        return None if self.error is None else fresh_copy(self.record_errors.get(index, self.error))

    def metadata_of(self, index: int, timestamp_ms: int) -> RecordMetadata:
        """Return the metadata of a delivered record."""
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        time = timestamp_ms if self.log_append_time_ms < 0 else self.log_append_time_ms
        return RecordMetadata(self.topic, self.partition, offset, time)


@dataclass(slots=True)
class BatchResult:
    """A batch's outcome, decided under the producer's lock; `notify` is called outside the lock."""

    delivery: Delivery
    count: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    error: KafkaError | None = None
    record_errors: Mapping[int, BaseException] | None = None

    def __post_init__(self) -> None:
        self.delivery.context.unnotified[self.delivery] = None

    def notify(self) -> bool:
        """Complete the batch's futures; return False if they were completed before."""
        try:
            if self.error is not None:
                return self.delivery.fail(self.count, self.error, self.record_errors)
            return self.delivery.deliver(self.count, self.base_offset, self.log_append_time_ms)
        finally:
            self.delivery.context.notified(self.delivery)
