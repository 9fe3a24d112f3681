"""What a synchronous producer stands on: the core on a loop thread, the callback thread, and their end."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Final, TypeVar

from pyclient.clock import SYSTEM_CLOCK
from pyclient.errors import ClosedError, DeliveryFailed, KafkaError, KafkaTimeout
from pyclient.net.latch import Acquirable, acquire
from pyclient.net.loop_thread import LoopThread
from pyclient.producer.buffer_pool import Waiter
from pyclient.producer.callbacks import CallbackThread
from pyclient.producer.config import ProducerConfig
from pyclient.producer.core import ProducerCore
from pyclient.producer.delivery import Delivery
from pyclient.producer.delivery_future import await_done, wait_until_done

logger: Final = logging.getLogger("pyclient.producer")

EXIT_SECONDS: Final = 10.0
_PACE_SECONDS: Final = 0.002  # how long the sender is waited for, at most, for each `PACE` bytes
_END_SECONDS: Final = 2.0  # closing connections and ending threads, once nothing is waited for
_GRACE_SECONDS: Final = 0.1  # for what is done at once unless somebody's callback is in the way

T = TypeVar("T")

_abandoned: set[Engine] = set()
_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


class Engine:
    """Lives as long as the producer, and a little longer if that was dropped without `close`."""

    def __init__(self, config: ProducerConfig) -> None:
        self.clock = SYSTEM_CLOCK
        self.closed = False
        self.callbacks = CallbackThread("pyclient-callbacks")
        self.thread = LoopThread("pyclient-sender", at_exit=self._close_at_exit)
        self._closing = threading.RLock()
        self.thread.start()
        try:
            self.core = ProducerCore(config, self.callbacks, loop=self.thread.loop, clock=self.clock)
            self.thread.run(self.core.start)
        except BaseException:
            self.thread.stop(_END_SECONDS)
            raise
        _engines.add(self)

    # -- waiting

    def left(self, deadline: float | None) -> float | None:
        """Seconds until the deadline, 0 if it has passed; None without one."""
        return None if deadline is None else max(0.0, deadline - self.clock.monotonic())

    def deadline(self, timeout: float | None) -> float | None:
        """When `timeout` seconds are over."""
        return None if timeout is None else self.clock.monotonic() + timeout

    def until(self, attempt: Callable[[Waiter], T], deadline: float) -> T:
        """Calls `attempt(waiter)`, and again whenever the waiter it returns was granted memory.

        Gives what it returns once that is not the waiter, or the waiter if the deadline passes before.
        """
        latch = threading.Lock()
        latch.acquire()
        waiter = Waiter(latch.release)
        try:
            return self._attempts(attempt, waiter, latch, deadline)
        finally:
            waiter.gone = True  # at once: Ctrl-C may come again before it is given up
            self.core.give_up(waiter)

    def _attempts(self, attempt: Callable[[Waiter], T], waiter: Waiter, latch: Acquirable, deadline: float) -> T:
        """No loop stands in a `try`: where it jumps back Ctrl-C passes by the `finally` (from Python 3.12 on)."""
        while (result := attempt(waiter)) is waiter:
            left = deadline - self.clock.monotonic()
            if left <= 0 or not acquire(latch, left):
                break
        return result

    def keep_pace(self) -> None:
        """Lets the sender catch up for a moment when much waits to be sent.

        It keeps what is written in the processor's cache until it is sent, and the broker busy from the start
        (docs/measurements.md, "Pace of the sender").
        """
        pool = self.core.accumulator.pool
        latch = threading.Lock()
        latch.acquire()
        wake = latch.release
        with self.core.lock:
            if not pool.falls_behind(wake):
                return
        if not latch.acquire(timeout=_PACE_SECONDS):
            with self.core.lock:
                pool.forget(wake)

    def wait_for(self, deliveries: list[Delivery], deadline: float | None) -> None:
        """Waits until all have an outcome, and callbacks are in line; `KafkaTimeout` at the deadline."""
        for delivery in deliveries:
            while (pending := delivery.pending()) is not None:
                wait_until_done(self.core.desk, pending, 0, self.left(deadline))
        if deliveries and not self.core.desk.wait_until_told(deliveries, self.left(deadline)):
            raise KafkaTimeout("all records have an outcome, but not all futures were told in time")

    def callbacks_ran(self, deadline: float | None) -> bool:
        """Waits until the callbacks that are in line have run; False if they have not at the deadline.

        Whether there are any only their thread can tell, so it gets a moment for that when no time is left.
        """
        left = self.left(deadline)
        return self.callbacks.wait(None if left is None else max(left, _GRACE_SECONDS))

    def abort(self, error: KafkaError, *, on_wire: bool = True, timeout: float | None = None) -> None:
        """Fails what is not confirmed, or with `on_wire=False` what was not sent.

        On the loop's thread, which gets to it within `timeout` seconds or raises `KafkaTimeout`: Ctrl-C in the midst of
        it would leave batches that are neither here nor there.
        """

        async def work() -> None:
            self.core.abort(error, on_wire=on_wire)

        self.thread.run(work, timeout=timeout)

    # -- the end

    def close(self, timeout: float | None) -> None:
        """Delivers what was accepted, within `timeout` seconds; fails the rest; ends the threads.

        Raises `DeliveryFailed` if records failed and nobody looked. An interrupted close may be called again. One that
        is called beside another waits for it, and after its own `timeout` fails the rest for both; in a callback it
        leaves all to the other, which waits for the callback.
        """
        if self.closed:
            return
        deadline = self.deadline(timeout)
        self.core.stop_accepting()
        try:
            if not self._begin_closing(timeout):
                return
            self._deliver_and_end(deadline)
        finally:
            try:  # noqa: SIM105  # one step: Ctrl-C may have come just as it was acquired, or come again
                self._closing.release()
            except RuntimeError:  # it was not
                pass
        self.core.raise_unobserved()

    def _begin_closing(self, timeout: float | None) -> bool:
        """Waits for the turn to close; False if another close has it and will soon be done."""
        if self.callbacks.runs_here:  # which the other close waits for
            return self._closing.acquire(blocking=False)
        if acquire(self._closing, timeout):
            return True
        error = self.core.closed_before()
        with suppress(ClosedError):  # by the other close, just now
            try:
                self.abort(error, timeout=_END_SECONDS)  # then it has only callbacks to wait for
            except KafkaTimeout:  # the loop is late, or stuck
                self.thread.call_soon(self.core.abort, error)
        return self._closing.acquire(timeout=_GRACE_SECONDS)

    def _deliver_and_end(self, deadline: float | None) -> None:
        if self.closed:  # by the other close
            return
        with suppress(KafkaTimeout):  # what is left fails, and is told to its futures
            self.wait_for(self.core.begin_flush(), deadline)
        self._end(deadline)

    def _end(self, deadline: float | None) -> None:
        try:
            self.thread.run(self.core.shut_down, timeout=_END_SECONDS)
        except (KafkaTimeout, ClosedError):
            self.core.abort(self.core.closed_before())
        left = self.left(deadline)
        if not self.callbacks.stop(None if left is None else max(left, _GRACE_SECONDS)):
            logger.warning("the producer was closed while a callback still ran: others may be waiting for it")
        self.thread.stop(_END_SECONDS)
        self.closed = True

    def _close_at_exit(self) -> None:
        try:
            self.close(self.left(_exit_deadline()))
        except DeliveryFailed as failed:  # there is nobody left to raise it to
            logger.error("the interpreter ends, and %s", failed)

    def abandon(self) -> None:
        """The producer was dropped without `close`: delivers what it accepted in the background.

        It may be called by the garbage collector in any thread at any moment, so it takes no lock.
        """
        _abandoned.add(self)
        try:
            self.thread.call_soon(self._begin_end)
        except ClosedError:
            _abandoned.discard(self)

    def _begin_end(self) -> None:
        self.core.stop_accepting()
        self._ending = self.thread.loop.create_task(self._end_in_background())

    async def _end_in_background(self) -> None:
        for delivery in self.core.begin_flush():
            while (pending := delivery.pending()) is not None:
                await await_done(pending, 0)
        await self.core.shut_down()
        self.callbacks.stop(0)
        self.closed = True
        _abandoned.discard(self)
        self.thread.stop(0)


@cache
def _exit_deadline() -> float:
    """When the interpreter's end waits for no producer any more; the first to ask has all of them send what lingers."""
    for engine in list(_engines):
        if not engine.closed and not engine.core.desk.foreign:
            engine.core.begin_flush()
    return SYSTEM_CLOCK.monotonic() + EXIT_SECONDS
