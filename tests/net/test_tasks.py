import asyncio

import pytest

from pyclient.errors import ConnectionFailed
from pyclient.net.tasks import first_success, shared


def run(scenario):
    return asyncio.run(asyncio.wait_for(scenario, 30))


def attempts_of(outcome):
    """Return an attempt with this outcome, and the list of its calls."""
    made = []

    async def attempt():
        made.append(outcome)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    return attempt, made


def test_first_success_is_returned_and_others_are_cancelled():
    cancelled = []

    async def hang():
        try:
            await asyncio.sleep(60)  # until it is cancelled
        finally:
            cancelled.append(True)

    fails, _ = attempts_of(ConnectionFailed("down"))
    works, _ = attempts_of("result")
    never, made = attempts_of("not needed")
    assert run(first_success([fails, hang, works, never], 0.01)) == "result"
    assert cancelled == [True]
    assert made == []


def test_last_failure_is_raised_when_all_attempts_fail():
    first, _ = attempts_of(ConnectionFailed("one"))
    second, _ = attempts_of(ConnectionFailed("two"))
    with pytest.raises(ConnectionFailed, match="two"):
        run(first_success([first, second], 0.01))
    with pytest.raises(ValueError, match="nothing to attempt"):
        run(first_success([], 0.01))


def test_unexpected_error_of_attempt_is_raised_at_once():
    bug, _ = attempts_of(ZeroDivisionError("bug"))
    works, made = attempts_of("not reached")
    with pytest.raises(ZeroDivisionError):
        run(first_success([bug, works], 10))
    assert made == []


def test_second_result_in_same_iteration_is_discarded():
    async def scenario():
        gate, discarded = asyncio.Event(), []

        async def first():
            await gate.wait()
            return "one"

        async def second():
            asyncio.get_running_loop().call_soon(gate.set)
            await gate.wait()
            return "two"

        result = await first_success([first, second], 0.01, discard=discarded.append)
        assert sorted([result, *discarded]) == ["one", "two"]

    run(scenario())


@pytest.mark.parametrize("cancels", [1, 2])
def test_result_is_discarded_when_caller_is_cancelled(cancels):
    async def scenario():
        gate, discarded = asyncio.Event(), []

        async def attempt():
            await gate.wait()
            return "late"

        calling = asyncio.ensure_future(first_success([attempt], 10, discard=discarded.append))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gate.set()
        await asyncio.sleep(0)
        for _ in range(cancels):
            calling.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert discarded == ["late"]

    run(scenario())


def test_result_is_discarded_when_caller_is_cancelled_while_others_end():
    async def scenario():
        ending, discarded = asyncio.Event(), []

        async def slow_to_end():
            try:
                await asyncio.Event().wait()
            finally:
                ending.set()
                await asyncio.Event().wait()

        async def works():
            return "result"

        calling = asyncio.ensure_future(first_success([slow_to_end, works], 0.001, discard=discarded.append))
        await ending.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert discarded == ["result"]

    run(scenario())


def test_coroutine_that_is_closed_waits_for_nothing():
    """Python closes the coroutines of a loop that has ended when it frees them."""

    async def scenario():
        cancelled = asyncio.Event()

        async def attempt():
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        async def begin(coroutine):
            coroutine.send(None)

        calling = first_success([attempt], 10)
        await asyncio.ensure_future(begin(calling))
        await asyncio.sleep(0)  # the attempt begins
        calling.close()
        await cancelled.wait()

    run(scenario())


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
