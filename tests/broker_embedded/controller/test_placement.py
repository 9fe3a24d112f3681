"""Placement: distinct brokers, unfenced leaders, replicas over racks, and evenly over brokers."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pyclient import errors
from pyclient.broker_embedded.controller.placement import StripedReplicaPlacer, UsableBroker


def placed(brokers: list[UsableBroker], count: int, factor: int, seed: int = 0) -> list[list[int]]:
    placer = StripedReplicaPlacer(brokers, Random(seed))
    return [placer.place(factor) for _ in range(count)]


def in_racks(**racks: list[int]) -> list[UsableBroker]:
    return [UsableBroker(node, name) for name, nodes in racks.items() for node in nodes]


@pytest.mark.parametrize(
    ("brokers", "factor", "message"),
    [
        ([UsableBroker(1, None)], 0, "must be positive"),
        ([UsableBroker(1, None)], 2, "cannot be reached because only 1"),
        ([UsableBroker(1, None, True)], 1, "All brokers are currently fenced"),
        ([], 1, "All brokers are currently fenced"),
    ],
)
def test_impossible_replication_factor(brokers: list[UsableBroker], factor: int, message: str) -> None:
    with pytest.raises(errors.InvalidReplicationFactor, match=message):
        placed(brokers, 1, factor)


def test_leaders_are_spread_evenly() -> None:
    for seed in range(20):
        rows = placed([UsableBroker(node, None) for node in (1, 2, 3)], 9, 3, seed)
        assert Counter(row[0] for row in rows) == {1: 3, 2: 3, 3: 3}


def test_each_partition_is_in_every_rack() -> None:
    rack_of = {node: "abc"[node % 3] for node in range(9)}
    for seed in range(20):
        rows = placed([UsableBroker(node, rack) for node, rack in rack_of.items()], 30, 3, seed)
        assert all({rack_of[node] for node in row} == {"a", "b", "c"} for row in rows)


def test_small_rack_gets_a_replica_of_every_partition() -> None:
    rows = placed(in_racks(a=[1, 2, 3], b=[4, 5, 6], c=[7]), 12, 3)
    assert all(7 in row for row in rows)


def test_fenced_brokers_are_the_last_choice() -> None:
    brokers = [UsableBroker(1, None), UsableBroker(2, None, True), UsableBroker(3, None)]
    assert all(2 not in row for row in placed(brokers, 10, 2))
    assert all(row[-1] == 2 for row in placed(brokers, 10, 3))


@given(
    brokers=st.dictionaries(st.integers(0, 12), st.tuples(st.sampled_from([None, "a", "b", "c"]), st.booleans())),
    factor=st.integers(1, 6),
    count=st.integers(1, 20),
    seed=st.integers(0, 99),
)
def test_invariants_of_every_placement(
    brokers: dict[int, tuple[str | None, bool]], factor: int, count: int, seed: int
) -> None:
    usable = [UsableBroker(node, rack, fenced) for node, (rack, fenced) in brokers.items()]
    unfenced = {each.node_id for each in usable if not each.fenced}
    assume(unfenced and factor <= len(usable))
    racks = {each.rack for each in usable}
    live_racks = {each.rack for each in usable if not each.fenced}
    rows = placed(usable, count, factor, seed)
    for row in rows:
        assert len(row) == len(set(row)) == factor
        assert set(row) <= set(brokers)
        assert row[0] in unfenced
        used = {brokers[node][0] for node in row}
        assert len(used) == min(factor, len(racks)) or live_racks != racks
    leaders = Counter(row[0] for row in rows)
    if len(racks) == 1:
        whole = count // len(unfenced)
        assert all(whole <= leaders[node] for node in unfenced), "each round has every broker once"
