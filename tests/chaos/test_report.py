"""The figures of a run by fault: gaps between acknowledgements of each partition, and recovery times."""

from __future__ import annotations

import math

import pytest

from tests.chaos.history import IDEMPOTENT, INFO, OK, ONE, Fault, History, Place, Send, Value
from tests.chaos.report import figures, percentile

A, B = Place("a", 0), Place("a", 1)


def sends(place: Place, *times: float, kind: str = IDEMPOTENT, outcome: str = OK) -> list[Send]:
    return [Send(Value("p", at), place, kind, outcome, at, time, time) for at, time in enumerate(times)]


def test_figures_count_the_gaps_of_each_partition_until_the_next_fault() -> None:
    history = History().add(*sends(A, 9.0, 10.0, 10.5, 14.0, 15.0, 31.0), *sends(B, 10.0, 11.0, 12.0, 18.0, 30.0))
    history.add(Fault("kill", 10.2, 13.0), Fault("cut", 20.0, 21.0), Fault("kill", 40.0, 41.0))
    kill, cut = figures(history, recovery=20.0)
    assert (kill.name, cut.name) == ("kill", "cut")
    assert sorted(kill.gaps) == [0.5, 1.0, 1.0, 1.0, 3.5, 6.0, 12.0, 16.0]  # a gap belongs to the fault before it, too
    assert kill.lasted == pytest.approx([2.8, 1.0])
    assert kill.recoveries == [5.0, math.inf]
    assert cut.recoveries == [10.0]


def test_recovery_that_the_next_fault_overtakes_is_counted_apart() -> None:
    history = History().add(*sends(A, 10.5, 14.0, 17.0, 22.0), *sends(B, 10.5, 13.5, 17.5, 30.0))
    history.add(Fault("kill", 10.0, 13.0), Fault("kill", 16.0, 18.0), Fault("kill", 20.0, 21.0))
    made = figures(history, recovery=20.0)[0]
    assert made.recoveries == [1.0, 9.0]
    assert made.overtaken == 1
    assert made.row().split()[-3:] == ["9.00", "s", "1"]


def test_figures_leave_out_other_outcomes_and_acks_1() -> None:
    history = History().add(*sends(A, 1.0, 5.0), *sends(A, 2.0, kind=ONE), *sends(A, 3.0, outcome=INFO))
    assert figures(history.add(Fault("kill", 1.0, 1.5)), recovery=20.0)[0].gaps == [4.0]


def test_figures_without_acknowledgements_have_no_recovery() -> None:
    made = figures(History().add(Fault("kill", 1.0, 1.5)), recovery=20.0)[0]
    assert made.gaps == []
    assert made.recoveries == [math.inf]
    assert "inf" in made.row()


@pytest.mark.parametrize(("share", "value"), [(0.5, 50), (0.99, 99), (1.0, 100)])
def test_percentile_is_the_smallest_value_that_the_share_does_not_exceed(share: float, value: int) -> None:
    assert percentile(list(range(100, 0, -1)), share) == value
    assert percentile([7.0], share) == 7.0
    assert percentile([], share) == 0.0
