"""How an asynchronous producer ends: by its close, with its loop, or after nobody holds it any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from pyclient.producer.core import ProducerCore
from pyclient.producer.delivery import Delivery
from pyclient.producer.delivery_future import await_done
from pyclient.producer.engine import EXIT_SECONDS

_abandoned: dict[asyncio.Task[None], AsyncGenerator[None, None] | None] = {}


async def all_done(deliveries: list[Delivery], timeout: float | None) -> bool:
    """Waits until all have an outcome, and their callbacks have been called; False after `timeout` seconds."""
    try:
        async with asyncio.timeout(timeout) as limit:
            for delivery in deliveries:
                while (pending := delivery.pending()) is not None:
                    await await_done(pending, 0)
    except TimeoutError:
        if not limit.expired():
            raise
        if any(delivery.pending() is not None for delivery in deliveries):  # the last one may have come in that turn
            return False
    await asyncio.sleep(0)  # the last ones' callbacks, which may look at failures, are due in this turn of the loop
    return True


async def finish(core: ProducerCore, timeout: float | None) -> None:
    """Delivers what was accepted within `timeout` seconds, fails the rest, and closes the connections.

    It may run more than once at a time: whichever has no time left fails the rest for all of them.
    """
    core.stop_accepting()
    await all_done(core.begin_flush(), timeout)
    if not core.ended:
        await core.shut_down()


async def until_the_loop_ends(core: ProducerCore) -> AsyncGenerator[None, None]:
    """Waits for the loop's end, when `asyncio.run` closes all generators, and waits for them.

    What a producer that nobody closed has accepted is then delivered within `EXIT_SECONDS`, or fails and is logged. Of
    a loop that ends in a child made by `fork` nothing is touched: its producer is the parent's.
    """
    try:
        yield
    finally:
        if not core.ended and not core.desk.foreign:
            await finish(core, EXIT_SECONDS)


def finish_in_background(core: ProducerCore, last_chance: AsyncGenerator[None, None] | None) -> None:
    """A producer was dropped without close: what it accepted is still delivered, or fails when the loop ends."""
    if core.desk.foreign:  # a fork came between the drop and this turn of the loop
        return
    task = asyncio.get_running_loop().create_task(finish(core, None))
    _abandoned[task] = last_chance
    task.add_done_callback(_forget)


def _forget(task: asyncio.Task[None]) -> None:
    if not task.cancelled():  # by the loop's end, which is the generator's turn
        _abandoned.pop(task, None)
