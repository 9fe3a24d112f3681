import random

from hypothesis import given
from hypothesis import strategies as st

from pyclient.backoff import Backoff
from pyclient.testing.clock import ManualClock


def test_waiting_doubles_until_the_maximum():
    backoff = Backoff(0.1, 1.0, jitter=0.0)
    rng = random.Random(1)
    assert [backoff.delay(attempt, rng) for attempt in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_the_same_seed_gives_the_same_waiting():
    backoff = Backoff(0.05, 1.0)
    first, second = random.Random(7), random.Random(7)
    assert [backoff.delay(n, first) for n in range(9)] == [backoff.delay(n, second) for n in range(9)]


def test_those_that_failed_together_do_not_retry_together():
    rng = random.Random(3)
    delays = [Backoff(1.0, 10.0).delay(0, rng) for _ in range(1000)]
    assert 0.8 <= min(delays) < 0.85 and 1.15 < max(delays) <= 1.2


@given(
    initial=st.floats(0, 10),
    maximum=st.floats(0, 100),
    attempt=st.integers(0, 10**9),
    seed=st.integers(0, 2**32),
)
def test_waiting_is_never_negative_and_never_above_the_maximum(initial, maximum, attempt, seed):
    backoff = Backoff(initial, maximum)
    delay = backoff.delay(attempt, random.Random(seed))
    assert 0 <= delay <= maximum
    assert delay >= 0.8 * min(initial, maximum) * 0.999999


def test_a_manual_clock_moves_only_when_told():
    clock = ManualClock(start=5.0)
    assert (clock.monotonic(), clock.time_ms()) == (5.0, 1_700_000_005_000)
    clock.advance(0.25)
    assert (clock.monotonic(), clock.time_ms()) == (5.25, 1_700_000_005_250)
    assert repr(clock) == "<ManualClock 5.250s>"
