"""Offsets committed in transactions: visible when the transaction commits, in memory as after a replay of the log."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyclient import errors
from pyclient.broker_embedded.groups.offset_metadata_manager import Commit, Position
from pyclient.types import TopicPartition
from tests.broker_embedded.groups.conftest import Node, committed

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
PARTITIONS = (T0, T1)


def commit(node: Node, offset: int, producer_id: int = -1, *partitions: TopicPartition, **member: Any) -> Any:
    positions = {partition: Position(offset) for partition in partitions or (T0,)}
    transaction = {} if producer_id < 0 else {"producer_id": producer_id, "producer_epoch": 0}
    return committed(node, "g", Commit(positions=positions, **transaction, **member))


def end(node: Node, producer_id: int, *, commit: bool) -> None:
    node.end_transaction(node.groups.groups.partition_of("g"), producer_id, commit=commit)


def offsets(node: Node) -> dict[TopicPartition, int]:
    return {partition: found.offset for partition, found in node.groups.offsets.fetch("g").items()}


def test_offsets_are_unstable_until_the_transaction_ends(node: Node) -> None:
    assert commit(node, 1) == {T0: 0}
    assert commit(node, 5, 7, T0, T1) == {T0: 0, T1: 0}
    assert (offsets(node), node.groups.offsets.unstable("g")) == ({T0: 1}, {T0, T1})
    end(node, 8, commit=True)  # of another producer
    assert offsets(node) == {T0: 1}
    end(node, 7, commit=True)
    assert (offsets(node), node.groups.offsets.unstable("g")) == ({T0: 5, T1: 5}, frozenset())
    commit(node, 9, 7)
    end(node, 7, commit=False)
    assert (offsets(node), node.groups.offsets.unstable("g")) == ({T0: 5, T1: 5}, frozenset())


def test_the_last_write_counts_and_not_the_last_decision(node: Node) -> None:
    commit(node, 1, 7)
    commit(node, 2, 8)
    commit(node, 3)
    commit(node, 4, 9)
    end(node, 9, commit=True)
    end(node, 8, commit=True)
    end(node, 7, commit=True)
    assert offsets(node) == {T0: 4}


def test_members_are_checked(node: Node) -> None:
    assert commit(node, 1, 7, generation=3) == {T0: errors.IllegalGeneration.code}
    assert commit(node, 1, 7) == {T0: 0}
    assert node.groups.offsets.unstable("g") == {T0}


def test_a_group_with_undecided_offsets_does_not_expire(node: Node) -> None:
    commit(node, 1, 7)
    node.clock.advance(30 * 24 * 3600)
    node.groups.offsets.expire()
    end(node, 7, commit=True)
    assert offsets(node) == {T0: 1}


def test_a_deleted_group_stays_deleted_when_the_transaction_commits(node: Node) -> None:
    commit(node, 1)
    commit(node, 2, 7)
    assert node.groups.delete("g") == 0
    end(node, 7, commit=True)
    assert offsets(node) == {}
    node.restart()
    assert offsets(node) == {}


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.integers(-1, 3), st.sets(st.sampled_from(PARTITIONS), min_size=1)),
        st.tuples(st.just("end"), st.integers(0, 3), st.booleans()),
        st.tuples(st.just("delete"), st.sampled_from(PARTITIONS)),
        st.tuples(st.just("restart")),
    ),
    max_size=30,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_STEPS)
def test_offsets_equal_a_model_and_survive_restarts(steps: list[Any]) -> None:
    """The model: of each partition, the last write of all that are decided, where a deletion is a write, too."""
    node = Node()
    writes: list[tuple[TopicPartition, int | None, int]] = []  # partition, offset, producer id of an open transaction
    commit(node, 0, -1, TopicPartition("other", 0))
    for number, step in enumerate(steps, 1):
        if step[0] == "commit":
            _, producer_id, partitions = step
            assert set(commit(node, number, producer_id, *partitions).values()) == {0}
            writes += [(partition, number, producer_id) for partition in partitions]
        elif step[0] == "end":
            _, producer_id, is_commit = step
            end(node, producer_id, commit=is_commit)
            writes = [
                (partition, offset, -1 if owner == producer_id else owner)
                for partition, offset, owner in writes
                if is_commit or owner != producer_id
            ]
        elif step[0] == "delete":
            visible = step[1] in offsets(node)
            node.groups.offsets.delete("g", [step[1]])
            if visible:
                writes.append((step[1], None, -1))
        else:
            node.restart()
        last = {partition: offset for partition, offset, owner in writes if owner == -1}
        expected = {partition: offset for partition, offset in last.items() if offset is not None}
        assert {partition: offset for partition, offset in offsets(node).items() if partition in PARTITIONS} == expected
        assert node.groups.offsets.unstable("g") == {partition for partition, _offset, owner in writes if owner >= 0}


@pytest.mark.parametrize("commits", [True, False])
def test_an_open_transaction_survives_a_restart(node: Node, commits: bool) -> None:
    commit(node, 1)
    commit(node, 5, 7)
    node.restart()
    assert (offsets(node), node.groups.offsets.unstable("g")) == ({T0: 1}, {T0})
    end(node, 7, commit=commits)
    assert offsets(node) == {T0: 5 if commits else 1}
