"""The controller's changes of partitions: AlterPartition, brokers that come and go, elections, reassignments."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from pyclient import errors
from pyclient.broker_embedded.controller.partition_elections import Election
from pyclient.broker_embedded.controller.replication_control import LOST, UNASSIGNED
from pyclient.protocol.messages.metadata_log import BrokerRegistrationChangeRecord, PartitionChangeRecord
from tests.broker_embedded.controller.cluster_model import TOPIC, ClusterModel, Options


@pytest.fixture
def model() -> ClusterModel:
    made = ClusterModel()
    made.start(1, 2, 3)
    made.create([1, 2, 3])
    return made


# ---- AlterPartition


@pytest.mark.parametrize("version", [2, 3])
def test_leader_shrinks_and_expands_its_isr(model: ClusterModel, version: int) -> None:
    answer = model.alter([1, 2], version=version)
    assert (answer.data.error_code, answer.data.isr, answer.data.leader_id) == (0, [1, 2], 1)
    assert (answer.data.leader_epoch, answer.data.partition_epoch) == (0, 1)
    assert model.partition.isr == [1, 2]
    answer = model.alter([1, 2, 3], version=version, epochs={3: model.image.brokers[3].epoch})
    assert (answer.data.error_code, model.partition.isr, model.partition.partition_epoch) == (0, [1, 2, 3], 2)
    assert model.partition.leader_epoch == 0


def test_unchanged_isr_changes_nothing(model: ClusterModel) -> None:
    answer = model.alter([1, 2, 3])
    assert answer.record is None
    assert (answer.data.error_code, answer.data.partition_epoch) == (0, 0)


@pytest.mark.parametrize(
    ("isr", "fields", "error"),
    [
        ([1], {"leader_epoch": 1}, errors.NotController),
        ([1], {"partition_epoch": 9}, errors.NotController),
        ([1], {"leader_epoch": -1}, errors.FencedLeaderEpoch),
        ([1, 2], {"sender": 2}, errors.InvalidRequest),
        ([1], {"partition_epoch": -1}, errors.InvalidUpdateVersion),
        ([1, 4], {}, errors.InvalidRequest),
        ([1, 2, 2], {}, errors.InvalidRequest),
        ([2, 3], {}, errors.InvalidRequest),
        ([], {}, errors.InvalidRequest),
        ([1], {"leader_recovery_state": 2}, errors.InvalidRequest),
        ([1, 2], {"leader_recovery_state": 1}, errors.InvalidRequest),
        ([1], {"leader_recovery_state": 1}, errors.InvalidRequest),
        ([1, 2], {"epochs": {2: 99}}, errors.IneligibleReplica),
        ([1], {"partition_index": 5}, errors.UnknownTopicOrPartition),
    ],
)
def test_isr_is_refused(
    model: ClusterModel, isr: list[int], fields: dict[str, Any], error: type[errors.BrokerError]
) -> None:
    answer = model.alter(isr, **fields)
    assert (answer.data.error_code, answer.record) == (error.code, None)
    assert model.partition.isr == [1, 2, 3]


def test_isr_of_an_unknown_topic_is_refused(model: ClusterModel) -> None:
    wanted = model.alter([1]).data
    assert wanted.error_code == 0
    answer = model.replication.alter_isr(1, UUID(int=5), _anything(), version=3)
    assert answer.data.error_code == errors.UnknownTopicId.code


def _anything() -> Any:
    from pyclient.protocol.messages.alter_partition import AlterPartitionRequestPartitionData

    return AlterPartitionRequestPartitionData(partition_index=0, leader_epoch=0, partition_epoch=0)


def test_ineligible_replicas_do_not_join_the_isr(model: ClusterModel) -> None:
    model.fence(3)
    assert model.partition.isr == [1, 2]
    assert model.alter([1, 2, 3]).data.error_code == errors.IneligibleReplica.code
    model.beat(3)
    assert model.alter([1, 2, 3]).data.error_code == 0
    shutdown = BrokerRegistrationChangeRecord(
        broker_id=3, broker_epoch=model.image.brokers[3].epoch, in_controlled_shutdown=1
    )
    model.alter([1, 2])
    model.append([shutdown])
    assert model.alter([1, 2, 3]).data.error_code == errors.IneligibleReplica.code
    model.append(model.cluster.unregister(3))
    assert model.alter([1, 2, 3]).data.error_code == errors.IneligibleReplica.code


def test_recovering_leader_reports_that_it_has_recovered(model: ClusterModel) -> None:
    model.options.unclean = True
    model.alter([1])
    model.fence(1)
    assert (model.partition.leader, model.partition.isr, model.partition.leader_recovery_state) == (2, [2], 1)
    assert model.alter([2, 3], leader_recovery_state=1).data.error_code == errors.InvalidRequest.code
    answer = model.alter([2, 3])
    assert (answer.data.error_code, answer.data.leader_recovery_state) == (0, 0)
    assert (model.partition.isr, model.partition.leader_recovery_state) == ([2, 3], 0)


# ---- brokers that come and go


def test_fenced_leader_is_replaced_and_leaves_the_isr(model: ClusterModel) -> None:
    model.fence(1)
    partition = model.partition
    assert (partition.leader, partition.isr, partition.leader_epoch) == (2, [2, 3], 1)
    model.beat(1)
    assert (model.partition.leader, model.partition.isr) == (2, [2, 3])


def test_fenced_follower_leaves_the_isr_without_a_new_leader_epoch(model: ClusterModel) -> None:
    model.fence(2)
    partition = model.partition
    assert (partition.leader, partition.isr, partition.leader_epoch, partition.partition_epoch) == (1, [1, 3], 0, 1)


def test_last_member_stays_and_leads_again(model: ClusterModel) -> None:
    for broker in (3, 2, 1):
        model.fence(broker)
    assert (model.partition.leader, model.partition.isr) == (-1, [1])
    model.beat(2)
    assert (model.partition.leader, model.partition.isr) == (-1, [1])
    model.beat(1)
    assert (model.partition.leader, model.partition.isr, model.partition.leader_recovery_state) == (1, [1], 0)


def test_unclean_election_at_once_if_the_topic_allows_it(model: ClusterModel) -> None:
    model.alter([1])
    model.fence(1)
    assert model.partition.leader == -1
    model.options.unclean = True
    model.append(model.replication.elect_unclean(10))
    assert (model.partition.leader, model.partition.isr, model.partition.leader_recovery_state) == (2, [2], 1)
    assert model.replication.elect_unclean(10) == []


def test_eligible_replicas_keep_a_partition_safe() -> None:
    model = ClusterModel(elr=True, options=Options(min_isr=2))
    model.start(1, 2, 3)
    model.create([1, 2, 3])
    model.fence(3)
    assert model.partition.elr == ()
    model.fence(2)
    assert (model.partition.isr, model.partition.elr) == ([1], (2,))
    model.fence(1)
    assert (model.partition.isr, set(model.partition.elr), model.partition.leader) == ([], {1, 2}, -1)
    assert model.partition.last_known_elr == (1,)
    model.beat(3)
    assert model.partition.leader == -1, "broker 3 may lack committed records"
    model.beat(2)
    assert (model.partition.leader, model.partition.isr, model.partition.elr) == (2, [2], (1,))
    model.alter([2, 3])
    assert (model.partition.isr, model.partition.elr) == ([2, 3], ())


@pytest.mark.parametrize("clean", [True, False])
def test_restarted_broker_is_eligible_after_a_clean_shutdown_only(clean: bool) -> None:
    model = ClusterModel(elr=True, options=Options(min_isr=2))
    model.start(1, 2)
    model.create([1, 2])
    model.fence(2)
    model.fence(1)
    assert set(model.partition.elr) == {1, 2}
    before = model.image.brokers[2].epoch
    model.register(2, incarnation=1, previous_broker_epoch=before if clean else -1)
    assert (2 in model.partition.elr) is clean
    model.beat(2)
    assert model.partition.leader == (2 if clean else -1)


def test_all_brokers_crash_and_the_last_leader_is_back() -> None:
    model = ClusterModel(elr=True, options=Options(min_isr=2))
    model.start(1, 2)
    model.create([1, 2])
    for broker in (2, 1):
        model.fence(broker)
    for broker in (1, 2):
        model.register(broker, incarnation=1)
    assert (model.partition.elr, model.partition.last_known_elr) == ((), (1,))
    model.beat(2)
    assert model.partition.leader == -1
    model.beat(1)
    assert (model.partition.leader, model.partition.isr, model.partition.leader_recovery_state) == (1, [1], 1)


def test_last_leader_is_known_while_the_last_member_cannot_lead() -> None:
    model = ClusterModel(elr=True, options=Options(min_isr=2))
    model.start(1, 2, 3)
    model.create([1, 2, 3])
    model.append(model.replication.assign_directory(3, TOPIC, 0, LOST))
    model.alter([1, 3])
    model.fence(1)
    assert (model.partition.leader, model.partition.isr, model.partition.elr) == (-1, [3], (1,))
    model.fence(3)
    for broker in (1, 3):
        model.register(broker, incarnation=1)
    assert (model.partition.isr, model.partition.elr, model.partition.last_known_elr) == ([], (), (1,))
    model.beat(3)
    assert model.partition.leader == -1
    model.beat(1)
    assert (model.partition.leader, model.partition.isr, model.partition.leader_recovery_state) == (1, [1], 1)


def test_restarted_leader_leaves_its_leaderships_before_it_is_fenced(model: ClusterModel) -> None:
    model.now += 10
    model.register(1, incarnation=1)
    assert (model.partition.leader, model.partition.isr) == (2, [2, 3])
    assert model.image.brokers[1].fenced


def test_unregistered_broker_leaves_everything(model: ClusterModel) -> None:
    model.append(model.cluster.unregister(1))
    assert (model.partition.leader, model.partition.isr, model.partition.replicas) == (2, [2, 3], [1, 2, 3])
    assert 1 not in model.image.brokers


def test_failed_directory_takes_only_its_replicas(model: ClusterModel) -> None:
    other = UUID(int=55)
    first = model.directory_of(1)
    model.append(
        [
            BrokerRegistrationChangeRecord(
                broker_id=1, broker_epoch=model.image.brokers[1].epoch, log_dirs=[first, other]
            )
        ]
    )
    model.create([1, 2], name="u", topic_id=UUID(int=2), directories=[other, model.directory_of(2)])
    model.beat(1, offline_log_dirs=[first])
    assert (model.partition.leader, model.partition.isr) == (2, [2, 3])
    assert model.image.topics["u"].partitions[0].leader == 1
    assert model.image.brokers[1].log_dirs == (other,)
    assert model.beat(1, offline_log_dirs=[first]).records == []
    with pytest.raises(errors.PreferredLeaderNotAvailable):
        model.replication.elect_leader("t", 0, Election.PREFERRED)


# ---- elections


def test_preferred_election(model: ClusterModel) -> None:
    with pytest.raises(errors.ElectionNotNeeded):
        model.replication.elect_leader("t", 0, Election.PREFERRED)
    model.fence(1)
    with pytest.raises(errors.PreferredLeaderNotAvailable, match="preferred leader 1"):
        model.replication.elect_leader("t", 0, Election.PREFERRED)
    model.beat(1)
    with pytest.raises(errors.PreferredLeaderNotAvailable):
        model.replication.elect_leader("t", 0, Election.PREFERRED)
    model.alter([1, 2, 3])
    model.append([model.replication.elect_leader("t", 0, Election.PREFERRED)])
    assert (model.partition.leader, model.partition.leader_epoch) == (1, 2)


def test_unclean_election_by_request(model: ClusterModel) -> None:
    with pytest.raises(errors.ElectionNotNeeded):
        model.replication.elect_leader("t", 0, Election.UNCLEAN)
    model.alter([1])
    model.fence(1)
    model.append([model.replication.elect_leader("t", 0, Election.UNCLEAN)])
    assert (model.partition.leader, model.partition.leader_recovery_state) == (2, 1)
    for broker in (2, 3):
        model.fence(broker)
    with pytest.raises(errors.EligibleLeadersNotAvailable):
        model.replication.elect_leader("t", 0, Election.UNCLEAN)
    for name, index in (("t", 7), ("nope", 0)):
        with pytest.raises(errors.UnknownTopicOrPartition, match=f"{name}-{index}"):
            model.replication.elect_leader(name, index, Election.UNCLEAN)


def test_leaders_are_balanced_up_to_a_limit() -> None:
    model = ClusterModel()
    model.start(1, 2)
    model.create(*[[1, 2]] * 5)
    model.fence(1)
    model.beat(1)
    assert model.replication.balance_leaders(10) == []
    topic = model.image.topics["t"]
    model.append(PartitionChangeRecord(partition_id=i, topic_id=TOPIC, isr=[1, 2]) for i in range(5))
    assert len(model.append(model.replication.balance_leaders(3))) == 3
    assert len(model.append(model.replication.balance_leaders(3))) == 2
    assert [each.leader for each in topic.partitions.values()] == [1] * 5


# ---- reassignments


def reassign(model: ClusterModel, target: list[int], *, may_resize: bool = True) -> None:
    record = model.replication.reassign("t", 0, target, may_resize=may_resize)
    model.append([] if record is None else [record])


def test_reassignment_completes_when_the_new_replicas_are_in_sync(model: ClusterModel) -> None:
    model.start(4)
    reassign(model, [4, 3])
    moving = model.partition
    assert (moving.replicas, moving.adding, moving.removing) == ([4, 3, 1, 2], [4], [1, 2])
    assert (moving.leader, moving.isr, moving.leader_epoch) == (1, [1, 2, 3], 0)
    answer = model.alter([1, 2, 3, 4])
    assert answer.data.error_code == errors.NewLeaderElected.code
    done = model.partition
    assert (done.replicas, done.isr, done.adding, done.removing) == ([4, 3], [3, 4], [], [])
    assert (done.leader, done.leader_epoch) == (4, 1)
    assert done.directories == [model.directory_of(4), model.directory_of(3)]


def test_reassignment_to_fewer_completes_at_once(model: ClusterModel) -> None:
    with pytest.raises(errors.InvalidReplicationFactor, match="from 3 to 2"):
        reassign(model, [1, 2], may_resize=False)
    reassign(model, [2, 3])
    assert (model.partition.replicas, model.partition.isr, model.partition.leader) == ([2, 3], [2, 3], 2)
    assert not model.partition.reassigning


def test_order_of_replicas_changes_at_once(model: ClusterModel) -> None:
    reassign(model, [3, 2, 1])
    assert (model.partition.replicas, model.partition.leader, model.partition.leader_epoch) == ([3, 2, 1], 1, 0)
    assert model.replication.reassign("t", 0, [3, 2, 1], may_resize=False) is None


def test_cancelled_reassignment_restores_the_replicas(model: ClusterModel) -> None:
    with pytest.raises(errors.NoReassignmentInProgress):
        model.replication.cancel_reassignment("t", 0)
    model.start(4, 5)
    reassign(model, [4, 5])
    model.alter([1, 2, 3, 4])
    record = model.replication.cancel_reassignment("t", 0)
    assert record is not None
    model.append([record])
    back = model.partition
    assert (sorted(back.replicas), back.isr, back.adding, back.removing) == ([1, 2, 3], [1, 2, 3], [], [])
    assert (back.leader, back.leader_epoch) == (1, 1)


def test_cancellation_that_would_lose_records_is_refused(model: ClusterModel) -> None:
    model.start(4, 5)
    reassign(model, [4, 5])
    model.alter([1, 4])
    model.fence(1)
    assert (model.partition.leader, model.partition.isr) == (4, [4])
    with pytest.raises(errors.InvalidReplicaAssignment, match="unclean leader election"):
        model.replication.cancel_reassignment("t", 0)
    model.options.unclean = True
    record = model.replication.cancel_reassignment("t", 0)
    assert record is not None
    model.append([record])
    assert set(model.partition.replicas) == {1, 2, 3}
    assert model.partition.leader in (2, 3)
    assert model.partition.leader_recovery_state == 1


def test_new_target_replaces_the_old_one(model: ClusterModel) -> None:
    model.start(4, 5)
    reassign(model, [4, 2])
    reassign(model, [5, 2])
    assert (model.partition.replicas, model.partition.adding) == ([5, 2, 1, 3, 4], [5])
    reassign(model, [1, 2, 3])
    assert (sorted(model.partition.replicas), model.partition.reassigning) == ([1, 2, 3], False)


@pytest.mark.parametrize(
    ("target", "message"),
    [([], "has no replica"), ([1, 1], "names a broker twice"), ([1, 9], "broker 9, which is not registered")],
)
def test_impossible_target_is_refused(model: ClusterModel, target: list[int], message: str) -> None:
    with pytest.raises(errors.InvalidReplicaAssignment, match=message):
        reassign(model, target)


# ---- log directories


def test_replica_moves_to_another_directory(model: ClusterModel) -> None:
    other = UUID(int=55)
    model.append(
        [
            BrokerRegistrationChangeRecord(
                broker_id=1, broker_epoch=model.image.brokers[1].epoch, log_dirs=[model.directory_of(1), other]
            )
        ]
    )
    model.append(model.replication.assign_directory(1, TOPIC, 0, other))
    assert (model.partition.directory_of(1), model.partition.leader, model.partition.isr) == (other, 1, [1, 2, 3])
    assert model.replication.assign_directory(1, TOPIC, 0, other) == []


def test_replica_in_a_lost_directory_leaves_the_isr(model: ClusterModel) -> None:
    model.append(model.replication.assign_directory(1, TOPIC, 0, LOST))
    assert (model.partition.leader, model.partition.isr) == (2, [2, 3])
    assert model.replication.has_online_directory(1, UNASSIGNED)
    assert not model.replication.has_online_directory(9, UNASSIGNED)


def test_fetches_from_before_a_directory_was_lost_do_not_count(model: ClusterModel) -> None:
    """The replica may have been truncated since: the leader has a new epoch, and refuses them."""
    epoch = model.partition.leader_epoch
    model.append(model.replication.assign_directory(3, TOPIC, 0, LOST))
    assert (model.partition.leader, model.partition.isr, model.partition.leader_epoch) == (1, [1, 2], epoch + 1)
    late = model.alter([1, 2, 3], leader_epoch=epoch)  # of a leader that has not read of the change
    assert (late.data.error_code, late.record) == (errors.FencedLeaderEpoch.code, None)
    assert model.replication.assign_directory(3, TOPIC, 0, LOST) == []


def test_directory_that_is_lost_outside_of_the_isr_begins_an_epoch_too(model: ClusterModel) -> None:
    model.partition.isr[:] = [1, 2]
    epoch = model.partition.leader_epoch
    model.append(model.replication.assign_directory(3, TOPIC, 0, LOST))
    assert (model.partition.leader, model.partition.isr, model.partition.leader_epoch) == (1, [1, 2], epoch + 1)
    model.append(model.replication.assign_directory(3, TOPIC, 0, model.directory_of(3)))
    assert model.partition.leader_epoch == epoch + 1


@pytest.mark.parametrize(
    ("broker", "topic", "index", "error"),
    [
        (1, UUID(int=3), 0, errors.UnknownTopicId),
        (1, TOPIC, 3, errors.UnknownTopicOrPartition),
        (4, TOPIC, 0, errors.NotLeaderOrFollower),
    ],
)
def test_directory_of_an_unknown_replica_is_refused(
    model: ClusterModel, broker: int, topic: UUID, index: int, error: type[errors.BrokerError]
) -> None:
    with pytest.raises(error):
        model.replication.assign_directory(broker, topic, index, UUID(int=100 + broker))
