"""Waiting for something to change, on the event loop, in a way that `wakeup()` ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar, TypeVarTuple

from pyclient.errors import ClosedError, KafkaTimeout, Wakeup

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Flag:
    """Set by any thread, waited for by one, which takes it down with that.

    `threading.Event` has a lock inside: an interrupt between the taking of that and its `with` leaves it taken, and the
    next thread that sets the flag hangs. Here there is nothing but one lock, which is free while the flag is up.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Puts it up."""
        with suppress(RuntimeError):  # it is up
            self._lock.release()

    def clear(self) -> None:
        """Takes it down."""
        self._lock.acquire(blocking=False)

    def wait(self, seconds: float) -> bool:
        """Waits until it is up and takes it down; False if it was not within `seconds`."""
        return self._lock.acquire(timeout=seconds)


class Waiting:
    """Who waits, and the one flag that `wakeup` sets. `pulse` runs on the loop, `wake_up` in any thread."""

    def __init__(self, describe_failures: Callable[[], str]) -> None:
        self.ended = False
        self._describe_failures = describe_failures
        self._waiters: set[asyncio.Future[None]] = set()
        self._woken = False

    def pulse(self) -> None:
        """Something has changed: who waits looks again."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def wake_up(self) -> None:
        """The wait that is going on, or the next one, ends with `Wakeup`; a `pulse` has to follow."""
        self._woken = True

    def check_wakeup(self) -> None:
        """Raises `Wakeup` if it was called for since the last time."""
        if self._woken:
            self._woken = False
            raise Wakeup("wakeup() was called")

    async def until(self, condition: Callable[[], T | None], timeout: float, what: str) -> T:
        """The condition's first value that is not None; `KafkaTimeout` after `timeout` seconds names `what`."""
        try:
            async with asyncio.timeout(timeout) as limit:
                while (value := condition()) is None:
                    await self._change()
                return value
        except TimeoutError:
            if not limit.expired():
                raise
            failures = self._describe_failures()
            reason = f"; last failures: {failures}" if failures else ""
            raise KafkaTimeout(f"{what}: not done within {timeout:g} s{reason}") from None

    async def interruptible(self, function: Callable[[*Ts], Coroutine[Any, Any, T]], *args: *Ts) -> T:
        """Runs `function(*args)`, which `wake_up` ends."""
        task = asyncio.ensure_future(function(*args))
        try:
            while True:
                self.check_wakeup()
                change = asyncio.ensure_future(self._change())
                try:
                    await asyncio.wait({task, change}, return_when=asyncio.FIRST_COMPLETED)
                    if task.done():
                        return task.result()
                    await change
                finally:
                    change.cancel()
        finally:
            task.cancel()

    async def _change(self) -> None:
        if self.ended:
            raise ClosedError("the consumer is closed")
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
