"""A follower's handling of its leader's responses, and its side of fetch sessions."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient import errors
from pyclient.broker_embedded.log.leader_epoch_cache import LeaderEpochFileCache
from pyclient.broker_embedded.replication.fetch_session_handler import FetchSessionHandler
from pyclient.broker_embedded.replication.following import (
    Append,
    Fenced,
    FindOffsets,
    Following,
    Ignore,
    Truncate,
    Wait,
    decide,
    restart_offset,
    truncation_offset,
)
from pyclient.protocol.messages.fetch import EpochEndOffset, FetchPartition, PartitionData
from pyclient.types import TopicPartition


class Log:
    """The epochs and the end of a log."""

    def __init__(self, epochs: Sequence[tuple[int, int]], end: int) -> None:
        self.cache = LeaderEpochFileCache(epochs)
        self.end_offset = end

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.cache.end_offset(epoch, self.end_offset)


def following(epoch: int = 3) -> Following:
    return Following(TopicPartition("orders", 0), UUID(int=1), epoch)


def asked(offset: int = 10, epoch: int = 3) -> FetchPartition:
    return FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1, current_leader_epoch=epoch)


def ends(epoch: int, end: int) -> EpochEndOffset:
    return EpochEndOffset(epoch=epoch, end_offset=end)


def answer(code: int = 0, diverging: tuple[int, int] = (-1, -1)) -> PartitionData:
    return PartitionData(
        partition_index=0, error_code=code, high_watermark=5, records=b"", diverging_epoch=ends(*diverging)
    )


LOG = Log([(1, 0), (3, 4)], 10)


def test_answers() -> None:
    data = answer()
    assert decide(following(), asked(), data, LOG) == Append(data)
    assert decide(following(), asked(), answer(errors.OffsetOutOfRange.code), LOG) == FindOffsets()
    assert decide(following(), asked(), answer(errors.FencedLeaderEpoch.code), LOG) == Fenced()
    code = errors.UnknownLeaderEpoch.code
    assert decide(following(), asked(), answer(code), LOG) == Wait(code)
    assert decide(following(), asked(), answer(diverging=(1, 2)), LOG) == Truncate(
        2, "the leader's log ends at 2 in epoch 1"
    )


@pytest.mark.parametrize(
    ("epochs", "offset"), [([(1, 0), (3, 4), (900, 7)], 7), ([(1, 0), (900, 7)], 7), ([(900, 2)], 2)]
)
def test_batches_of_an_epoch_after_the_leaders_are_removed(epochs: list[tuple[int, int]], offset: int) -> None:
    request = asked(offset=10, epoch=3)
    request.last_fetched_epoch = 900
    step = decide(following(), request, answer(errors.OffsetOutOfRange.code), Log(epochs, 10))
    assert step == Truncate(offset, "there are batches of epoch 900, the leader's epoch is 3")


@pytest.mark.parametrize("request_", [asked(epoch=2), asked(offset=9)], ids=["epoch", "offset"])
def test_answers_for_an_earlier_state_are_ignored(request_: FetchPartition) -> None:
    assert decide(following(), request_, answer(), LOG) == Ignore()
    assert decide(following(), request_, answer(errors.FencedLeaderEpoch.code), LOG) == Ignore()
    assert decide(following(), request_, answer(diverging=(1, 2)), LOG) == Ignore()


@pytest.mark.parametrize(
    ("epochs", "end", "diverging", "offset"),
    [
        ([(1, 0), (3, 4)], 10, (3, 7), 7),  # the leader's epoch is shorter
        ([(1, 0), (3, 4)], 10, (1, 9), 4),  # this log's epoch is shorter
        ([(1, 0), (3, 4)], 10, (2, 6), 4),  # the epoch is not known here: the end of the one before
        ([(1, 0), (3, 4)], 10, (5, 20), 10),  # nor is a newer one
        ([(2, 0)], 10, (1, 5), 0),
        ([], 10, (1, 5), 5),
        ([(3, 10)], 10, (1, 10), 10),  # an epoch in which this node led and wrote nothing
    ],
)
def test_truncation_offset(epochs: list[tuple[int, int]], end: int, diverging: tuple[int, int], offset: int) -> None:
    assert truncation_offset(ends(*diverging), Log(epochs, end)) == offset


TERMS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 4), st.lists(st.none() | st.integers(0, 4), min_size=3, max_size=3)),
    max_size=8,
)
"""Terms of leaders: the replica that leads, how many records it writes, and how many of them each other one copies."""


def shared(one: list[int], other: list[int]) -> int:
    """Return the length of the common beginning."""
    return next((n for n, (mine, theirs) in enumerate(zip(one, other, strict=False)) if mine != theirs), len(one))


@given(TERMS, st.integers(0, 2), st.integers(0, 2))
def test_truncations_end_with_a_beginning_of_the_leaders_log(
    terms: list[tuple[int, int, list[int | None]]], last_leader: int, other: int
) -> None:
    """Write logs (lists of the epochs of their records) by a series of leaders, which replicate parts of them."""
    logs: list[list[int]] = [[], [], []]
    for epoch, (leading, count, copied) in enumerate(terms):
        log = logs[leading] = logs[leading] + [epoch] * count
        for replica, more in enumerate(copied):
            if replica != leading and more is not None:
                logs[replica] = log[: min(shared(logs[replica], log), len(log)) + more]
    leader, follower = logs[last_leader], logs[other]
    common = min(shared(follower, leader), len(leader))
    theirs = Log([(epoch, leader.index(epoch)) for epoch in sorted(set(leader))], len(leader))
    theirs.cache.assign(len(terms), len(leader))  # as an elected leader does
    while follower:
        own = Log([(epoch, follower.index(epoch)) for epoch in sorted(set(follower))], len(follower))
        epoch, end = theirs.end_offset_for_epoch(follower[-1])
        if epoch == follower[-1] and end >= len(follower):
            break
        before = len(follower)
        follower = follower[: truncation_offset(ends(epoch, end), own)]
        assert common <= len(follower) < before
    assert follower == leader[: len(follower)]
    assert len(follower) == common


def test_restart_outside_of_the_leaders_log() -> None:
    assert restart_offset(leader_start=0, leader_end=5, end=9) == (5, False)
    assert restart_offset(leader_start=7, leader_end=20, end=5) == (7, True)
    assert restart_offset(leader_start=7, leader_end=7, end=9) == (7, False)
    assert restart_offset(leader_start=3, leader_end=20, end=9) == (9, False)


def test_pauses_grow_and_end_with_a_success() -> None:
    partition = following()
    assert partition.not_before <= 0.0
    pauses = []
    for _ in range(6):
        partition.failed(100.0, 0.1)
        pauses.append(round(partition.not_before - 100.0, 3))
    assert pauses == [0.01, 0.02, 0.04, 0.08, 0.1, 0.1]
    assert partition.not_before > 100.05
    partition.succeeded()
    assert partition.not_before <= 0.0
    partition.fenced()
    assert partition.not_before > 1e9


A, B = (UUID(int=1), 0), (UUID(int=1), 1)


def test_session_names_only_changes() -> None:
    session = FetchSessionHandler()
    first = session.next({A: asked(1), B: asked(1)})
    assert (first.session_id, first.epoch, set(first.partitions)) == (0, 0, {A, B})
    assert session.answered(77, 0)
    second = session.next({A: asked(1), B: asked(2)})
    assert (second.session_id, second.epoch, set(second.partitions), second.forgotten) == (77, 1, {B}, [])
    assert session.answered(77, 0)
    third = session.next({B: asked(2)})
    assert (third.epoch, third.partitions, third.forgotten) == (2, {}, [A])


def test_session_begins_again_after_an_error() -> None:
    session = FetchSessionHandler()
    session.next({A: asked()})
    session.answered(77, 0)
    session.next({A: asked()})
    assert not session.answered(0, errors.InvalidFetchSessionEpoch.code)
    assert session.next({A: asked()})[:2] == (77, 0), "the old session gives way to the new one"
    assert not session.answered(0, errors.FetchSessionIdNotFound.code)
    again = session.next({A: asked()})
    assert (again.session_id, again.epoch, set(again.partitions)) == (0, 0, {A})
    assert session.answered(78, 0)
    session.failed()
    assert session.next({A: asked()})[:2] == (78, 0)


def test_leader_without_room_for_a_session() -> None:
    session = FetchSessionHandler()
    for _ in range(2):
        assert session.next({A: asked()})[:2] == (0, 0)
        assert session.answered(0, 0)
