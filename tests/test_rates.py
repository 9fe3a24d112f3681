from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pyclient.rates import WINDOW_SECONDS, Rate

STEPS = st.lists(st.tuples(st.floats(0, 40), st.integers(0, 1000), st.integers(0, 10**9)), max_size=50)


@given(STEPS)
def test_rate_is_total_per_second_of_window(steps):
    rate, now = Rate(), 1000.0
    firsts, seconds = Counter(), Counter()
    for step, first, second in steps:
        now += step
        rate.add(now, first, second)
        firsts[int(now)] += first
        seconds[int(now)] += second
    expected = tuple(
        sum(amount for when, amount in sums.items() if when > now - WINDOW_SECONDS) / WINDOW_SECONDS
        for sums in (firsts, seconds)
    )
    assert rate.per_second(now) == expected


def test_amounts_older_than_window_are_dropped():
    rate = Rate()
    rate.add(5.5, 30, 60)
    assert rate.per_second(34.9) == (1.0, 2.0)
    assert rate.per_second(35.0) == (0.0, 0.0)
