"""The end of an asynchronous producer: by `close`, with its event loop, or by the garbage collector."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from pyclient.producer.core import ProducerCore
from pyclient.producer.delivery import Delivery
from pyclient.producer.delivery_future import await_done
from pyclient.producer.engine import EXIT_SECONDS

_abandoned: dict[asyncio.Task[None], AsyncGenerator[None, None] | None] = {}


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
        if not core.ended and not core.desk.foreign:
            await finish(core, EXIT_SECONDS)


def finish_in_background(core: ProducerCore, last_chance: AsyncGenerator[None, None] | None) -> None:
    """Deliver the accepted records of a producer that was dropped without `close`; they fail when the loop ends."""
    if core.desk.foreign:  # forked between the drop and this iteration of the loop
        return
    task = asyncio.get_running_loop().create_task(finish(core, None))
    _abandoned[task] = last_chance
    task.add_done_callback(_forget)


def _forget(task: asyncio.Task[None]) -> None:
    if not task.cancelled():  # the end of the loop cancels it, and then closes the generator
        _abandoned.pop(task, None)
