"""The core's view of a log compared with a plain list of epochs, and voter sets that follow the log."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.broker_embedded.controller.raft.replica_log import (
    Diverging,
    NeedsSnapshot,
    OffsetAndEpoch,
    ReplicaLog,
    Valid,
)
from pyclient.broker_embedded.controller.raft.voters import ReplicaKey, Voter, VoterSet, VoterSetHistory

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 2), st.integers(1, 4)),
        st.tuples(st.just("truncate"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("delete"), st.integers(0, 30), st.just(0)),
    ),
    max_size=14,
)


class ListOfEpochs:
    """A log as the list of its records' epochs, without any cleverness."""

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.start = 0
        self.before = 0

    def epoch_before(self, offset: int) -> int:
        return self.epochs[offset - 1] if offset > self.start else self.before

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        for offset in range(len(self.epochs), self.start, -1):
            if self.epochs[offset - 1] <= epoch:
                return offset, self.epochs[offset - 1]
        return self.start, self.before


def build(actions: list[tuple[str, int, int]]) -> tuple[ReplicaLog, ListOfEpochs]:
    log, model = ReplicaLog(), ListOfEpochs()
    for action, first, count in actions:
        if action == "append":
            epoch = log.last_epoch + first
            log.append(epoch, log.end_offset + count)
            model.epochs.extend([epoch] * count)
        elif action == "truncate":
            offset = min(max(first, log.start_offset), log.end_offset)
            log.truncate(offset)
            del model.epochs[offset:]
        else:
            offset = min(max(first, log.start_offset), log.end_offset)
            if offset > log.start_offset:
                epoch = model.epoch_before(offset)
                log.delete_before(OffsetAndEpoch(offset, epoch))
                log.snapshot = log.oldest_snapshot
                model.start, model.before = offset, epoch
    return log, model


@given(ACTIONS)
def test_epochs_are_those_of_the_records(actions: list[tuple[str, int, int]]) -> None:
    log, model = build(actions)
    assert log.end_offset == max(len(model.epochs), model.start)
    assert log.last_epoch == model.epoch_before(log.end_offset)
    for offset in range(log.start_offset, log.end_offset + 1):
        assert log.epoch_before(offset) == model.epoch_before(offset)
    for epoch in range(log.last_epoch + 2):
        end = log.end_of_epoch(epoch)
        assert (end.offset, end.epoch) == model.end_of_epoch(epoch)


RUNS = st.lists(st.integers(1, 4), max_size=5)
"""The lengths of runs of records of one epoch each."""


@given(shared=RUNS, own=RUNS, lost=RUNS, kept=st.integers(0, 20), deleted=st.integers(0, 20))
def test_follower_reaches_its_leader(
    shared: list[int], own: list[int], lost: list[int], kept: int, deleted: int
) -> None:
    """As in Raft, an epoch has one leader: records of the same epoch at the same offset are the same."""
    leader, follower = ReplicaLog(), ReplicaLog()
    for number, count in enumerate(shared, 1):
        leader.append(number, leader.end_offset + count)
        follower.append(number, follower.end_offset + count)
    follower.truncate(min(kept, follower.end_offset))
    committed = min(deleted, leader.end_offset)
    for number, count in enumerate(own):
        leader.append(100 + 2 * number, leader.end_offset + count)
    for number, count in enumerate(lost):
        follower.append(101 + 2 * number, follower.end_offset + count)
    if committed:
        snapshot = OffsetAndEpoch(committed, leader.epoch_before(committed))
        leader.delete_before(snapshot)
        leader.snapshot = snapshot
    for _ in range(100):
        place = leader.check_fetch(follower.end_offset, follower.last_epoch)
        if isinstance(place, Valid):
            break
        if isinstance(place, Diverging):
            point = follower.truncation_point(place.end)
            assert point < follower.end_offset
            follower.truncate(point)
        else:
            assert place.snapshot == leader.oldest_snapshot
            follower.restart(place.snapshot)
    assert isinstance(place, Valid)
    assert leader.start_offset <= follower.end_offset <= leader.end_offset
    assert follower.last_epoch == leader.epoch_before(follower.end_offset)


def test_follower_behind_log_start_needs_newest_snapshot() -> None:
    log = ReplicaLog(start_offset=5, end_offset=9, epochs=[(3, 5)], oldest_snapshot=OffsetAndEpoch(5, 2))
    log.snapshot = OffsetAndEpoch(8, 3)
    assert log.check_fetch(3, 2) == NeedsSnapshot(OffsetAndEpoch(8, 3))
    assert log.check_fetch(5, 1) == NeedsSnapshot(OffsetAndEpoch(8, 3))
    assert log.check_fetch(5, 2) == Valid()
    assert log.check_fetch(9, 3) == Valid()
    assert log.check_fetch(10, 3) == Diverging(OffsetAndEpoch(9, 3))


def test_log_refuses_what_cannot_follow() -> None:
    log = ReplicaLog(end_offset=4, epochs=[(2, 0)])
    with pytest.raises(ValueError, match="records of epoch 1 up to 5 cannot follow the end 4/2"):
        log.append(1, 5)
    with pytest.raises(ValueError, match="up to 4 cannot follow"):
        log.append(2, 4)
    with pytest.raises(ValueError, match="cannot truncate to 5"):
        log.truncate(5)
    with pytest.raises(ValueError, match="the snapshot 9/2 is beyond the log's end 4/2"):
        log.delete_before(OffsetAndEpoch(9, 2))


def test_flushed_end_never_exceeds_truncated_end() -> None:
    log = ReplicaLog(end_offset=4, epochs=[(1, 0)])
    log.truncate(2)
    log.append(2, 6)
    assert (log.flushed_end, log.end_offset) == (2, 6)


# Voter sets


def voters(*ids: int) -> VoterSet:
    return VoterSet.of(*ids)


def test_newest_voter_set_counts_until_it_is_truncated() -> None:
    history = VoterSetHistory(voters(1))
    history.add(3, voters(1, 2))
    history.add(7, voters(1, 2, 3))
    assert history.newest == voters(1, 2, 3)
    assert [len(history.at(offset)) for offset in (0, 3, 4, 7, 8)] == [1, 1, 2, 2, 3]
    history.truncate(7)
    assert (history.newest, history.newest_offset) == (voters(1, 2), 3)
    history.truncate(0)
    assert (history.newest, history.newest_offset) == (voters(1), -1)


def test_voter_sets_before_log_start_are_forgotten() -> None:
    history = VoterSetHistory(voters(1))
    for offset, ids in ((3, (1, 2)), (7, (1, 2, 3)), (9, (2, 3))):
        history.add(offset, voters(*ids))
    history.trim(8)
    assert [len(history.at(offset)) for offset in (8, 9, 10)] == [3, 3, 2]
    history.restart(20, voters(4, 5, 6))
    assert history.newest == voters(4, 5, 6)
    assert history.at(20) == voters(4, 5, 6)


def test_later_voter_set_has_higher_offset() -> None:
    history = VoterSetHistory(voters(1))
    history.add(3, voters(1, 2))
    with pytest.raises(ValueError, match="a voter set at offset 3 follows the one at 3"):
        history.add(3, voters(1))


def test_voter_is_known_by_its_directory_if_the_set_has_one() -> None:
    own, other = UUID(int=1), UUID(int=2)
    static, dynamic = voters(1), VoterSet([Voter(ReplicaKey(1, own))])
    assert ReplicaKey(1, own) in static
    assert ReplicaKey(1, own) in dynamic
    assert ReplicaKey(1, other) not in dynamic
    assert ReplicaKey(2, own) not in dynamic


@pytest.mark.parametrize(("count", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_majority(count: int, majority: int) -> None:
    assert voters(*range(count)).majority == majority


def test_voter_sets_are_values() -> None:
    assert voters(1, 2) == voters(2, 1)
    assert hash(voters(1, 2)) == hash(voters(2, 1))
    assert voters(1).with_voter(Voter(ReplicaKey(2))) == voters(1, 2)
    assert voters(1, 2).without(ReplicaKey(2)) == voters(1)
    assert repr(voters(1, 2)) == "VoterSet(1, 2)"
    assert [voter.key.id for voter in voters(2, 1)] == [1, 2]
