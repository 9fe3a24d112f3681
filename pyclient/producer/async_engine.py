"""AsyncEngine: runs the core of an asyncio producer on the caller's event loop, and ends it with the loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final, TypeVar

from pyclient.errors import KafkaError
from pyclient.net.surroundings import SURROUNDINGS
from pyclient.net.tasks import shared
from pyclient.producer.buffer_pool import Waiter
from pyclient.producer.callbacks import LoopCallbacks
from pyclient.producer.config import ProducerConfig
from pyclient.producer.core import ProducerCore, new_closed
from pyclient.producer.delivery import Delivery
from pyclient.producer.engine import EXIT_SECONDS
from pyclient.producer.futures import await_done

T = TypeVar("T")

_abandoned: dict[asyncio.Task[None], AsyncGenerator[None, None] | None] = {}


class AsyncEngine:
    """The core of an asyncio producer, with the calls of `Engine`; it begins with the first use, on the running loop.

    A producer that is dropped without `close` is flushed in the background, or at the latest when its loop ends.
    """

    keep_pace: Final = None  # a caller that buffers much lets the sender run in `pace`

    def __init__(self, config: ProducerConfig) -> None:
        self.clock = SURROUNDINGS.get().clock
        self.closed = False
        self.core: ProducerCore | None = None
        self._config = config
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting: asyncio.Task[None] | None = None
        self._last_chance: AsyncGenerator[None, None] | None = None

    async def started(self) -> ProducerCore:
        """Return the core, which the first call starts; raise `ClosedError` once the producer is closed."""
        if self.closed:
            raise new_closed()
        loop = asyncio.get_running_loop()
        if self.core is None:
            self._loop = loop
            self.core = ProducerCore(self._config, LoopCallbacks(loop), loop=loop, clock=self.clock)
            self._starting = loop.create_task(self._start(self.core))
        if self._loop is not loop:
            raise RuntimeError("an AsyncProducer belongs to the event loop that first used it")
        assert self._starting is not None
        if not self._starting.done():
            await shared(self._starting)
        return self.core

    async def _start(self, core: ProducerCore) -> None:
        self._last_chance = until_the_loop_ends(core)
        await anext(self._last_chance)
        core.cluster.outlives_tasks = True
        await core.start()

    async def run(self, work: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Await `work(*arguments)` on the core's loop, which is the running one."""
        return await work(*arguments)

    # -- waiting

    async def pace(self) -> None:
        """Let the sender run before a record is queued: a caller that never waits would starve it."""
        if self.core is not None and self.core.loop.scheduled:
            await asyncio.sleep(0)

    async def until(self, attempt: Callable[[Waiter], T], deadline: float) -> T:
        """Call `attempt(waiter)` until it does not return the waiter; see `Engine.until`."""
        core = await self.started()
        granted = asyncio.Event()
        waiter = Waiter(granted.set)
        try:
            while (result := attempt(waiter)) is waiter:
                left = deadline - self.clock.monotonic()
                try:
                    await asyncio.wait_for(granted.wait(), max(0.0, left))
                except TimeoutError:
                    break
                granted.clear()
            return result
        finally:
            core.give_up(waiter)

    async def flush(self, timeout: float | None) -> None:
        """Send all records accepted before this call and wait for them; see `Producer.flush`."""
        core = await self.started()
        deliveries = core.begin_flush()
        if not await all_done(deliveries, timeout):
            raise core.not_flushed(deliveries, timeout or 0.0)
        core.raise_unobserved()

    async def abort(self, error: KafkaError, *, on_wire: bool = True) -> None:
        """Fail all incomplete records, or with `on_wire=False` those that are not in flight."""
        core = await self.started()
        core.abort(error, on_wire=on_wire)

    # -- the end

    @property
    def ended(self) -> bool:
        """True if nothing runs: before the first use, and once all records are complete and connections closed."""
        return self.core is None or self.core.ended

    async def close(self, timeout: float | None) -> None:
        """Deliver accepted records within `timeout` seconds, fail the rest; if it is cancelled, call it again."""
        self.closed = True
        if self.core is not None:
            await finish(self.core, timeout)
            if self._last_chance is not None:
                await self._last_chance.aclose()
            self.core.raise_unobserved()

    def abandon(self) -> None:
        """Deliver the records of a producer that was dropped without `close`, in the background."""
        if self._loop is not None and self.core is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(finish_in_background, self.core, self._last_chance)

    # -- state

    @property
    def state(self) -> str:
        """The state that `repr` shows."""
        if self.closed or self.core is None:
            return "closed" if self.closed else "new"
        return self.core.state

    def health(self) -> dict[str, Any]:
        """See `Producer.health`."""
        return {"state": self.state} if self.core is None else self.core.health()

    def metrics(self) -> dict[str, Any]:
        """See `Producer.metrics`. Empty before the first use."""
        return {} if self.core is None else self.core.metrics()


async def all_done(deliveries: list[Delivery], timeout: float | None) -> bool:
    """Wait until all are complete and their callbacks have run; return False after `timeout` seconds."""
    try:
        async with asyncio.timeout(timeout) as limit:
            for delivery in deliveries:
                while (pending := delivery.pending()) is not None:
                    await await_done(pending, 0)
    except TimeoutError:
        if not limit.expired():
            raise
        if any(delivery.pending() is not None for delivery in deliveries):  # the last may just have completed
            return False
    await asyncio.sleep(0)  # the last callbacks, which may observe failures, run in this iteration of the loop
    return True


async def finish(core: ProducerCore, timeout: float | None) -> None:
    """Deliver accepted records within `timeout` seconds, fail the rest, and close the connections.

    Calls may overlap: the first whose time is over fails the rest for all of them.
    """
    core.stop_accepting()
    await core.end_transaction(timeout)
    await all_done(core.begin_flush(), timeout)
    if not core.ended:
        await core.shut_down()


async def until_the_loop_ends(core: ProducerCore) -> AsyncGenerator[None, None]:
    """Finish a producer that was not closed when its loop ends: `asyncio.run` closes all generators and awaits them.

    Its accepted records are delivered within `EXIT_SECONDS`, or fail and are logged. Do nothing in a forked child,
    where the producer is the parent's.
    """
    try:
        yield
    finally:
        if not core.ended and not core.context.foreign:
            await finish(core, EXIT_SECONDS)


def finish_in_background(core: ProducerCore, last_chance: AsyncGenerator[None, None] | None) -> None:
    """Deliver the accepted records of a producer that was dropped without `close`; they fail when the loop ends."""
    if core.context.foreign:  # forked between the drop and this iteration of the loop
        return
    task = asyncio.get_running_loop().create_task(finish(core, None))
    _abandoned[task] = last_chance
    task.add_done_callback(_forget)


def _forget(task: asyncio.Task[None]) -> None:
    if not task.cancelled():  # the end of the loop cancels it, and then closes the generator
        _abandoned.pop(task, None)
