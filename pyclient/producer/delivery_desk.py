"""DeliveryDesk: the context shared by all deliveries of one producer."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyclient.clock import Clock
from pyclient.errors import ForkError
from pyclient.net.latch import Latch
from pyclient.producer.callbacks import CallbackRunner
from pyclient.producer.failures import UnobservedFailures

if TYPE_CHECKING:
    from pyclient.producer.delivery import Delivery

Wake = Callable[[], object]


class DeliveryDesk:
    """The context shared by all deliveries of one producer."""

    __slots__ = ("_waiters", "callbacks", "clock", "failures", "lane", "lock", "loop", "pid", "untold")

    def __init__(self, callbacks: CallbackRunner, loop: asyncio.AbstractEventLoop | None, clock: Clock) -> None:
        self.callbacks = callbacks
        self.clock = clock
        self.failures = UnobservedFailures()
        self.lock = threading.Lock()
        self.loop = loop
        """The loop that completes deliveries; its thread must not block for one."""
        self.pid = os.getpid()
        self.lane: Any = None
        """The producer's `SendLane`, from which a waiting thread may read its record's response itself."""
        self.untold: dict[Delivery, None] = {}
        """Deliveries whose outcome is decided, but whose futures and callbacks are not notified yet."""
        self._waiters: list[Wake] = []

    def told(self, delivery: Delivery) -> None:
        """Note that the futures of an `untold` delivery are notified, and wake waiters."""
        self.untold.pop(delivery, None)
        while self._waiters:
            with suppress(IndexError):  # another thread popped it
                self._waiters.pop()()

    def wait_until_told(self, deliveries: Sequence[Delivery], timeout: float | None) -> bool:
        """Wait until the futures of all these, and of their parts, are notified.

        Return False after `timeout` seconds (None: no limit).
        """
        end = None if timeout is None else self.clock.monotonic() + timeout
        while self._any_untold(deliveries):
            if self.must_not_block():
                raise RuntimeError("futures were waited for on the event loop that completes them")
            latch = Latch()
            self._waiters.append(latch.open)
            if not self._any_untold(deliveries):  # `told` may have run before it could see the latch
                break
            if not latch.wait(None if end is None else end - self.clock.monotonic()):
                return False
        return True

    def _any_untold(self, deliveries: Sequence[Delivery]) -> bool:
        # loops instead of any(): an interrupt while a generator is closed is printed and lost
        for each in deliveries:
            for last in each.last_parts():
                if last in self.untold:
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
