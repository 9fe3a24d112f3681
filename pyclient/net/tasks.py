"""Waits: for the first of hedged attempts that succeeds, with others for one future, for a call in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from pyclient.errors import KafkaError

T = TypeVar("T")


async def first_success(
    attempts: Iterable[Callable[[], Awaitable[T]]],
    delay: float,
    *,
    discard: Callable[[T], object] = lambda surplus: None,
) -> T:
    """Return the result of the first attempt that succeeds, and cancel the others.

    Attempts start in order, each when an earlier one failed or after `delay` seconds, so that a hanging broker costs
    that delay and not a whole timeout. If all fail with a `KafkaError`, raise the last one. `discard` is called with
    every result that is not returned: a second one in the same iteration, or one after the caller was cancelled.
    """
    remaining = list(attempts)[::-1]
    running: set[asyncio.Future[T]] = set()
    last: BaseException = ValueError("there is nothing to attempt")
    results: list[T] = []
    closed = False
    try:
        while remaining or running:
            if remaining:
                running.add(asyncio.ensure_future(remaining.pop()()))
            timeout = delay if remaining else None
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
    except GeneratorExit:  # the loop has ended: nothing can be waited for
        closed = True
        raise
    finally:
        for attempt in running:  # one may finish before the cancellation, or the caller be cancelled again meanwhile
            if attempt.done():
                _discard_result(discard, attempt)
            else:
                attempt.add_done_callback(partial(_discard_result, discard))
                attempt.cancel()
        try:
            if not closed:
                await asyncio.gather(*running, return_exceptions=True)
        except asyncio.CancelledError:  # nothing is returned then
            for unused in results[:1]:
                discard(unused)
            raise


def _discard_result(discard: Callable[[T], object], attempt: asyncio.Future[T]) -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        discard(attempt.result())


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


async def in_daemon_thread(name: str, call: Callable[[], T]) -> T:
    """Return the result of a call that blocks, made in a daemon thread of its own.

    One that hangs blocks neither the loop nor the interpreter's exit. Its outcome is dropped after a cancellation.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            outcome = call()
        except StopIteration as error:  # which no future takes
            _complete(loop, result, result.set_exception, RuntimeError(repr(error)))
        except BaseException as error:
            _complete(loop, result, result.set_exception, error)
        else:
            _complete(loop, result, result.set_result, outcome)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await result


def _complete(
    loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], setter: Callable[[Any], None], outcome: Any
) -> None:
    def unless_cancelled() -> None:
        if not future.done():
            setter(outcome)

    with contextlib.suppress(RuntimeError):  # the loop is closed, and the waiter is gone with it
        loop.call_soon_threadsafe(unless_cancelled)
