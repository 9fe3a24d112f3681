"""A future that several tasks wait for."""

from __future__ import annotations

import asyncio

import pytest

from pyclient.net.shared import shared


def test_shared_future_survives_cancelled_waiter():
    async def scenario():
        loop, said = asyncio.get_running_loop(), []
        loop.set_exception_handler(lambda _, context: said.append(context))
        future = loop.create_future()
        first, second = (asyncio.create_task(shared(future)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert not future.done()
        future.set_exception(OSError("gone"))
        with pytest.raises(OSError, match="gone"):
            await second
        alone = loop.create_future()
        last = asyncio.create_task(shared(alone))
        await asyncio.sleep(0)
        last.cancel()
        with pytest.raises(asyncio.CancelledError):
            await last
        alone.set_exception(OSError("no waiter"))
        await asyncio.sleep(0)
        del alone, last
        assert said == []

    asyncio.run(scenario())


def test_shared_future_completes_or_cancels_all_waiters():
    async def scenario():
        future = asyncio.get_running_loop().create_future()
        tasks = [asyncio.create_task(shared(future)) for _ in range(3)]
        await asyncio.sleep(0)
        future.set_result(7)
        assert await asyncio.gather(*tasks) == [7, 7, 7]
        assert await shared(future) == 7
        ended = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(shared(ended))
        await asyncio.sleep(0)
        ended.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
