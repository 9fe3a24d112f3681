"""Elections and the records of partition changes: the leader, what remains in the ISR, which epochs rise."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.broker_embedded.controller.image import MetadataImage, PartitionImage, TopicImage
from pyclient.broker_embedded.controller.partition_elections import Election, ElectionRules, PartitionChange

ID = uuid.UUID(int=9)


def directory(broker: int) -> uuid.UUID:
    return uuid.UUID(int=100 + broker)


def partition_of(replicas: list[int], isr: list[int], leader: int, **fields: Any) -> PartitionImage:
    values: dict[str, Any] = {"leader_epoch": 5, "partition_epoch": 7, "directories": [directory(r) for r in replicas]}
    return PartitionImage(0, replicas, isr, leader, **(values | fields))


def change_of(
    before: PartitionImage, alive: set[int], *, min_isr: int = 1, elr: bool = False, level: int = 30
) -> PartitionChange:
    rules = ElectionRules(alive.__contains__, min_isr, elr, level, directory)
    return PartitionChange(ID, before, rules)


def applied(change: PartitionChange, before: PartitionImage) -> PartitionImage:
    """Return the partition after the change's record."""
    image = MetadataImage()
    image.topics_by_id[ID] = image.topics["t"] = TopicImage("t", ID, {0: before})
    record = change.record()
    if record is not None:
        image.apply(record)
    return image.topics["t"].partitions[0]


def test_no_record_if_nothing_changes() -> None:
    assert change_of(partition_of([1, 2, 3], [1, 2], 1), {1, 2, 3}).record() is None


@pytest.mark.parametrize(
    ("leader", "isr", "alive", "election", "expected"),
    [
        (1, [1, 2, 3], {1, 2, 3}, Election.ONLINE, (1, False)),
        (2, [1, 2, 3], {1, 2, 3}, Election.ONLINE, (2, False)),  # a valid leader stays
        (2, [1, 2, 3], {1, 2, 3}, Election.PREFERRED, (1, False)),
        (2, [2, 3], {1, 2, 3}, Election.PREFERRED, (2, False)),  # the preferred leader is not in sync
        (2, [3], {1, 2, 3}, Election.PREFERRED, (3, False)),
        (1, [2, 3], {1, 2, 3}, Election.ONLINE, (2, False)),  # in the order of the replicas
        (1, [3, 2], {2, 3}, Election.ONLINE, (2, False)),
        (1, [1, 3], {2, 3}, Election.ONLINE, (3, False)),
        (1, [1], {2, 3}, Election.ONLINE, (-1, False)),
        (1, [1], {2, 3}, Election.PREFERRED, (-1, False)),
        (1, [1], {2, 3}, Election.UNCLEAN, (2, True)),
        (-1, [1], set(), Election.UNCLEAN, (-1, False)),
        (-1, [1], {1}, Election.ONLINE, (1, False)),
    ],
)
def test_leader_is_the_first_valid_replica(
    leader: int, isr: list[int], alive: set[int], election: Election, expected: tuple[int, bool]
) -> None:
    before = partition_of([1, 2, 3], isr, leader)
    change = change_of(before, alive)
    change.election = election
    after = applied(change, before)
    elected, unclean = expected
    assert after.leader == elected
    assert after.leader_epoch == 5 + (elected != leader)
    assert after.leader_recovery_state == unclean
    assert after.isr == ([elected] if unclean else isr)


def test_last_member_stays_in_the_isr_without_eligible_replicas() -> None:
    before = partition_of([1, 2], [1], 1)
    change = change_of(before, {2})
    change.isr = []
    after = applied(change, before)
    assert (after.leader, after.isr, after.leader_epoch) == (-1, [1], 6)


def test_members_that_leave_below_min_isr_become_eligible() -> None:
    before = partition_of([1, 2, 3], [1, 2], 1)
    change = change_of(before, {1, 3}, min_isr=2, elr=True)
    change.isr = [1]
    after = applied(change, before)
    assert (after.isr, after.elr, after.leader) == ([1], (2,), 1)
    change = change_of(after, {3}, min_isr=2, elr=True)
    change.isr = []
    last = applied(change, after)
    assert (last.isr, set(last.elr), last.leader, last.last_known_elr) == ([], {1, 2}, -1, (1,))
    back = change_of(last, {2, 3}, min_isr=2, elr=True)
    again = applied(back, last)
    assert (again.leader, again.isr, again.elr, again.last_known_elr) == (2, [2], (1,), ())
    assert again.leader_recovery_state == 0
    full = change_of(again, {1, 2, 3}, min_isr=2, elr=True)
    full.isr = [2, 1]
    assert applied(full, again).elr == ()


def test_crashed_replica_is_not_eligible() -> None:
    before = partition_of([1, 2, 3], [1], 1, elr=(2,))
    change = change_of(before, {1, 3}, min_isr=2, elr=True)
    change.unclean_shutdown = (2,)
    assert applied(change, before).elr == ()


def test_last_known_leader_is_elected_when_no_other_is_known() -> None:
    before = partition_of([1, 2, 3], [], -1, last_known_elr=(3,))
    assert change_of(before, {1, 2}, min_isr=2, elr=True).record() is None
    after = applied(change_of(before, {1, 2, 3}, min_isr=2, elr=True), before)
    assert (after.leader, after.isr, after.leader_recovery_state, after.last_known_elr) == (3, [3], 1, ())


def test_unclean_election_clears_the_eligible_replicas() -> None:
    before = partition_of([1, 2, 3], [], -1, elr=(1,))
    change = change_of(before, {3}, min_isr=2, elr=True)
    change.election = Election.UNCLEAN
    after = applied(change, before)
    assert (after.leader, after.isr, after.elr, after.leader_recovery_state) == (3, [3], (), 1)


def test_complete_reassignment_moves_the_leader() -> None:
    before = partition_of([3, 4, 1, 2], [1, 2, 3], 1, adding=[3, 4], removing=[1, 2])
    change = change_of(before, {1, 2, 3, 4})
    change.isr = [1, 2, 3, 4]
    after = applied(change, before)
    assert (after.replicas, after.isr, after.adding, after.removing) == ([3, 4], [3, 4], [], [])
    assert (after.leader, after.leader_epoch, after.partition_epoch) == (3, 6, 8)
    assert after.directories == [directory(3), directory(4)]


def test_incomplete_reassignment_keeps_its_replicas() -> None:
    before = partition_of([3, 4, 1, 2], [1, 2], 1, adding=[3, 4], removing=[1, 2])
    change = change_of(before, {1, 2, 3, 4})
    change.isr = [1, 2, 3]
    after = applied(change, before)
    assert (after.replicas, after.adding, after.leader_epoch) == ([3, 4, 1, 2], [3, 4], 5)


def test_leader_epoch_rises_when_replicas_are_removed_and_not_when_added() -> None:
    before = partition_of([1, 2], [1, 2], 1)
    grown = change_of(before, {1, 2, 3})
    grown.replicas, grown.adding = [1, 2, 3], [3]
    after = applied(grown, before)
    assert (after.leader, after.leader_epoch, after.directories[-1]) == (1, 5, directory(3))
    shrunk = change_of(before, {1, 2})
    shrunk.replicas, shrunk.isr = [1], [1]
    after = applied(shrunk, before)
    assert (after.leader, after.leader_epoch, after.directories) == (1, 6, [directory(1)])


@pytest.mark.parametrize(("level", "epoch"), [(11, 6), (12, 5), (30, 5)])
def test_smaller_isr_needs_a_new_leader_epoch_before_3_6(level: int, epoch: int) -> None:
    before = partition_of([1, 2], [1, 2], 1)
    change = change_of(before, {1, 2}, level=level)
    change.isr = [1]
    assert applied(change, before).leader_epoch == epoch


def test_directories_are_not_named_before_3_7() -> None:
    before = partition_of([1, 2], [1, 2], 1, directories=[])
    change = change_of(before, {1, 2, 3}, level=15)
    change.replicas, change.adding = [1, 2, 3], [3]
    record = change.record()
    assert record is not None
    assert record.directories is None


def test_last_known_leader_that_is_no_replica_any_more_is_not_elected() -> None:
    before = partition_of([1, 2, 3], [1], -1, last_known_elr=(4,))
    change = change_of(before, {4}, elr=True)
    change.isr, change.unclean_shutdown = [], (1,)
    after = applied(change, before)
    assert (after.leader, after.isr, after.elr) == (-1, [], ())


def test_broker_that_is_no_replica_any_more_is_not_eligible() -> None:
    before = partition_of([4, 1, 2, 3], [4, 1], 4, adding=[4])
    change = change_of(before, {2, 3}, min_isr=2, elr=True)
    change.isr, change.replicas, change.adding = [1], [1, 2, 3], []
    after = applied(change, before)
    assert (after.replicas, after.isr, after.elr, after.leader) == ([1, 2, 3], [1], (), -1)


NODES = st.integers(1, 5)


@st.composite
def partitions(draw: st.DrawFn) -> PartitionImage:
    replicas = draw(st.lists(NODES, min_size=1, max_size=4, unique=True))
    isr = draw(st.lists(st.sampled_from(replicas), unique=True))
    elr = draw(st.lists(st.sampled_from(replicas), unique=True))
    leader = draw(st.sampled_from([-1, *isr]))
    last_known = draw(st.lists(NODES, max_size=1)) if leader < 0 else []
    eligible = tuple(each for each in elr if each not in isr)
    return partition_of(replicas, isr, leader, elr=eligible, last_known_elr=tuple(last_known))


@given(
    before=partitions(),
    alive=st.sets(NODES),
    gone=NODES,
    election=st.sampled_from(Election),
    min_isr=st.integers(1, 3),
    elr=st.booleans(),
    crashed=st.booleans(),
)
def test_invariants_of_every_change(
    before: PartitionImage,
    alive: set[int],
    gone: int,
    election: Election,
    min_isr: int,
    elr: bool,
    crashed: bool,
) -> None:
    alive = alive - {gone}
    change = change_of(before, alive, min_isr=min_isr, elr=elr)
    change.isr = [each for each in before.isr if each != gone]
    change.election = election
    change.unclean_shutdown = (gone,) if crashed else ()
    record = change.record()
    after = applied(change, before)
    assert after.leader == -1 or after.leader in alive
    assert after.leader == -1 or after.leader in after.isr
    assert {*after.isr, *after.elr} <= set(after.replicas)
    assert not set(after.isr) & set(after.elr)
    assert elr or after.isr or not before.isr, "the last member stays"
    if after.leader_recovery_state:
        assert after.isr == [after.leader], "an unclean leader has no other member of the ISR"
        assert election is Election.UNCLEAN or (elr and before.last_known_elr == (after.leader,))
    elif after.leader != before.leader and after.leader != -1:
        assert after.leader in before.isr or after.leader in before.elr, "no committed record is lost"
    if not elr or len(after.isr) >= min_isr:
        assert not after.elr
    if crashed:
        assert gone not in after.elr
    assert after.partition_epoch == before.partition_epoch + (record is not None)
    assert after.leader_epoch - before.leader_epoch == (after.leader != before.leader)
    if gone in before.isr and before.leader == gone:
        assert after.leader != gone
