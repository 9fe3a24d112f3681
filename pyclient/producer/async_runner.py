"""`AsyncRunner`: runs an asyncio producer on the caller's event loop, and ends it with the loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final, TypeVar

from pyclient.errors import KafkaError
from pyclient.net.surroundings import SURROUNDINGS
from pyclient.net.tasks import shared
from pyclient.producer.buffer_pool import Waiter
from pyclient.producer.callbacks import LoopCallbacks
from pyclient.producer.client import ProducerClient, new_closed
from pyclient.producer.config import ProducerConfig
from pyclient.producer.delivery import Delivery
from pyclient.producer.futures import await_done
from pyclient.producer.thread_runner import EXIT_SECONDS

T = TypeVar("T")

_abandoned: dict[asyncio.Task[None], AsyncGenerator[None, None] | None] = {}


class AsyncRunner:
    """Runs an asyncio producer, with the calls of `ThreadRunner`; starts with the first use, on the running loop.

    A producer that is dropped without `close` is flushed in the background, or at the latest when its loop ends.
    """

    keep_pace: Final = None  # a caller that buffers much lets the sender run in `pace`

    def __init__(self, config: ProducerConfig) -> None:
        self.clock = SURROUNDINGS.get().clock
        self.closed = False
        self.client: ProducerClient | None = None
        self._config = config
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting: asyncio.Task[None] | None = None
        self._last_chance: AsyncGenerator[None, None] | None = None

    async def started(self) -> ProducerClient:
        """Return the `ProducerClient`, which the first call starts; raise `ClosedError` once the producer is closed."""
        if self.closed:
            raise new_closed()
        loop = asyncio.get_running_loop()
        if self.client is None:
            self._loop = loop
            self.client = ProducerClient(self._config, LoopCallbacks(loop), loop=loop, clock=self.clock)
            self._starting = loop.create_task(self._start(self.client))
        if self._loop is not loop:
            raise RuntimeError("an AsyncProducer belongs to the event loop that first used it")
        assert self._starting is not None
        if not self._starting.done():
            await shared(self._starting)
        return self.client

    async def _start(self, client: ProducerClient) -> None:
        self._last_chance = until_the_loop_ends(client)
        await anext(self._last_chance)
        client.cluster.outlives_tasks = True
        await client.start()

    async def run(self, work: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Await `work(*arguments)` on the producer's loop, which is the running one."""
        return await work(*arguments)

    # -- waiting

    async def pace(self) -> None:
        """Let the sender run before a record is queued: a caller that never waits would starve it."""
        if self.client is not None and self.client.loop.scheduled:
            await asyncio.sleep(0)

    async def until(self, attempt: Callable[[Waiter], T], deadline: float) -> T:
        """Call `attempt(waiter)` until it does not return the waiter; see `ThreadRunner.until`."""
        client = await self.started()
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
            client.give_up(waiter)

    async def flush(self, timeout: float | None) -> None:
        """Send all records accepted before this call and wait for them; see `Producer.flush`."""
        client = await self.started()
        deliveries = client.begin_flush()
        if not await all_done(deliveries, timeout):
            raise client.not_flushed(deliveries, timeout or 0.0)
        client.raise_unobserved()

    async def abort(self, error: KafkaError, *, on_wire: bool = True) -> None:
        """Fail all incomplete records, or with `on_wire=False` those that are not in flight."""
        client = await self.started()
        client.abort(error, on_wire=on_wire)

    # -- the end

    @property
    def ended(self) -> bool:
        """True if nothing runs: before the first use, and once all records are complete and connections closed."""
        return self.client is None or self.client.ended

    async def close(self, timeout: float | None) -> None:
        """Deliver accepted records within `timeout` seconds, fail the rest; if it is cancelled, call it again."""
        self.closed = True
        if self.client is not None:
            await finish(self.client, timeout)
            if self._last_chance is not None:
                await self._last_chance.aclose()
            self.client.raise_unobserved()

    def abandon(self) -> None:
        """Deliver the records of a producer that was dropped without `close`, in the background."""
        if self._loop is not None and self.client is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(finish_in_background, self.client, self._last_chance)

    # -- state

    @property
    def state(self) -> str:
        """The state that `repr` shows."""
        if self.closed or self.client is None:
            return "closed" if self.closed else "new"
        return self.client.state

    def health(self) -> dict[str, Any]:
        """See `Producer.health`."""
        return {"state": self.state} if self.client is None else self.client.health()

    def metrics(self) -> dict[str, Any]:
        """See `Producer.metrics`. Empty before the first use."""
        return {} if self.client is None else self.client.metrics()


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


async def finish(client: ProducerClient, timeout: float | None) -> None:
    """Deliver accepted records within `timeout` seconds, fail the rest, and close the connections.

    Calls may overlap: the first whose time is over fails the rest for all of them.
    """
    client.stop_accepting()
    await client.end_transaction(timeout)
    await all_done(client.begin_flush(), timeout)
    if not client.ended:
        await client.shut_down()


async def until_the_loop_ends(client: ProducerClient) -> AsyncGenerator[None, None]:
    """Finish a producer that was not closed when its loop ends: `asyncio.run` closes all generators and awaits them.

    Its accepted records are delivered within `EXIT_SECONDS`, or fail and are logged. Do nothing in a forked child,
    where the producer is the parent's.
    """
    try:
        yield
    finally:
        if not client.ended and not client.context.foreign:
            await finish(client, EXIT_SECONDS)


def finish_in_background(client: ProducerClient, last_chance: AsyncGenerator[None, None] | None) -> None:
    """Deliver the accepted records of a producer that was dropped without `close`; they fail when the loop ends."""
    if client.context.foreign:  # forked between the drop and this iteration of the loop
        return
    task = asyncio.get_running_loop().create_task(finish(client, None))
    _abandoned[task] = last_chance
    task.add_done_callback(_forget)


def _forget(task: asyncio.Task[None]) -> None:
    if not task.cancelled():  # the end of the loop cancels it, and then closes the generator
        _abandoned.pop(task, None)
