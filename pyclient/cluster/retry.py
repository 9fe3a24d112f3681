"""Retries: tenacity's loop with the client's own backoff and random generator, bounded by a timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception

from pyclient.backoff import Backoff
from pyclient.clock import Rng
from pyclient.errors import KafkaError, KafkaTimeout

T = TypeVar("T")


class RetryPolicy:
    """Retries calls after any retriable `KafkaError`, with growing pauses, until their timeout.

    `before_retry(error)` is called before each retry; an exception from it ends the call.
    """

    def __init__(
        self, backoff: Backoff, rng: Rng, *, before_retry: Callable[[BaseException], None] | None = None
    ) -> None:
        self._before_retry = before_retry
        self._loop = AsyncRetrying(
            sleep=asyncio.sleep,
            wait=lambda state: backoff.delay(state.attempt_number - 1, rng),
            retry=retry_if_exception(is_retriable),
            reraise=True,
        )

    async def call(
        self,
        attempt: Callable[[], Awaitable[T]],
        *,
        timeout: float | None,
        what: str,
        details: Callable[[], str] = str,
    ) -> T:
        """Return the result of the first attempt that succeeds.

        Errors that are not retriable are raised unchanged. After `timeout` seconds (None: no limit) raise
        `KafkaTimeout` with `what` was tried, the last failure and the current `details`.
        """
        last: BaseException | None = None

        def note(state: RetryCallState) -> None:
            nonlocal last
            last = state.outcome.exception() if state.outcome is not None else None
            if last is not None and self._before_retry is not None:
                self._before_retry(last)

        async def once() -> T:  # tenacity asks for a coroutine function
            return await attempt()

        try:
            async with asyncio.timeout(timeout) as limit:
                return await self._loop.copy(before_sleep=note)(once)
        except TimeoutError:
            if not limit.expired():
                raise
            failure, more = str(last or ""), details()
            facts = more if failure in more else "; ".join(filter(None, [failure, more]))
            text = f"{what}: not done within {round(timeout or 0, 2):g} s"
            raise KafkaTimeout(f"{text}: {facts}" if facts else text) from last


def is_retriable(error: BaseException) -> bool:
    """Return True if the same call may succeed later, as the error's class says (`KafkaError.retriable`)."""
    return isinstance(error, KafkaError) and error.retriable
