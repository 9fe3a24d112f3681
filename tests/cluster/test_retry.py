import asyncio
import random

import pytest

from pyclient.backoff import Backoff
from pyclient.cluster.metadata_updater import RefreshGate
from pyclient.cluster.retry import RetryPolicy
from pyclient.errors import InvalidTopic, KafkaTimeout, LeaderNotAvailable
from pyclient.testing.clock import ManualClock
from tests.cluster.scripts import run


def attempts_of(*outcomes):
    """Return an attempt with these outcomes, one per call, the last one repeated, and the list of its calls."""
    made = []

    async def attempt():
        outcome = outcomes[min(len(made), len(outcomes) - 1)]
        made.append(outcome)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    return attempt, made


QUICK = Backoff(0.001, 0.002)


def test_retriable_error_is_retried():
    failures = []
    policy = RetryPolicy(QUICK, random.Random(1), before_retry=failures.append)
    failure = LeaderNotAvailable("wait")
    attempt, made = attempts_of(failure, failure, "done")
    assert run(policy.call(attempt, timeout=30, what="It")) == "done"
    assert len(made) == 3
    assert failures == [failure, failure]


@pytest.mark.parametrize("error", [InvalidTopic("no"), ValueError("bug"), TimeoutError("its own")])
def test_other_error_is_raised_unchanged(error):
    attempt, made = attempts_of(error)
    with pytest.raises(type(error)) as caught:
        run(RetryPolicy(QUICK, random.Random(1)).call(attempt, timeout=30, what="It"))
    assert caught.value is error
    assert len(made) == 1


def test_timeout_reports_last_failure():
    attempt, _ = attempts_of(LeaderNotAvailable("no leader"))
    with pytest.raises(KafkaTimeout) as caught:
        run(RetryPolicy(QUICK, random.Random(1)).call(attempt, timeout=0.02, what="It", details=lambda: "and more"))
    assert str(caught.value) == "It: not done within 0.02 s: no leader; and more"
    assert isinstance(caught.value.__cause__, LeaderNotAvailable)


def test_timeout_ends_hanging_attempt():
    with pytest.raises(KafkaTimeout, match=r"^It: not done within 0\.01 s$"):
        run(RetryPolicy(QUICK, random.Random(1)).call(asyncio.Event().wait, timeout=0.01, what="It"))


def gate(clock, max_age=300.0, **options):
    return RefreshGate(Backoff(0.01, 0.08, jitter=0.0), max_age, clock, random.Random(1), **options)


async def stays_idle(gate):
    """Return True if no refresh becomes due within 0.2 s; pauses are up to 0.08 s."""
    try:
        async with asyncio.timeout(0.2):
            await gate.wait_until_due()
    except TimeoutError:
        return True
    return False


def test_refresh_is_due_on_request_or_by_age():
    async def scenario():
        clock = ManualClock()
        each = gate(clock)
        each.begin()
        each.end()
        assert await stays_idle(each)
        each.request()
        await each.wait_until_due()
        each.begin()
        each.end()
        assert await stays_idle(each)
        clock.advance(300)
        await each.wait_until_due()

    run(scenario())


def test_pauses_grow_only_while_refreshes_bring_no_news():
    clock = ManualClock()
    pauses = []

    async def let_time_pass(event, seconds):
        if not event.is_set():
            pauses.append(round(seconds, 3))
            clock.advance(max(0.0, seconds))
        return event.is_set()

    each = gate(clock, wait=let_time_pass)

    async def scenario():
        for changed in (True, False, False, True, False):
            each.begin()
            each.end(changed=changed)
            each.request()
            await each.wait_until_due()
        return pauses

    assert run(scenario()) == [0.01, 0.02, 0.04, 0.01, 0.02]


def test_request_during_refresh_is_merged_unless_urgent():
    async def scenario():
        each = gate(ManualClock())
        each.begin()
        each.request()
        each.end()
        assert await stays_idle(each)
        each.begin()
        each.request_at_once()
        each.end()
        await each.wait_until_due()

    run(scenario())


def test_refreshes_by_age_are_not_backed_off():
    clock = ManualClock()
    pauses = []

    async def let_time_pass(event, seconds):
        pauses.append(round(seconds, 3))
        clock.advance(max(0.0, seconds))
        return event.is_set()

    each = gate(clock, 0.03, wait=let_time_pass)

    async def scenario():
        for _ in range(10):
            each.begin()
            each.end()
            await each.wait_until_due()

    run(scenario())
    assert pauses == [0.03, -0.02] * 10


def test_consecutive_refreshes_are_backed_off():
    clock = ManualClock()
    pauses = []

    async def note(event, seconds):
        if not event.is_set():  # nothing was requested at once: this is the pause
            pauses.append(round(seconds, 3))
        return event.is_set()

    each = gate(clock, wait=note)

    async def refreshes(count):
        for _ in range(count):
            each.begin()
            each.end()
            each.request()
            await each.wait_until_due()

    run(refreshes(6))
    clock.advance(1)
    run(refreshes(1))
    assert pauses == [0.01, 0.02, 0.04, 0.08, 0.08, 0.08, 0.01]


def test_failed_refresh_is_repeated():
    async def scenario():
        each = gate(ManualClock())
        each.begin()
        each.failed()
        await each.wait_until_due()

    run(scenario())


def test_failed_refresh_is_repeated_after_a_pause_also_if_wanted_at_once():
    clock = ManualClock()
    pauses = []

    async def note(event, seconds):
        if not event.is_set():
            pauses.append(round(seconds, 3))
        return event.is_set()

    async def scenario():
        each = gate(clock, wait=note)
        each.begin()
        each.request_at_once()
        each.failed()
        await each.wait_until_due()

    run(scenario())
    assert pauses == [0.01]
