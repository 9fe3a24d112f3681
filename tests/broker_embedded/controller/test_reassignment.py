"""Reassignments: what the replicas are on the way, when it is complete, and after a cancellation."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pyclient import errors
from pyclient.broker_embedded.controller.image import PartitionImage
from pyclient.broker_embedded.controller.reassignment import Reverted, completed, plan, reverted

REPLICAS = st.lists(st.integers(1, 6), min_size=1, max_size=4, unique=True)


def test_plan_puts_the_target_first() -> None:
    assert plan([1, 2, 3], [4, 2, 5]) == ([4, 2, 5, 1, 3], [4, 5], [1, 3])


def test_only_the_order_changes() -> None:
    assert plan([1, 2, 3], [3, 2, 1]) == ([3, 2, 1], [], [])


@pytest.mark.parametrize(
    ("isr", "expected"),
    [
        ([1, 2, 3, 4], ([3, 4], [3, 4])),
        ([3, 4], ([3, 4], [3, 4])),
        ([1, 2, 3], None),
        ([1, 2], None),
        ([], None),
    ],
)
def test_complete_when_all_of_the_target_is_in_sync(isr: list[int], expected: object) -> None:
    assert completed([3, 4, 1, 2], [3, 4], [1, 2], isr) == expected


def test_partition_without_reassignment_has_nothing_to_complete() -> None:
    assert completed([1, 2], [], [], [1, 2]) is None


def test_reverted_keeps_what_was_to_be_removed() -> None:
    moving = PartitionImage(0, [3, 4, 1, 2], [1, 3], 1, 0, adding=[3, 4], removing=[1, 2])
    assert reverted(moving) == Reverted([1, 2], [1], False)


def test_reverting_with_only_added_replicas_in_sync_is_unclean() -> None:
    moving = PartitionImage(0, [3, 1], [3], 3, 0, adding=[3], removing=[1])
    assert reverted(moving) == Reverted([1], [1], True)


def test_reverting_to_nothing_is_refused() -> None:
    with pytest.raises(errors.InvalidReplicaAssignment, match="all of its replicas"):
        reverted(PartitionImage(7, [3], [3], 3, 0, adding=[3]))


@given(current=REPLICAS, target=REPLICAS)
def test_every_reassignment_ends_at_its_target_or_where_it_began(current: list[int], target: list[int]) -> None:
    planned = plan(current, target)
    assert set(planned.replicas) == set(current) | set(target)
    assert len(set(planned.replicas)) == len(planned.replicas)
    assume(planned.adding or planned.removing)
    done = completed(*planned, isr=planned.replicas)
    assert done is not None
    assert done.replicas == target
    assert set(done.isr) == set(target)
    back = reverted(PartitionImage(0, planned.replicas, current, current[0], 0, adding=planned.adding))
    assert set(back.replicas) == set(current)
    assert not back.unclean
