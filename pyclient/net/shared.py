"""Share one future between several waiting tasks, each of which may be cancelled alone."""

from __future__ import annotations

import asyncio
from typing import TypeVar

T = TypeVar("T")


async def shared(future: asyncio.Future[T]) -> T:
    """Return the future's result; the future is not cancelled with the waiting task.

    Unlike with `asyncio.shield`, an error set after the last waiter was cancelled is not logged (Python 3.14): the next
    waiter gets it.
    """
    try:
        await asyncio.wait((future,))
    except asyncio.CancelledError:
        future.add_done_callback(_seen)
        raise
    return future.result()


def _seen(future: asyncio.Future[T]) -> None:
    if not future.cancelled():
        future.exception()
