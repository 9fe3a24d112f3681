"""DeliveryFuture, the future of one sent record, and the waits of threads and tasks for it."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Generator
from typing import Any, Protocol, cast

from pyclient.errors import KafkaTimeout
from pyclient.net.latch import Latch
from pyclient.producer.checks import check_seconds
from pyclient.producer.delivery import Delivery, State
from pyclient.producer.delivery_desk import DeliveryDesk
from pyclient.records import OutcomeHandle
from pyclient.types import RecordMetadata


def wait_until_done(desk: DeliveryDesk, delivery: Delivery, index: int, timeout: float | None) -> None:
    """Block until the record is complete; raise `KafkaTimeout` after `timeout` seconds (None: no limit)."""
    desk.check_process()
    if timeout is not None and timeout <= 0:
        raise _not_yet(delivery, "is not confirmed yet")
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
            wait_until_done(delivery.desk, delivery, index, timeout)
            delivery, index = self._delivery.locate(self.index)
        return delivery.error_of(index)

    def _add_done_callback(self, callback: Callable[[DeliveryFuture], object]) -> None:
        self._delivery.desk.check_process()
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


class Settled(Protocol):
    """The part of a complete future that `to_concurrent` uses."""

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error, or None."""
        ...

    def result(self, timeout: float | None = None) -> Any:
        """Return the value."""
        ...


def to_concurrent(
    future: Settled, add_done_callback: Callable[[Callable[[Any], object]], None]
) -> concurrent.futures.Future[Any]:
    """Return a `concurrent.futures.Future` that a callback of `future` completes with its outcome."""
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
