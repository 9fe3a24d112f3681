"""A value that may come later: callbacks, responses and futures of it."""

from __future__ import annotations

import asyncio

from pyclient.broker_embedded.transactions.promise import Promise


def test_future_of_a_value_that_came_before_it_was_awaited() -> None:
    async def scenario() -> tuple[int, int]:
        early, late = Promise[int](), Promise[int]()
        loop = asyncio.get_running_loop()
        loop.call_soon(early.set, 1)
        task = asyncio.create_task(_awaited(early))  # it begins after the value is there
        waiting = late.future(loop)
        late.set(2)
        return await task, await waiting

    assert asyncio.run(scenario()) == (1, 2)


def test_cancelled_future_is_left_alone() -> None:
    async def scenario() -> None:
        promise = Promise[int]()
        waiting = promise.future(asyncio.get_running_loop())
        waiting.cancel()
        promise.set(1)
        assert waiting.cancelled()
        assert promise.value == 1

    asyncio.run(scenario())


async def _awaited(promise: Promise[int]) -> int:
    return await promise.future(asyncio.get_running_loop())
