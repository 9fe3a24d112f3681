import random

from hypothesis import given
from hypothesis import strategies as st

from pyclient.backoff import Backoff
from pyclient.testing.clock import ManualClock


def test_delay_doubles_up_to_maximum():
    backoff = Backoff(0.1, 1.0, jitter=0.0)
    rng = random.Random(1)
    assert [backoff.delay(attempt, rng) for attempt in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_same_seed_gives_same_delays():
    backoff = Backoff(0.05, 1.0)
    first, second = random.Random(7), random.Random(7)
    assert [backoff.delay(n, first) for n in range(9)] == [backoff.delay(n, second) for n in range(9)]


def test_simultaneous_failures_retry_at_different_times():
    rng = random.Random(3)
    delays = [Backoff(1.0, 10.0).delay(0, rng) for _ in range(1000)]
    assert 0.8 <= min(delays) < 0.85 and 1.15 < max(delays) <= 1.2


@given(
    initial=st.floats(0, 10),
    maximum=st.floats(0, 100),
    attempt=st.integers(0, 10**9),
    seed=st.integers(0, 2**32),
)
def test_delay_is_between_zero_and_maximum(initial, maximum, attempt, seed):
    backoff = Backoff(initial, maximum)
    delay = backoff.delay(attempt, random.Random(seed))
    assert 0 <= delay <= maximum
    assert delay >= 0.8 * min(initial, maximum) * 0.999999


def test_manual_clock_moves_only_on_advance():
    clock = ManualClock(start=5.0)
    assert (clock.monotonic(), clock.time_ms()) == (5.0, 1_700_000_005_000)
    clock.advance(0.25)
    assert (clock.monotonic(), clock.time_ms()) == (5.25, 1_700_000_005_250)
    assert repr(clock) == "<ManualClock 5.250s>"
