"""`DeliveryFuture` of one record and `BatchFuture` of a `send_many`."""

from __future__ import annotations

import asyncio
import concurrent.futures
from array import array
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, cast, overload

from pyclient.errors import DeliveryFailed, KafkaTimeout
from pyclient.net.latch import Latch
from pyclient.producer.checks import check_callback, check_seconds
from pyclient.producer.delivery import Delivery, DeliveryContext, State
from pyclient.producer.implementation import OutcomeHandle
from pyclient.types import RecordMetadata


def wait_until_done(context: DeliveryContext, delivery: Delivery, index: int, timeout: float | None) -> None:
    """Block until the record is complete; raise `KafkaTimeout` after `timeout` seconds (None: no limit)."""
    context.check_process()
    if timeout is not None and timeout <= 0:
        raise _not_yet(delivery, "is not confirmed yet")
    if context.must_not_block():
        raise RuntimeError("a delivery future was waited for on the event loop that completes it: use `await future`")
    left = timeout
    if context.fast_path is not None:
        begin = context.clock.monotonic()
        known = context.fast_path.waiter.for_outcome(delivery, -1 if timeout is None else timeout)
        if known:
            return
        if known is not None and timeout is not None:
            left = max(0.0, begin + timeout - context.clock.monotonic())
    latch = Latch()
    wake = latch.open
    delivery.when_done(index, wake)
    try:
        reached = latch.wait(left)
    except BaseException:
        delivery.forget(wake)
        raise
    if not reached:
        delivery.forget(wake)
        raise _not_yet(delivery, f"was not confirmed within {timeout:g} s")


def _not_yet(delivery: Delivery, text: str) -> KafkaTimeout:
    place = f"{delivery.topic}-{delivery.partition}"
    advice = "wait longer, or check the producer's health()"
    return KafkaTimeout(f"{place}: the record {text}; it is still being sent: {advice}")


async def await_done(delivery: Delivery, index: int) -> None:
    """Suspend the running task until the record is complete."""
    delivery.context.check_process()
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()
    home = delivery.context.loop

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
    except RuntimeError:  # the loop was closed meanwhile: no task awaits any more
        if not loop.is_closed():
            raise


class DeliveryFuture(OutcomeHandle):
    """The outcome of one sent record: a reference to its batch and its index there, nothing else.

    `await future` returns its `RecordMetadata` too, on any event loop. An error's `maybe_persisted` is False if the
    record was certainly not written, True if the outcome is unknown.
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
        error = self._exception(timeout)
        if error is not None:
            raise error
        delivery, index = self._delivery.locate(self.index)
        return delivery.metadata_of(index, self.timestamp_ms)

    def _exception(self, timeout: float | None) -> BaseException | None:
        check_seconds(timeout)
        delivery, index = self._delivery.locate(self.index)
        if delivery.state is State.PENDING:
            wait_until_done(delivery.context, delivery, index, timeout)
            delivery, index = self._delivery.locate(self.index)
        return delivery.error_of(index)

    def _add_done_callback(self, callback: Callable[[DeliveryFuture], object]) -> None:
        self._delivery.context.check_process()
        self._delivery.add_callback(self.index, callback, self)

    def to_concurrent(self) -> concurrent.futures.Future[RecordMetadata]:
        """Return a `concurrent.futures.Future` with the same outcome, for `concurrent.futures.wait` and executors.

        It is completed by a delivery callback, so slow callbacks delay it, and its own callbacks run there.
        """
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


class CompletedFuture(Protocol):
    """The part of a complete future that `to_concurrent` uses."""

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error, or None."""
        ...

    def result(self, timeout: float | None = None) -> Any:
        """Return the value."""
        ...


def to_concurrent(
    future: CompletedFuture, add_done_callback: Callable[[Callable[[Any], object]], None]
) -> concurrent.futures.Future[Any]:
    """Return a `concurrent.futures.Future` that a callback of `future` completes with its outcome."""
    target: concurrent.futures.Future[Any] = concurrent.futures.Future()
    target.set_running_or_notify_cancel()

    def complete(_: object) -> None:
        error = future.exception(0)
        if error is not None:
            target.set_exception(error)
        else:
            target.set_result(future.result(0))

    add_done_callback(complete)
    return target


class Span(NamedTuple):
    """Records of one call that are contiguous in one batch, from index `first`.

    `positions` are their indexes in the call, `times` their timestamps (ms), or the one they share.
    """

    delivery: Delivery
    first: int
    positions: Sequence[int]
    times: Sequence[int] | int

    def time(self, place: int) -> int:
        """Return the timestamp of the span's record `place`, in milliseconds since the epoch."""
        return self.times if isinstance(self.times, int) else self.times[place]

    def current(self) -> Iterator[tuple[Delivery, int, range]]:
        """Yield the records' current batches, as batches may split: (delivery, first index, range in the span)."""
        start, stop = 0, len(self.positions)
        if self.delivery.state is not State.SPLIT:
            yield self.delivery, self.first, range(stop)
            return
        while start < stop:
            delivery, index = self.delivery.locate(self.first + start)
            count = min(stop - start, delivery.count - index) if delivery.count else stop - start
            yield delivery, index, range(start, start + count)
            start += count

    def pending(self) -> tuple[Delivery, int] | None:
        """Return the first batch that is not complete, and the index in it; None if all are."""
        for delivery, index, _ in self.current():
            if delivery.state is State.PENDING:
                return delivery, index
        return None


class BatchFuture:
    """The outcome of a `send_many`.

    `len(future)` records were given; `delivered` and `failed` count those whose outcome is known. `offsets`,
    `partitions` and `failures` are indexed as in the call. `future[3]` is the fourth record's own future.
    A record that was refused while others were accepted (too large, not bytes) is a failure like any other.
    """

    def __init__(self, context: DeliveryContext, count: int, spans: Sequence[Span]) -> None:
        self._context = context
        self._count = count
        self._spans = spans
        self._span_of: array[int] | None = None

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        delivered, failed = self.delivered, self.failed
        pending = self._count - delivered - failed
        return f"<BatchFuture {self._count} records: {delivered} delivered, {failed} failed, {pending} pending>"

    def __getitem__(self, position: int) -> DeliveryFuture:
        if not -self._count <= position < self._count:
            raise IndexError(f"the call had {self._count} records, there is no record {position}")
        position %= self._count
        if self._span_of is None:
            self._span_of = self._index_spans()
        span = self._spans[self._span_of[position]]
        place = bisect_left(span.positions, position)
        return DeliveryFuture(span.delivery, span.first + place, span.time(place))

    @property
    def delivered(self) -> int:
        """The number of records confirmed so far."""
        return self._in_state(State.DELIVERED)

    @property
    def failed(self) -> int:
        """The number of records that have failed so far."""
        return self._in_state(State.FAILED)

    @property
    def offsets(self) -> list[int]:
        """Each record's offset; -1 for one that failed, is not confirmed yet, or was sent with acks=0."""
        offsets = [-1] * self._count
        for span in self._spans:
            for delivery, index, places in span.current():
                if delivery.state is State.DELIVERED and delivery.base_offset >= 0:
                    for offset, place in enumerate(places, delivery.base_offset + index):
                        offsets[span.positions[place]] = offset
        return offsets

    @property
    def partitions(self) -> list[int]:
        """Each record's partition; -1 for one that was refused before it had one."""
        partitions = [-1] * self._count
        for span in self._spans:
            for position in span.positions:
                partitions[position] = span.delivery.partition
        return partitions

    @property
    def failures(self) -> dict[int, BaseException]:
        """The errors of the records that failed so far, by index; the caller has then observed them."""
        failures: dict[int, BaseException] = {}
        for span in self._spans:
            if span.delivery.state is State.DELIVERED:  # skips a loop over records: docs/measurements.md, "send_many"
                continue
            for delivery, index, places in span.current():
                if delivery.state is not State.FAILED:
                    continue
                for inner, place in enumerate(places, index):
                    error = delivery.error_of(inner)
                    if error is not None:
                        failures[span.positions[place]] = error
        return dict(sorted(failures.items()))

    def done(self) -> bool:
        """Return True if every record is complete."""
        return next(self._pending(), None) is None

    def result(self, timeout: float | None = None) -> BatchMetadata:
        """Return the records' metadata; wait up to `timeout` seconds (None: no limit).

        Raise `DeliveryFailed` if any record failed (`failures` has their errors), `KafkaTimeout` if not all are
        complete in time.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        return BatchMetadata(self)

    def exception(self, timeout: float | None = None) -> DeliveryFailed | None:
        """Return `DeliveryFailed` if any record failed, None if all were delivered; wait like `result`."""
        check_seconds(timeout)
        now = self._context.clock.monotonic
        deadline = None if timeout is None else now() + timeout
        for delivery, index in self._pending():
            left = None if deadline is None else max(0.0, deadline - now())
            try:
                wait_until_done(self._context, delivery, index, left)
            except KafkaTimeout:
                late = f"{delivery.topic}-{delivery.partition}"
                text = f"{self!r}: not all records were confirmed within {timeout:g} s, one to {late} for example"
                raise KafkaTimeout(f"{text}; they are still being sent: wait longer, or check the brokers") from None
        return self._delivery_failed()

    def add_done_callback(self, callback: Callable[[BatchFuture], object]) -> None:
        """Call `callback(future)` once every record is complete, on the client's callback thread or event loop."""
        check_callback(callback, "callback")
        self._context.check_process()
        pending = self._pending()

        def go_on(_: object) -> None:
            delivery, index = next(pending, (None, 0))
            if delivery is not None:
                delivery.add_callback(index, go_on, None)
            else:
                callback(self)

        self._context.callbacks.submit([(go_on, None)])

    def to_concurrent(self) -> concurrent.futures.Future[BatchMetadata]:
        """Return a `concurrent.futures.Future` with the same outcome; see `DeliveryFuture.to_concurrent`."""
        return to_concurrent(self, self.add_done_callback)

    def __await__(self) -> Generator[Any, None, BatchMetadata]:
        for delivery, index in self._pending():
            yield from await_done(delivery, index).__await__()
        return self.result(0)

    def _in_state(self, state: State) -> int:
        count, split = 0, State.SPLIT
        for span in self._spans:
            found = span.delivery.state
            if found is state:
                count += len(span.positions)
            elif found is split:
                count += sum(len(places) for delivery, _, places in span.current() if delivery.state is state)
        return count

    def _pending(self) -> Iterator[tuple[Delivery, int]]:
        """Yield incomplete batches one by one; check a span again after each, as its batch may have split."""
        for span in self._spans:
            while span.delivery.state is not State.DELIVERED and (found := span.pending()) is not None:
                yield found

    def _index_spans(self) -> array[int]:
        owners = array("q", bytes(8 * self._count))
        for number, span in enumerate(self._spans):
            for position in span.positions:
                owners[position] = number
        return owners

    def _delivery_failed(self) -> DeliveryFailed | None:
        failures = self.failures
        return DeliveryFailed(len(failures), next(iter(failures.values()))) if failures else None


class BatchMetadata(Sequence[RecordMetadata]):
    """The metadata of the records of one `send_many`, by index; each `RecordMetadata` is created on access."""

    def __init__(self, future: BatchFuture) -> None:
        self._future = future

    def __len__(self) -> int:
        return len(self._future)

    def __repr__(self) -> str:
        return f"<BatchMetadata of {len(self)} records>"

    @overload
    def __getitem__(self, position: int) -> RecordMetadata: ...

    @overload
    def __getitem__(self, position: slice) -> list[RecordMetadata]: ...

    def __getitem__(self, position: int | slice) -> RecordMetadata | list[RecordMetadata]:
        if isinstance(position, slice):
            return [self._future[one].result(0) for one in range(*position.indices(len(self)))]
        return self._future[position].result(0)
