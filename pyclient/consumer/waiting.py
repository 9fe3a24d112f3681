"""Waits on the event loop that `wakeup()` interrupts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, TypeVarTuple

from pyclient.errors import ClosedError, KafkaTimeout, Wakeup

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Waiting:
    """The waiters, and the flag of `wakeup()`. `pulse` runs on the loop, `wake_up` in any thread."""

    def __init__(self, describe_failures: Callable[[], str]) -> None:
        self.ended = False
        self._describe_failures = describe_failures
        self._waiters: set[asyncio.Future[None]] = set()
        self._woken = False

    def pulse(self) -> None:
        """Wake all waiters to check their conditions again."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def wake_up(self) -> None:
        """End the current wait, or the next one, with `Wakeup`; a `pulse` has to follow."""
        self._woken = True

    def check_wakeup(self) -> None:
        """Raise `Wakeup` if `wake_up` was called since the last check."""
        if self._woken:
            self._woken = False
            raise Wakeup("wakeup() was called")

    async def until(self, condition: Callable[[], T | None], timeout: float, what: str) -> T:
        """Return the condition's first value but None; raise `KafkaTimeout` with `what` after `timeout` seconds."""
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
        """Run `function(*args)`, which `wake_up` ends."""
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
