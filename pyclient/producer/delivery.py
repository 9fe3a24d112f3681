"""Futures of sent records: light handles that share one `Delivery` per batch, which completes once for all of them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from bisect import bisect_right
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, Protocol, TypeVar, cast

from pyclient.clock import Clock
from pyclient.errors import ForkError, KafkaTimeout
from pyclient.producer.callbacks import CallbackRunner
from pyclient.producer.checks import check_seconds
from pyclient.producer.failures import Failure, UnobservedFailures
from pyclient.producer.lock import lock_timeout
from pyclient.records import BatchOutcome, OutcomeHandle
from pyclient.types import RecordMetadata

E = TypeVar("E", bound=BaseException)

Wake = Callable[[], object]
_Waiter = tuple[int, Wake]


class State(Enum):
    """A batch's records are PENDING until they are DELIVERED or FAILED; a SPLIT batch's go on in its parts."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"
    SPLIT = "split"


def fresh_copy(error: E) -> E:
    """The same error as another object, without a traceback."""
    copy = type(error).__new__(type(error), *error.args)
    copy.args = error.args
    copy.__dict__.update(error.__dict__)
    copy.__cause__ = error.__cause__
    return copy


class DeliveryDesk:
    """What all deliveries of one producer share."""

    __slots__ = ("_when_told", "callbacks", "clock", "failures", "lane", "lock", "loop", "pid", "untold")

    def __init__(self, callbacks: CallbackRunner, loop: asyncio.AbstractEventLoop | None, clock: Clock) -> None:
        self.callbacks = callbacks
        self.clock = clock
        self.failures = UnobservedFailures()
        self.lock = threading.Lock()
        self.loop = loop
        """The loop that completes deliveries: a thread that runs it may not block for one."""
        self.pid = os.getpid()
        self.lane: Any = None
        """The producer's `SendLane`, at which a thread may wait for its record's answer itself."""
        self.untold: dict[Delivery, None] = {}
        """Those whose outcome is decided, until their futures and who runs their callbacks were told of it."""
        self._when_told: list[Wake] = []  # no condition: Ctrl-C may leave its lock taken

    def told(self, delivery: Delivery) -> None:
        """An `untold` one was told."""
        self.untold.pop(delivery, None)
        while self._when_told:
            with suppress(IndexError):  # another thread was quicker
                self._when_told.pop()()

    def wait_until_told(self, deliveries: Sequence[Delivery], timeout: float | None) -> bool:
        """Waits until none of these is `untold`; False after `timeout` seconds (None: never)."""
        end = None if timeout is None else self.clock.monotonic() + timeout
        while any(each in self.untold for each in deliveries):
            if self.must_not_block():
                raise RuntimeError("futures were waited for on the event loop that completes them")
            latch = threading.Lock()
            latch.acquire()
            self._when_told.append(latch.release)
            if not any(each in self.untold for each in deliveries):  # by who did not see the latch
                break
            if not latch.acquire(timeout=lock_timeout(None if end is None else end - self.clock.monotonic())):
                return False
        return True

    def must_not_block(self) -> bool:
        """Whether the calling thread is the one that has to go on for a delivery to complete."""
        return self.loop is not None and asyncio._get_running_loop() is self.loop

    @property
    def foreign(self) -> bool:
        """Whether this is a child made by `fork`, where nothing is ever completed."""
        return self.pid != os.getpid()

    def after_fork(self, pending: Sequence[Delivery]) -> None:
        """Called in a child made by `fork` with what is not completed; to tell of failures is the parent's affair."""
        self.failures.speak_now = lambda: False
        self.failures.speak_later = lambda report: None
        for delivery in pending:
            delivery.callbacks = None  # a future would add to a list that is there, and ask nobody

    def check_process(self) -> None:
        """`ForkError` in a child made by `fork`."""
        if self.foreign:
            raise ForkError(f"this record was sent by process {self.pid}: only there its outcome becomes known")

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "a record's outcome becomes known in the process that sent it, so its future cannot be pickled: "
            "pass on what result() returns"
        )


class Delivery(BatchOutcome):
    """The outcome of one batch's records, and who waits for it.

    Only the producer's sender completes it, exactly once; any thread may look and wait.
    """

    __slots__ = ()

    count: int
    desk: DeliveryDesk
    state: State
    error: BaseException | None
    record_errors: Mapping[int, BaseException]
    failure: Failure | None
    parts: Sequence[Delivery]
    starts: Sequence[int]
    _waiters: list[_Waiter] | None

    def __init__(self, desk: DeliveryDesk, topic: str, partition: int, count: int = 0) -> None:
        super().__init__()
        self.desk = desk
        self.topic = topic
        self.partition = partition
        self.state = State.PENDING
        self.count = count  # 0 while records may still be added
        self.base_offset = -1
        self.log_append_time_ms = -1
        self.error = self.failure = self._waiters = None
        self.record_errors = {}
        self.parts = self.starts = ()

    def __del__(self) -> None:
        failure = getattr(self, "failure", None)  # an interrupt may have come before it was made
        if failure is not None:
            failure.bury()

    def __repr__(self) -> str:
        return f"<Delivery {self.topic}-{self.partition} {self.state.name}>"

    # -- completing: the sender only

    def deliver(self, count: int, base_offset: int, log_append_time_ms: int = -1) -> bool:
        """The broker confirmed the batch; False if it was completed before."""
        with self.desk.lock:
            if self.state is not State.PENDING:
                return False
            self.count, self.base_offset, self.log_append_time_ms = count, base_offset, log_append_time_ms
            self.state = State.DELIVERED
            self.delivered = True
            waiters, callbacks = self._waiters, self.callbacks
            self._waiters = self.callbacks = None
        self._tell(waiters or (), callbacks)
        return True

    def fail(self, count: int, error: BaseException, record_errors: Mapping[int, BaseException] | None = None) -> bool:
        """The batch will not be delivered; `record_errors` holds those that differ from `error`, by index."""
        with self.desk.lock:
            if self.state is not State.PENDING:
                return False
            self.count, self.error, self.record_errors = count, error, record_errors or {}
            self.failure = Failure(self.desk.failures, self.topic, self.partition, count, error)
            self.desk.failures.add(self.failure)
            self.state = State.FAILED
            waiting = self._take()
        self._tell(*waiting)
        return True

    def split(self, starts: Sequence[int], parts: Sequence[Delivery]) -> None:
        """The batch goes on as smaller ones: the records from `starts[n]` are those of `parts[n]`."""
        with self.desk.lock:
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
        waiters, callbacks = self._waiters or [], self.callbacks or []
        self._waiters = self.callbacks = None
        return waiters, callbacks

    def _tell(self, waiters: Sequence[_Waiter], callbacks: list[Any] | None) -> None:
        try:
            if callbacks:
                self.desk.callbacks.submit(list(zip(callbacks[1::3], callbacks[2::3], strict=True)))
        finally:
            for _, wake in waiters:
                wake()

    # -- looking and waiting: any thread

    def locate(self, index: int) -> tuple[Delivery, int]:
        """The delivery that now decides about record `index`, and the record's index there."""
        delivery = self
        while delivery.state is State.SPLIT:
            part = bisect_right(delivery.starts, index) - 1
            index -= delivery.starts[part]
            delivery = delivery.parts[part]
        return delivery, index

    def pending(self) -> Delivery | None:
        """This delivery, or the first of its parts, whose outcome is not known yet."""
        if self.state is State.SPLIT:
            return next((found for part in self.parts if (found := part.pending()) is not None), None)
        return self if self.state is State.PENDING else None

    def when_done(self, index: int, wake: Wake) -> None:
        """Calls `wake` once the record's outcome is known, at once if it is; it must be quick and must not raise."""
        with self.desk.lock:
            if self.state is State.PENDING:
                self._waiters = self._waiters or []
                self._waiters.append((index, wake))
                return
        if self.state is State.SPLIT:
            part, inner = self.locate(index)
            part.when_done(inner, wake)
        else:
            wake()

    def forget(self, wake: Wake) -> None:
        """Takes back a `when_done`."""
        with self.desk.lock:
            if self._waiters is not None:
                self._waiters = [waiter for waiter in self._waiters if waiter[1] is not wake]
        for part in self.parts:
            part.forget(wake)

    def add_callback(self, index: int, callback: Callable[[Any], object], future: Any) -> None:
        """Calls `callback(future)` where the producer's callbacks run, once the record's outcome is known."""
        with self.desk.lock:
            if self.state is State.PENDING:
                self.callbacks = self.callbacks or []
                self.callbacks += (index, callback, future)
                return
        if self.state is State.SPLIT:
            part, inner = self.locate(index)
            part.add_callback(inner, callback, future)
        else:
            self.desk.callbacks.submit([(callback, future)])

    def error_of(self, index: int) -> BaseException | None:
        """Why the record failed, None if it did not; the caller has then observed it.

        Each caller gets a copy: an error that is raised holds on to the frames it passed, and they to the future.
        """
        if self.failure is None or self.error is None:
            return None
        self.failure.observe((index,))
        return self.peek(index)

    def peek(self, index: int) -> BaseException | None:
        """Like `error_of`, without observing: for who only watches."""
        return None if self.error is None else fresh_copy(self.record_errors.get(index, self.error))

    def metadata_of(self, index: int, timestamp_ms: int) -> RecordMetadata:
        """Where the delivered record is."""
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        time = timestamp_ms if self.log_append_time_ms < 0 else self.log_append_time_ms
        return RecordMetadata(self.topic, self.partition, offset, time)


def wait_until_done(desk: DeliveryDesk, delivery: Delivery, index: int, timeout: float | None) -> None:
    """Blocks the thread until the record's outcome is known; `KafkaTimeout` after `timeout` seconds (None: never)."""
    check_seconds(timeout)
    if timeout is not None and timeout <= 0:
        raise KafkaTimeout(f"{delivery.topic}-{delivery.partition}: the record is not confirmed yet")
    desk.check_process()
    if desk.must_not_block():
        raise RuntimeError("a delivery future was waited for on the event loop that completes it: use `await future`")
    left = timeout
    if desk.lane is not None:
        begin = desk.clock.monotonic()
        known = desk.lane.watch.for_outcome(delivery, -1 if timeout is None else timeout)
        if known:
            return
        if known is not None and timeout is not None:
            left = max(0.0, begin + timeout - desk.clock.monotonic())
    latch = threading.Lock()
    latch.acquire()
    wake = latch.release
    delivery.when_done(index, wake)
    try:
        reached = latch.acquire(timeout=lock_timeout(left))
    except BaseException:
        delivery.forget(wake)
        raise
    if not reached:
        delivery.forget(wake)
        place = f"{delivery.topic}-{delivery.partition}"
        raise KafkaTimeout(f"{place}: the record was not confirmed within {timeout:g} s; it is still on its way")


async def await_done(delivery: Delivery, index: int) -> None:
    """Suspends the running task until the record's outcome is known."""
    delivery.desk.check_process()
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()
    home = delivery.desk.loop

    def resolve() -> None:
        if not waiter.done():
            waiter.set_result(None)

    def wake() -> None:
        if home is loop:
            resolve()
        else:
            _call_soon(loop, resolve)

    delivery.when_done(index, wake)
    try:
        await waiter
    except BaseException:
        delivery.forget(wake)
        raise


def _call_soon(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    try:
        loop.call_soon_threadsafe(function)
    except RuntimeError:  # the loop was closed meanwhile, so nobody awaits any more
        if not loop.is_closed():
            raise


class DeliveryFuture(OutcomeHandle):
    """One sent record's outcome: a reference to its batch and its place there, nothing else.

    `await future` gives its `RecordMetadata` too, on any event loop. A failure's `maybe_persisted` tells
    "certainly not written" (False) from "unknown outcome" (True).
    """

    __slots__ = ()

    @property
    def topic(self) -> str:
        """The record's topic."""
        return self._delivery.topic

    @property
    def partition(self) -> int:
        """The record's partition."""
        return self._delivery.partition

    def _done(self) -> bool:
        return self._delivery.locate(self.index)[0].state is not State.PENDING

    def _result(self, timeout: float | None) -> RecordMetadata:
        error = self.exception(timeout)
        if error is not None:
            raise error
        delivery, index = self._delivery.locate(self.index)
        return delivery.metadata_of(index, self.timestamp_ms)

    def _exception(self, timeout: float | None) -> BaseException | None:
        delivery, index = self._delivery.locate(self.index)
        if delivery.state is State.PENDING:
            wait_until_done(delivery.desk, delivery, index, timeout)
            delivery, index = self._delivery.locate(self.index)
        return delivery.error_of(index)

    def _add_done_callback(self, callback: Callable[[DeliveryFuture], object]) -> None:
        self._delivery.desk.check_process()
        self._delivery.add_callback(self.index, callback, self)

    def to_concurrent(self) -> concurrent.futures.Future[RecordMetadata]:
        """A `concurrent.futures.Future` with the same outcome, for `concurrent.futures.wait` and executors."""
        return to_concurrent(self, self.add_done_callback)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self.done():
            yield from await_done(self._delivery, self.index).__await__()
        return self.result(0)

    def __repr__(self) -> str:
        delivery, index = self._delivery.locate(self.index)
        place = f"{delivery.topic}-{delivery.partition}"
        if delivery.state is State.DELIVERED:
            return f"<DeliveryFuture {place} offset={delivery.metadata_of(index, -1).offset}>"
        if delivery.state is State.FAILED:
            return f"<DeliveryFuture {place} failed: {delivery.record_errors.get(index, delivery.error)!r}>"
        return f"<DeliveryFuture {place} pending>"

    @property
    def _delivery(self) -> Delivery:
        return cast(Delivery, self.batch)


class Settled(Protocol):
    """What `to_concurrent` asks of a future whose outcome is known."""

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error, or None."""
        ...

    def result(self, timeout: float | None = None) -> Any:
        """The value."""
        ...


def to_concurrent(
    future: Settled, add_done_callback: Callable[[Callable[[Any], object]], None]
) -> concurrent.futures.Future[Any]:
    """A `concurrent.futures.Future` that takes over `future`'s outcome, where callbacks run."""
    target: concurrent.futures.Future[Any] = concurrent.futures.Future()
    target.set_running_or_notify_cancel()

    def settle(_: object) -> None:
        error = future.exception(0)
        if error is not None:
            target.set_exception(error)
        else:
            target.set_result(future.result(0))

    add_done_callback(settle)
    return target
