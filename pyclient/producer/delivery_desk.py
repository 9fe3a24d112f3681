"""What all deliveries of one producer share, and who waits until they are told."""

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
        self._when_told: list[Wake] = []

    def told(self, delivery: Delivery) -> None:
        """An `untold` one was told."""
        self.untold.pop(delivery, None)
        while self._when_told:
            with suppress(IndexError):  # another thread was quicker
                self._when_told.pop()()

    def wait_until_told(self, deliveries: Sequence[Delivery], timeout: float | None) -> bool:
        """Waits until none of these, nor of their parts, is `untold`; False after `timeout` seconds (None: never)."""
        end = None if timeout is None else self.clock.monotonic() + timeout
        while self._any_untold(deliveries):
            if self.must_not_block():
                raise RuntimeError("futures were waited for on the event loop that completes them")
            latch = Latch()
            self._when_told.append(latch.open)
            if not self._any_untold(deliveries):  # by who did not see the latch
                break
            if not latch.wait(None if end is None else end - self.clock.monotonic()):
                return False
        return True

    def _any_untold(self, deliveries: Sequence[Delivery]) -> bool:
        # in loops: an interrupt that falls into the end of a generator is printed and lost
        for each in deliveries:
            for last in each.last_parts():
                if last in self.untold:
                    return True
        return False

    def must_not_block(self) -> bool:
        """Whether the calling thread is the one that has to go on for a delivery to complete."""
        return self.loop is not None and asyncio._get_running_loop() is self.loop

    @property
    def foreign(self) -> bool:
        """Whether this is a child made by `fork`, where nothing is ever completed."""
        return self.pid != os.getpid()

    def after_fork(self, pending: Sequence[Delivery]) -> None:
        """Called in a child made by `fork` with what is not completed."""
        self.failures.after_fork()
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
