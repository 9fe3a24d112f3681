"""Delivery: the outcome of a batch, shared by its records' futures and completed once for all of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar

from pyclient.producer.delivery_desk import DeliveryDesk, Wake
from pyclient.producer.failures import Failure
from pyclient.records import BatchOutcome
from pyclient.types import RecordMetadata

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
        failure = getattr(self, "failure", None)  # an interrupt may have cut __init__ short
        if failure is not None:
            failure.bury()

    def __repr__(self) -> str:
        return f"<Delivery {self.topic}-{self.partition} {self.state.name}>"

    # -- completing: only by the sender

    def deliver(self, count: int, base_offset: int, log_append_time_ms: int = -1) -> bool:
        """Complete the batch as delivered; return False if it was completed before."""
        with self.desk.lock:
            if self.state is not State.PENDING:
                return False
            self.count, self.base_offset, self.log_append_time_ms = count, base_offset, log_append_time_ms
            self.state = State.DELIVERED
            self.delivered = True
            waiters, callbacks = self._waiters, self.callbacks
            self._waiters = self.callbacks = None
        self._notify(waiters or (), callbacks)
        return True

    def fail(self, count: int, error: BaseException, record_errors: Mapping[int, BaseException] | None = None) -> bool:
        """Complete the batch as failed; `record_errors` has errors that differ from `error`, by index.

        Return False if it was completed before.
        """
        with self.desk.lock:
            if self.state is not State.PENDING:
                return False
            self.record_errors = record_errors or {}  # before `error`, which `peek` checks first
            self.count, self.error = count, error
            self.failure = Failure(self.desk.failures, self.topic, self.partition, count, error)
            self.desk.failures.add(self.failure)
            self.state = State.FAILED
            waiting = self._take()
        self._notify(*waiting)
        return True

    def split(self, starts: Sequence[int], parts: Sequence[Delivery]) -> None:
        """Replace the batch by parts: the records from `starts[n]` are those of `parts[n]`. Waiters move there."""
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

    def _notify(self, waiters: Sequence[_Waiter], callbacks: list[Any] | None) -> None:
        try:
            if callbacks:
                self.desk.callbacks.submit(list(zip(callbacks[1::3], callbacks[2::3], strict=True)))
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
        """Remove a `wake` that was given to `when_done`."""
        with self.desk.lock:
            if self._waiters is not None:
                self._waiters = list(filter(lambda waiter: waiter[1] is not wake, self._waiters))
        for part in self.parts:
            part.forget(wake)

    def add_callback(self, index: int, callback: Callable[[Any], object], future: Any) -> None:
        """Call `callback(future)` once the record is complete, on the producer's callback thread or event loop."""
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
