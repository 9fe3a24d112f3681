"""`ThreadRunner`: runs a synchronous producer on a loop thread, with a callback thread, and ends both."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import cache
from typing import Any, Final, TypeVar

from pyclient.clock import SYSTEM_CLOCK
from pyclient.errors import ClosedError, DeliveryFailed, KafkaError, KafkaTimeout
from pyclient.net.latch import Acquirable, acquire
from pyclient.net.loop_thread import LoopThread
from pyclient.producer.buffer_pool import Waiter
from pyclient.producer.callbacks import CallbackThread
from pyclient.producer.client import ProducerClient
from pyclient.producer.config import ProducerConfig
from pyclient.producer.delivery import Delivery
from pyclient.producer.futures import await_done, wait_until_done

logger: Final = logging.getLogger("pyclient.producer")

EXIT_SECONDS: Final = 10.0
GRACE_SECONDS: Final = 0.1
"""Seconds for what is immediate unless a user's callback blocks it."""
_PACE_SECONDS: Final = 0.002  # maximum wait for the sender, for each `PACE` bytes
_END_SECONDS: Final = 2.0  # to close connections and end threads when all records are complete

T = TypeVar("T")

_abandoned: set[ThreadRunner] = set()
_runners: weakref.WeakSet[ThreadRunner] = weakref.WeakSet()


class ThreadRunner:
    """The threads of a synchronous producer; outlives one that is dropped without `close` until it is flushed."""

    def __init__(self, config: ProducerConfig) -> None:
        self.clock = SYSTEM_CLOCK
        self.ended = False
        self.callbacks = CallbackThread("pyclient-callbacks")
        self.thread = LoopThread("pyclient-sender", at_exit=self._close_at_exit)
        self._closing = threading.RLock()
        self.thread.start()
        try:
            self.client = ProducerClient(config, self.callbacks, loop=self.thread.loop, clock=self.clock)
            self.thread.run(self.client.start)
        except BaseException:
            self.thread.stop(_END_SECONDS)
            raise
        self.fast_path = self.callbacks.fast_path = self.client.open_fast_path()
        _runners.add(self)
        self.thread.keep()

    def started(self) -> ProducerClient:
        """Return the `ProducerClient`; raise `ClosedError` once the producer is closed."""
        self.client.check_open()
        return self.client

    def run(self, work: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
        """Run `work(*arguments)` on the loop thread and return its result."""
        return self.thread.run(work, *arguments)

    # -- waiting

    def left(self, deadline: float | None) -> float | None:
        """Return the seconds until the deadline, 0 if it has passed; None without one."""
        return None if deadline is None else max(0.0, deadline - self.clock.monotonic())

    def deadline(self, timeout: float | None) -> float | None:
        """Return the monotonic time in `timeout` seconds; None for None."""
        return None if timeout is None else self.clock.monotonic() + timeout

    def until(self, attempt: Callable[[Waiter], T], deadline: float) -> T:
        """Call `attempt(waiter)`, and again each time the waiter that it returns is woken.

        Return its first other result, or the waiter if the deadline passes before.
        """
        latch = threading.Lock()
        latch.acquire()
        waiter = Waiter(latch.release)
        try:
            return self._try_until(attempt, waiter, latch, deadline)
        finally:
            waiter.gone = True  # at once: a second interrupt may come before `give_up`
            self.client.give_up(waiter)

    def _try_until(self, attempt: Callable[[Waiter], T], waiter: Waiter, latch: Acquirable, deadline: float) -> T:
        """Run the loop of `until` outside `try`: an interrupt at its jump back skips a `finally` (Python 3.12 on)."""
        while (result := attempt(waiter)) is waiter:
            left = deadline - self.clock.monotonic()
            if left <= 0 or not acquire(latch, left):
                break
        return result

    def pace(self) -> None:
        """Keep pace with the sender if much is buffered: before a record that begins a batch."""
        if self.client.accumulator.pool.far_ahead:
            self.keep_pace()

    def keep_pace(self) -> None:
        """Wait briefly for the sender when much is buffered.

        This keeps batches in the processor's cache until they are sent, and the broker busy from the start
        (docs/measurements.md, "Pace of the sender").
        """
        pool = self.client.accumulator.pool
        latch = threading.Lock()
        latch.acquire()
        wake = latch.release
        with self.client.lock:
            if not pool.must_pace(wake):
                return
        if not latch.acquire(timeout=_PACE_SECONDS):
            with self.client.lock:
                pool.forget(wake)

    def wait_for(self, deliveries: list[Delivery], deadline: float | None) -> None:
        """Wait until all are complete and their callbacks queued; raise `KafkaTimeout` at the deadline."""
        for delivery in deliveries:
            while (pending := delivery.pending()) is not None:
                wait_until_done(self.client.context, pending, 0, self.left(deadline))
        if deliveries and not self.client.context.wait_until_notified(deliveries, self.left(deadline)):
            raise KafkaTimeout("all records have an outcome, but not all futures were completed in time")

    def callbacks_ran(self, deadline: float | None) -> bool:
        """Wait until the queued callbacks have run; return False at the deadline.

        Only the callback thread knows if there are any, so it gets a moment for that even if no time is left.
        """
        left = self.left(deadline)
        return self.callbacks.wait(None if left is None else max(left, GRACE_SECONDS))

    def flush(self, timeout: float | None) -> None:
        """Send all records accepted before this call, wait for them and their callbacks; see `Producer.flush`."""
        deadline = self.deadline(timeout)
        deliveries = self.client.begin_flush()
        try:
            self.wait_for(deliveries, deadline)
        except KafkaTimeout:
            raise self.client.not_flushed(deliveries, timeout or 0.0) from None
        if not self.callbacks_ran(deadline):
            raise KafkaTimeout(f"all records have an outcome, but callbacks took longer than {timeout:g} s")
        self.client.raise_unobserved()

    def abort(self, error: KafkaError, *, on_wire: bool = True, timeout: float | None = None) -> None:
        """Fail all incomplete records, or with `on_wire=False` those that are not in flight.

        Runs on the loop's thread, because an interrupt halfway would leave inconsistent batches. Raise `KafkaTimeout`
        if that does not get to it within `timeout` seconds.
        """

        async def work() -> None:
            self.client.abort(error, on_wire=on_wire)

        self.thread.run(work, timeout=timeout)

    # -- the end

    @property
    def closed(self) -> bool:
        """True once `close` was called: no records are accepted."""
        return self.client.closed

    def close(self, timeout: float | None) -> None:
        """Deliver accepted records within `timeout` seconds, fail the rest, and end the threads.

        Raise `DeliveryFailed` if records failed unobserved. An interrupted close may be called again. A concurrent
        close waits for the first, and after its own `timeout` fails the rest for both; in a callback it returns at
        once, because the first waits for the callback.
        """
        if self.ended:
            return
        deadline = self.deadline(timeout)
        self.client.stop_accepting()
        try:
            if not self._begin_closing(timeout):
                return
            self._deliver_and_end(deadline)
        finally:
            try:  # noqa: SIM105  # no `suppress`, whose calls an interrupt could hit before the release
                self._closing.release()
            except RuntimeError:  # it was not acquired
                pass
        self.client.raise_unobserved()

    def _begin_closing(self, timeout: float | None) -> bool:
        """Acquire the right to close; return False if another close has it and will soon be done."""
        if self.callbacks.runs_here:  # the other close waits for this callback
            return self._closing.acquire(blocking=False)
        if acquire(self._closing, timeout):
            return True
        error = self.client.closed_before()
        with suppress(ClosedError):  # the other close has just ended the loop
            try:
                self.abort(error, timeout=_END_SECONDS)  # after this, the other close waits only for callbacks
            except KafkaTimeout:  # the loop is slow or blocked
                self.thread.call_soon(self.client.abort, error)
        return self._closing.acquire(timeout=GRACE_SECONDS)

    def _deliver_and_end(self, deadline: float | None) -> None:
        if self.ended:  # by a concurrent close
            return
        if self.client.transactions is not None:
            with suppress(KafkaTimeout):
                self.thread.run(self.client.end_transaction, self.left(deadline))
        with suppress(KafkaTimeout):  # `_end` fails the rest
            self.wait_for(self.client.begin_flush(), deadline)
        self._end(deadline)

    def _end(self, deadline: float | None) -> None:
        try:
            self.thread.run_last(self.client.shut_down, _END_SECONDS)
        except (KafkaTimeout, ClosedError):
            self.client.abort(self.client.closed_before())
        left = self.left(deadline)
        if not self.callbacks.stop(None if left is None else max(left, GRACE_SECONDS)):
            logger.warning("the producer was closed while a callback still ran: later callbacks may not have run yet")
        self.thread.stop(_END_SECONDS)
        self.ended = True

    def _close_at_exit(self) -> None:
        try:
            self.close(self.left(_exit_deadline()))
        except DeliveryFailed as failed:  # there is no caller to raise it to
            logger.error("at the interpreter's exit: %s", failed)

    def abandon(self) -> None:
        """Deliver the records of a producer that was dropped without `close`, in the background.

        The garbage collector may call it in any thread at any moment, so it takes no lock.
        """
        _abandoned.add(self)
        try:
            self.thread.call_soon(self._begin_end)
        except ClosedError:
            _abandoned.discard(self)

    def _begin_end(self) -> None:
        self.client.stop_accepting()
        self._ending = self.thread.loop.create_task(self._end_in_background())

    async def _end_in_background(self) -> None:
        await self.client.end_transaction(None)
        for delivery in self.client.begin_flush():
            while (pending := delivery.pending()) is not None:
                await await_done(pending, 0)
        await self.client.shut_down()
        self.callbacks.stop(0)
        self.ended = True
        _abandoned.discard(self)
        self.thread.stop(0)

    # -- state

    @property
    def state(self) -> str:
        """The state that `repr` shows."""
        return self.client.state

    def health(self) -> dict[str, Any]:
        """See `Producer.health`."""
        return self.client.health()

    def metrics(self) -> dict[str, Any]:
        """See `Producer.metrics`."""
        return self.client.metrics()


@cache
def _exit_deadline() -> float:
    """Return the time until which the interpreter's exit waits for producers; the first call flushes all of them."""
    for runner in list(_runners):
        if not runner.ended and not runner.client.context.foreign:
            runner.client.begin_flush()
    return SYSTEM_CLOCK.monotonic() + EXIT_SECONDS
