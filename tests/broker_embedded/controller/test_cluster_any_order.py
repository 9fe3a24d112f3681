"""Any order of what happens to brokers and partitions: what must hold after every step."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pyclient import errors
from pyclient.broker_embedded.controller.partition_elections import Election
from tests.broker_embedded.controller.cluster_model import TOPIC, ClusterModel, Options

BROKERS = st.integers(1, 4)


class Cluster(RuleBasedStateMachine):
    """Four brokers, three partitions; some steps are refused, which must change nothing."""

    @initialize(elr=st.booleans(), min_isr=st.integers(1, 3), unclean=st.booleans())
    def begin(self, elr: bool, min_isr: int, unclean: bool) -> None:
        self.model = ClusterModel(elr=elr, options=Options(min_isr, unclean))
        self.incarnations = dict.fromkeys(range(1, 5), 0)
        self.model.start(1, 2, 3, 4)
        self.model.create([1, 2, 3], [2, 3, 4], [4])
        self.epochs: dict[int, tuple[int, int]] = {}

    @rule(broker=BROKERS, clean=st.booleans())
    def restart(self, broker: int, clean: bool) -> None:
        known = self.model.image.brokers.get(broker)
        self.incarnations[broker] += 1
        previous = known.epoch if known is not None and clean else -1
        try:
            self.model.register(broker, self.incarnations[broker], previous_broker_epoch=previous)
        except errors.DuplicateBrokerRegistration:
            assert known is not None
            assert not known.fenced

    @rule(broker=BROKERS, behind=st.integers(0, 3), stop=st.booleans())
    def beat(self, broker: int, behind: int, stop: bool) -> None:
        if broker in self.model.image.brokers:
            beat = self.model.beat(broker, offset=self.model.end_offset - 1 - behind, want_shut_down=stop)
            now = self.model.image.brokers[broker]
            assert now.fenced == beat.is_fenced
            if beat.should_shut_down:
                assert not self.model.replication.leads_any(broker)

    @rule(seconds=st.sampled_from([1.0, 5.0, 10.0]))
    def time_passes(self, seconds: float) -> None:
        self.model.now += seconds
        while (stale := self.model.cluster.stale_broker(self.model.now)) is not None:
            self.model.fence(stale)

    @rule(broker=BROKERS)
    def unregister(self, broker: int) -> None:
        if broker in self.model.image.brokers:
            self.model.append(self.model.cluster.unregister(broker))

    @rule(isr=st.sets(BROKERS))
    def alter(self, isr: set[int]) -> None:
        partition = self.model.partition
        answer = self.model.alter(sorted(isr))
        if answer.data.error_code == 0:
            after = self.model.partition
            assert (answer.data.isr, answer.data.leader_id) == (after.isr, after.leader)
            assert (answer.data.leader_epoch, answer.data.partition_epoch) == (
                after.leader_epoch,
                after.partition_epoch,
            )
        elif answer.record is None:
            assert self.model.partition == partition

    @rule(wanted=st.lists(BROKERS, min_size=1, max_size=3, unique=True))
    def reassign(self, wanted: list[int]) -> None:
        try:
            record = self.model.replication.reassign("t", 0, wanted, may_resize=True)
        except errors.InvalidReplicaAssignment:
            return
        self.model.append([] if record is None else [record])

    @precondition(lambda self: self.model.partition.reassigning)
    @rule()
    def cancel(self) -> None:
        try:
            record = self.model.replication.cancel_reassignment("t", 0)
        except errors.InvalidReplicaAssignment:
            return
        assert record is not None
        self.model.append([record])
        assert not self.model.partition.reassigning

    @rule(election=st.sampled_from([Election.PREFERRED, Election.UNCLEAN]), index=st.integers(0, 2))
    def elect(self, election: Election, index: int) -> None:
        try:
            self.model.append([self.model.replication.elect_leader("t", index, election)])
        except (
            errors.ElectionNotNeeded,
            errors.PreferredLeaderNotAvailable,
            errors.EligibleLeadersNotAvailable,
        ):
            return

    @rule()
    def balance(self) -> None:
        self.model.append(self.model.replication.balance_leaders(10))
        self.model.append(self.model.replication.elect_unclean(10))

    @invariant()
    def leaders_are_active_and_in_sync(self) -> None:
        for partition in self.model.image.topics_by_id[TOPIC].partitions.values():
            members = [self.model.replication.is_active(each) for each in partition.isr]
            if partition.leader != -1:
                assert self.model.replication.is_active(partition.leader)
                assert partition.leader in partition.isr
                assert all(members)
            else:
                assert not any(members), "a live member of the ISR leads"
            assert {*partition.isr, *partition.elr} <= set(partition.replicas)
            assert len(set(partition.replicas)) == len(partition.replicas) == len(partition.directories)
            assert not set(partition.isr) & set(partition.elr)
            assert self.model.elr or (partition.isr and not partition.elr)

    @invariant()
    def epochs_never_fall(self) -> None:
        for index, partition in self.model.image.topics_by_id[TOPIC].partitions.items():
            now = partition.leader_epoch, partition.partition_epoch
            before = self.epochs.get(index, (0, 0))
            assert now[0] >= before[0]
            assert now[1] >= before[1]
            self.epochs[index] = now


Cluster.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestClusterInAnyOrder = Cluster.TestCase
