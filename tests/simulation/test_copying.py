"""The comparison of a copy with its original: records lost, invented, copied twice, out of order, aborted."""

from __future__ import annotations

from tests.simulation.copying import Copied, Copy, copy_violations
from tests.simulation.workload import PARTITIONS

FIRST, SECOND, THIRD = (0, b"first"), (1, b"second"), (3, b"third")
REPEATED = (4, b"first")
"""A producer without a producer id has written the first record again, with a request that came late."""


def topic(*records: Copied) -> Copy:
    """Return a topic whose last partition has these records, with gaps of control records between their offsets."""
    return {index: {} for index in range(PARTITIONS - 1)} | {
        PARTITIONS - 1: {2 * at: r for at, r in enumerate(records)}
    }


def violations(copy: Copy, before: Copy, after: Copy | None = None, meanwhile: Copy | None = None) -> list[str]:
    """Return the differences. By default nothing is written after the first reading, and no reader meanwhile."""
    return list(
        copy_violations(before, before if after is None else after, copy, topic() if meanwhile is None else meanwhile)
    )


def test_copy_of_everything_in_its_order_violates_nothing() -> None:
    original = topic(FIRST, SECOND, THIRD)
    assert violations(original, original, meanwhile=original) == []


def test_record_that_was_written_twice_is_copied_twice() -> None:
    original = topic(FIRST, SECOND, REPEATED)
    assert violations(original, original) == []


def test_record_that_was_written_late_may_be_copied_or_not() -> None:
    before, after = topic(FIRST, SECOND), topic(FIRST, SECOND, REPEATED)
    assert violations(after, before, after) == []
    assert violations(before, before, after) == []


def test_second_copy_is_a_violation_though_its_value_is_written_again_late() -> None:
    before, after = topic(FIRST), topic(FIRST, REPEATED)
    (found,) = violations(topic(FIRST, FIRST), before, after)
    assert found == "copy: copies-2 has 1 records more than once, among them b'first' (offset 0 of events)"


def test_second_copy_and_lost_record_of_one_value_are_two_violations() -> None:
    original = topic(FIRST, SECOND, REPEATED)
    lost, twice = violations(topic(FIRST, SECOND, FIRST), original)
    assert lost == "copy: copies-2 misses 1 records, among them b'first' (offset 4 of events)"
    assert twice == "copy: copies-2 has 1 records more than once, among them b'first' (offset 0 of events)"


def test_missing_record_is_a_violation_at_the_end_and_before_a_late_one() -> None:
    (found,) = violations(topic(FIRST), topic(FIRST, SECOND))
    assert found == "copy: copies-2 misses 1 records, among them b'second' (offset 1 of events)"
    (found,) = violations(topic(FIRST, REPEATED), topic(FIRST), topic(FIRST, THIRD, REPEATED))
    assert found == "copy: copies-2 misses 1 records, among them b'third' (offset 3 of events)"


def test_record_that_is_not_in_the_original_is_a_violation() -> None:
    found = violations(topic(FIRST, (1, b"other")), topic(FIRST, SECOND))
    assert "copy: copies-2 has 1 records that the original has not, among them b'other' (offset 1 of events)" in found


def test_other_order_is_a_violation() -> None:
    assert violations(topic(SECOND, FIRST), topic(FIRST, SECOND)) == [
        "copy: copies-2 is not in the order of the original"
    ]


def test_record_that_a_reader_saw_and_the_copy_has_not_is_a_violation() -> None:
    original = topic(FIRST, SECOND)
    (found,) = violations(original, original, meanwhile=topic(FIRST, THIRD))
    assert found == "copy: copies-2: a reader saw records that are not committed, at [2]"
