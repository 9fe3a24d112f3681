"""The leader's side of a replicated partition: in-sync replicas, their changes, and the high watermark."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pyclient import errors
from pyclient.broker_embedded.controller.image import PartitionImage
from pyclient.broker_embedded.replication.partition import FollowerFetch, IsrChange, Partition

ME = 1
MY_EPOCH = 100


@dataclass
class Broker:
    """A registered broker."""

    epoch: int
    fenced: bool = False
    in_controlled_shutdown: bool = False


def brokers_of(*nodes: int) -> dict[int, Broker]:
    """Return live brokers; the epoch of broker 1 is 100, of broker 2 is 200, ..."""
    return {node: Broker(node * 100) for node in nodes}


def image(
    leader: int = ME, epoch: int = 5, *, isr: tuple[int, ...] = (1, 2, 3), replicas: int = 3, partition_epoch: int = 7
) -> PartitionImage:
    """Return the metadata of a partition."""
    return PartitionImage(0, list(range(1, replicas + 1)), list(isr), leader, epoch, partition_epoch)


def leader(
    *, isr: tuple[int, ...] = (1, 2, 3), end: int = 10, high_watermark: int = 0, min_isr: int = 1
) -> tuple[Partition, dict[int, Broker]]:
    """Return a partition that has just become leader, and the brokers in the metadata."""
    brokers = brokers_of(1, 2, 3)
    partition = Partition(ME, brokers.get, min_isr=min_isr, most_lag=30.0)
    assert partition.lead(image(isr=isr), end=end, high_watermark=high_watermark, now=0.0)
    return partition, brokers


def fetched(partition: Partition, node: int, offset: int, *, end: int, now: float) -> int:
    """Let a follower fetch. Return the high watermark after it."""
    fetch = FollowerFetch(node, offset, 0, node * 100)
    partition.check_follower(fetch, partition.leader_epoch)
    partition.fetched(fetch, end=end, now=now)
    return partition.advance(end=end, now=now)


def test_high_watermark_waits_for_every_in_sync_replica() -> None:
    partition, _ = leader(end=10)
    assert partition.advance(end=10, now=0.0) == 0
    assert fetched(partition, 2, 10, end=10, now=0.1) == 0
    assert fetched(partition, 3, 4, end=10, now=0.1) == 4
    assert fetched(partition, 3, 10, end=12, now=0.2) == 10
    assert fetched(partition, 2, 12, end=12, now=0.3) == 10
    assert fetched(partition, 3, 12, end=12, now=0.4) == 12


def test_replica_outside_does_not_hold_the_high_watermark() -> None:
    partition, _ = leader(isr=(1, 2), end=10)
    assert fetched(partition, 2, 10, end=10, now=0.1) == 10


def test_replica_about_to_join_holds_the_high_watermark() -> None:
    partition, _ = leader(isr=(1, 2), end=10)
    assert fetched(partition, 2, 10, end=10, now=0.1) == 10
    assert fetched(partition, 3, 10, end=10, now=0.2) == 10
    assert fetched(partition, 2, 20, end=20, now=0.3) == 10
    assert partition.advance(end=20, now=31.0) == 20  # it lags: it cannot join before it has these


def test_high_watermark_stays_below_min_insync_replicas() -> None:
    partition, _ = leader(isr=(1,), end=10, high_watermark=6, min_isr=2)
    assert partition.advance(end=10, now=0.0) == 6
    with pytest.raises(errors.NotEnoughReplicas, match=r"1 replicas are in sync \[1\], 2 are required"):
        partition.check_min_isr()
    assert fetched(partition, 2, 10, end=10, now=0.1) == 6
    change = partition.expand(2, MY_EPOCH)
    assert change is not None
    assert partition.advance(end=10, now=0.1) == 6  # not before the controller has committed it
    assert partition.accepted(change, frozenset({1, 2}), 5, 8)
    assert partition.advance(end=10, now=0.2) == 10
    partition.check_min_isr()


def test_min_insync_replicas_above_the_replicas_counts_as_all_of_them() -> None:
    partition, _ = leader(end=10, min_isr=5)
    assert partition.effective_min_isr == 3
    partition.check_min_isr()


def test_shrink_removes_followers_that_lag_and_counts_when_committed() -> None:
    partition, _ = leader(end=10)
    fetched(partition, 2, 10, end=10, now=20.0)
    assert partition.shrink(MY_EPOCH, end=10, now=30.0) is None
    change = partition.shrink(MY_EPOCH, end=10, now=31.0)
    assert change == IsrChange(5, 7, ((1, 100), (2, 200)))
    assert partition.maximal_isr == {1, 2, 3}
    assert partition.advance(end=10, now=31.0) == 0
    assert partition.shrink(MY_EPOCH, end=10, now=32.0) is None, "one proposal at a time"
    assert partition.accepted(change, frozenset({1, 2}), 5, 8)
    assert partition.advance(end=10, now=32.0) == 10


def test_follower_at_the_end_is_in_sync_however_long_ago_it_fetched() -> None:
    partition, _ = leader(end=10)
    fetched(partition, 2, 10, end=10, now=1.0)
    fetched(partition, 3, 10, end=10, now=1.0)
    assert partition.shrink(MY_EPOCH, end=10, now=1000.0) is None
    assert partition.shrink(MY_EPOCH, end=11, now=1000.0) is not None


def test_reaching_the_end_of_the_previous_fetch_is_caught_up_then() -> None:
    partition, _ = leader(isr=(1, 2), end=10)
    fetched(partition, 2, 5, end=10, now=10.0)
    fetched(partition, 2, 10, end=20, now=20.0)
    assert partition.followers[2].caught_up_at == 10.0
    assert partition.shrink(MY_EPOCH, end=20, now=40.0) is None
    assert partition.shrink(MY_EPOCH, end=20, now=40.5) is not None


def test_expand_needs_the_start_of_the_epoch() -> None:
    partition, _ = leader(isr=(1,), end=10, high_watermark=5, min_isr=2)
    fetched(partition, 2, 9, end=10, now=1.0)
    assert partition.expand(2, MY_EPOCH) is None, "it lacks records from before this leader's epoch"
    fetched(partition, 2, 10, end=12, now=1.0)
    assert partition.expand(2, MY_EPOCH) is not None


def test_expand_needs_the_high_watermark() -> None:
    partition, _ = leader(isr=(1,), end=10)
    assert partition.advance(end=12, now=0.0) == 12
    fetched(partition, 2, 11, end=12, now=1.0)
    assert partition.expand(2, MY_EPOCH) is None
    fetched(partition, 2, 12, end=12, now=1.0)
    change = partition.expand(2, MY_EPOCH)
    assert change is not None
    assert change.isr == ((1, 100), (2, 200))
    assert partition.maximal_isr == {1, 2}
    assert partition.advance(end=20, now=100.0) == 12, "the new member already counts"


@pytest.mark.parametrize("change", [{"fenced": True}, {"in_controlled_shutdown": True}, {"epoch": 201}], ids=str)
def test_ineligible_replica_does_not_join(change: dict[str, int]) -> None:
    partition, brokers = leader(isr=(1,), end=10)
    partition.advance(end=10, now=0.0)
    fetched(partition, 2, 10, end=10, now=0.1)
    brokers[2] = replace(brokers[2], **change)  # type: ignore[arg-type]
    assert partition.expand(2, MY_EPOCH) is None
    assert partition.advance(end=20, now=0.2) == 20, "nor is it waited for"


def test_fetch_of_a_replica_that_is_not_assigned() -> None:
    partition, _ = leader()
    with pytest.raises(errors.UnknownLeaderEpoch, match="broker 4 is not a replica"):
        partition.check_follower(FollowerFetch(4, 0), 5)
    with pytest.raises(errors.NotLeaderOrFollower, match="broker 4 is not a replica"):
        partition.check_follower(FollowerFetch(4, 0), -1)


def test_fetch_of_an_earlier_life_of_a_broker() -> None:
    partition, brokers = leader()
    brokers[2].epoch = 250
    with pytest.raises(errors.NotLeaderOrFollower, match="has registered again"):
        partition.check_follower(FollowerFetch(2, 0, broker_epoch=200), 5)
    partition.check_follower(FollowerFetch(2, 0, broker_epoch=250), 5)
    partition.check_follower(FollowerFetch(2, 0, broker_epoch=260), 5)  # the metadata here are behind


@pytest.mark.parametrize("kind", [errors.IneligibleReplica, errors.OperationNotAttempted])
def test_refused_member_leaves_the_maximal_isr(kind: type[errors.BrokerError]) -> None:
    partition, _ = leader(isr=(1,), end=10, high_watermark=0)
    fetched(partition, 2, 10, end=10, now=0.0)
    change = partition.expand(2, MY_EPOCH)
    assert change is not None
    assert not partition.refused(change, kind.code)
    assert partition.maximal_isr == {1}
    assert partition.pending is None


@pytest.mark.parametrize("kind", [errors.InvalidUpdateVersion, errors.FencedLeaderEpoch, errors.NewLeaderElected])
def test_outdated_proposal_stays_until_the_metadata_come(kind: type[errors.BrokerError]) -> None:
    partition, _ = leader(isr=(1,), end=10)
    fetched(partition, 2, 10, end=10, now=0.0)
    change = partition.expand(2, MY_EPOCH)
    assert change is not None
    assert not partition.refused(change, kind.code)
    assert partition.maximal_isr == {1, 2}, "the controller may have committed it"
    assert not partition.lead(image(isr=(1, 2), partition_epoch=8), end=10, high_watermark=0, now=0.0)
    assert partition.isr == {1, 2}
    assert partition.pending is None


def test_unknown_failure_is_repeated_and_a_late_answer_is_ignored() -> None:
    partition, _ = leader(end=10)
    change = partition.shrink(MY_EPOCH, end=10, now=31.0)
    assert change is not None
    assert partition.refused(change, errors.UnknownServerError.code)
    partition.lead(image(isr=(1, 2), partition_epoch=8), end=10, high_watermark=0, now=32.0)
    assert not partition.refused(change, errors.UnknownServerError.code)
    assert not partition.accepted(change, frozenset({1}), 5, 8)
    assert partition.isr == {1, 2}


def test_new_epoch_begins_at_the_log_end_and_forgets_the_followers() -> None:
    partition, _ = leader(end=10)
    fetched(partition, 2, 10, end=10, now=1.0)
    assert partition.follow(image(2, 6))
    assert not partition.leads
    assert partition.advance(end=50, now=2.0) == 0
    assert partition.lead(image(1, 7), end=30, high_watermark=25, now=100.0)
    assert partition.epoch_start == 30
    assert partition.high_watermark == 25
    assert partition.followers[2].log_end == -1
    assert partition.shrink(MY_EPOCH, end=30, now=129.0) is None, "every member has the whole time to fetch"
    change = partition.shrink(MY_EPOCH, end=30, now=131.0)
    assert change is not None
    assert change.members == {1}


def test_leader_elected_again_keeps_what_it_knows() -> None:
    partition, _ = leader(end=10)
    fetched(partition, 2, 10, end=10, now=1.0)
    fetched(partition, 3, 10, end=10, now=1.0)
    assert partition.lead(image(1, 6), end=10, high_watermark=0, now=2.0)
    assert partition.high_watermark == 10
    assert partition.followers[2].log_end == 10


def test_older_metadata_change_nothing() -> None:
    partition, _ = leader(end=10)
    assert not partition.lead(image(1, 5, isr=(1,), partition_epoch=7), end=10, high_watermark=0, now=1.0)
    assert not partition.follow(image(2, 4, partition_epoch=9))
    assert partition.isr == {1, 2, 3}
    assert partition.leads


def test_follower_learns_of_a_new_leader_or_epoch() -> None:
    partition = Partition(3, brokers_of(1, 2, 3).get)
    assert partition.follow(image(1, 5, partition_epoch=7))
    assert not partition.follow(image(1, 5, isr=(1, 2), partition_epoch=8))
    assert partition.follow(image(1, 6, partition_epoch=9))
    assert partition.follow(image(-1, 7, partition_epoch=10))


class Replication(RuleBasedStateMachine):
    """A leader, followers with real logs, and a controller that answers late, or whose answers are lost."""

    @initialize(replicas=st.integers(2, 5), min_isr=st.integers(1, 5))
    def start(self, replicas: int, min_isr: int) -> None:
        self.now = 0.0
        self.end = 0
        self.brokers = brokers_of(*range(1, replicas + 1))
        self.partition = Partition(ME, self.brokers.get, min_isr=min_isr, most_lag=10.0)
        self.committed = image(isr=tuple(range(1, replicas + 1)), replicas=replicas)
        self.partition.lead(self.committed, end=0, high_watermark=0, now=0.0)
        self.ends = dict.fromkeys(range(2, replicas + 1), 0)
        self.sent: IsrChange | None = None
        self.high_watermark = 0

    def advance(self) -> None:
        before = self.partition.high_watermark
        after = self.partition.advance(end=self.end, now=self.now)
        if after != before:
            assert len(self.partition.isr) >= self.partition.effective_min_isr

    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        self.end += count
        self.advance()

    @rule(choice=st.integers(0, 3), most=st.integers(1, 5))
    def fetch(self, choice: int, most: int) -> None:
        node = 2 + choice % len(self.ends)
        fetch = FollowerFetch(node, self.ends[node], 0, self.brokers[node].epoch)
        self.partition.fetched(fetch, end=self.end, now=self.now)
        self.sent = self.partition.expand(node, MY_EPOCH) or self.sent
        self.advance()
        self.ends[node] = min(self.end, self.ends[node] + most)  # the records of the answer

    @rule(seconds=st.sampled_from([0.5, 5.0, 11.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.sent = self.partition.shrink(MY_EPOCH, end=self.end, now=self.now) or self.sent
        self.advance()

    @rule(choice=st.integers(0, 3), fenced=st.booleans())
    def fence(self, choice: int, fenced: bool) -> None:
        node = 2 + choice % len(self.ends)
        self.brokers[node].fenced = fenced

    @rule(is_answer_lost=st.booleans())
    def controller_decides(self, is_answer_lost: bool) -> None:
        if self.sent is None:
            return
        change, self.sent = self.sent, None
        if change.partition_epoch != self.committed.partition_epoch:
            self.partition.refused(change, errors.InvalidUpdateVersion.code)
        elif any(self.brokers[node].fenced for node in change.members):
            self.partition.refused(change, errors.IneligibleReplica.code)
        else:
            self.committed = replace(
                self.committed, isr=sorted(change.members), partition_epoch=change.partition_epoch + 1
            )
            if is_answer_lost:
                if self.partition.refused(change, errors.UnknownServerError.code):
                    self.sent = change
            else:
                self.partition.accepted(change, change.members, 5, self.committed.partition_epoch)
        self.advance()

    @rule()
    def metadata_arrive(self) -> None:
        state = replace(self.committed, isr=list(self.committed.isr))
        self.partition.lead(state, end=self.end, high_watermark=0, now=self.now)
        self.advance()

    @invariant()
    def high_watermark_is_monotonic_and_replicated(self) -> None:
        partition = self.partition
        assert partition.high_watermark >= self.high_watermark
        self.high_watermark = partition.high_watermark
        assert self.high_watermark <= self.end
        for node in partition.maximal_isr | frozenset(self.committed.isr):
            if node != ME:
                assert self.ends[node] >= self.high_watermark, f"an in-sync replica {node} lacks committed records"

    @invariant()
    def maximal_isr_has_what_the_controller_committed(self) -> None:
        assert frozenset(self.committed.isr) <= self.partition.maximal_isr


Replication.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestReplication = Replication.TestCase
