"""What several tasks wait for together: the one that gives up leaves it to the others."""

from __future__ import annotations

import asyncio
from typing import TypeVar

T = TypeVar("T")


async def shared(future: asyncio.Future[T]) -> T:
    """The future's result; it is not cancelled with who waits for it.

    Unlike with `asyncio.shield`, an error that comes when nobody waits any more is not logged (Python 3.14): it is told
    to whoever asks next.
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
