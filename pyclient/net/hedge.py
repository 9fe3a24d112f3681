"""The first of several attempts that succeeds: the next one begins when one fails or takes its time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TypeVar

from pyclient.errors import KafkaError

T = TypeVar("T")


async def first_success(
    attempts: Iterable[Callable[[], Awaitable[T]]],
    patience: float,
    *,
    discard: Callable[[T], object] = lambda surplus: None,
) -> T:
    """The result of the first attempt that succeeds; the others are cancelled.

    Attempts start in order, each when one before it failed or `patience` seconds have passed, so that a broker which
    hangs costs that long and not a whole timeout. If all fail with a `KafkaError`, the last of them is raised. A result
    that nobody gets, because another came at the same moment or the caller gave up, goes to `discard`.
    """
    waiting = list(attempts)[::-1]
    running: set[asyncio.Future[T]] = set()
    last: BaseException = ValueError("there is nothing to attempt")
    try:
        while waiting or running:
            if waiting:
                running.add(asyncio.ensure_future(waiting.pop()()))
            timeout = patience if waiting else None
            done, running = await asyncio.wait(running, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            errors = [error for error in (attempt.exception() for attempt in done) if error is not None]
            results = [attempt.result() for attempt in done if attempt.exception() is None]
            for surplus in results[1:]:
                discard(surplus)
            if results:
                return results[0]
            for error in errors:
                if not isinstance(error, KafkaError):
                    raise error
                last = error
        raise last
    finally:
        for attempt in running:  # one may be done before it can be cancelled, and the caller cancelled once more
            if attempt.done():
                _discard_result(discard, attempt)
            else:
                attempt.add_done_callback(partial(_discard_result, discard))
                attempt.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _discard_result(discard: Callable[[T], object], attempt: asyncio.Future[T]) -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        discard(attempt.result())
