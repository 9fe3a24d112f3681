"""The decisions of a node about its replicated partitions: what it leads and follows, and what follows from fetches."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from pyclient import errors
from pyclient.broker_embedded.controller.image import PartitionImage
from pyclient.broker_embedded.replication.hosted_partitions import (
    AdvanceHighWatermark,
    BeginEpoch,
    CheckDamage,
    DeleteLog,
    Effect,
    EndReplication,
    FetchFrom,
    FollowerFetched,
    GiveUpCommits,
    Grown,
    HostedPartition,
    HostedPartitions,
    IsrAccepted,
    IsrRefused,
    LagCheckDue,
    LeadershipChanged,
    LogOpened,
    LogReady,
    NotifyWaiting,
    OpenLog,
    OptionsChanged,
    PartitionChanged,
    Propose,
    ProposeAgain,
    Release,
    ReportIsr,
    Started,
    StopFetching,
    TopicDeleted,
    WakeFetches,
)
from pyclient.broker_embedded.replication.partition import FollowerFetch
from pyclient.types import TopicPartition

ORDERS = TopicPartition("orders", 0)
TOPIC_ID = UUID(int=7)
ME = 1


@dataclass
class Broker:
    """A registered broker."""

    epoch: int
    fenced: bool = False
    in_controlled_shutdown: bool = False


@dataclass
class Node:
    """The metadata and the options of node 1."""

    node_id: int = ME
    broker_epoch: int = 100
    most_lag: float = 30.0
    brokers: dict[int, Broker] = field(default_factory=lambda: {node: Broker(node * 100) for node in (1, 2, 3)})

    def broker(self, node_id: int) -> Broker | None:
        return self.brokers.get(node_id)


def a_log(end: int = 10, min_isr: int = 2) -> Any:
    """Return the offsets and the options of a log of which nothing is known to be committed."""
    return SimpleNamespace(end_offset=end, high_watermark=0, config=SimpleNamespace(min_insync_replicas=min_isr))


def image(
    leader: int = ME, epoch: int = 5, *, isr: tuple[int, ...] = (1, 2, 3), partition_epoch: int = 7
) -> PartitionImage:
    """Return the metadata of a partition with replicas on 1, 2 and 3."""
    return PartitionImage(0, [1, 2, 3], list(isr), leader, epoch, partition_epoch)


def changed(after: PartitionImage | None, before: PartitionImage | None = None) -> PartitionChanged:
    """Return the event of a change of the metadata."""
    return PartitionChanged(ORDERS, None if after is None else TOPIC_ID, before, after)


def started() -> HostedPartitions:
    """Return the partitions of a node that has started."""
    replicas = HostedPartitions(Node())
    assert replicas.receive(Started(), 0.0) == []
    return replicas


def opened(replicas: HostedPartitions, state: PartitionImage, log: Any) -> tuple[HostedPartition, list[Effect]]:
    """Let a partition be assigned and its log be opened. Return it, and the effects of the second."""
    [effect] = replicas.receive(changed(state), 0.0)
    assert isinstance(effect, OpenLog)
    return effect.hosted, replicas.receive(LogOpened(effect.hosted, log, state), 0.0)


def leading(log: Any, **of_image: Any) -> tuple[HostedPartitions, HostedPartition]:
    """Return the partitions of a node that leads one."""
    replicas = started()
    return replicas, opened(replicas, image(**of_image), log)[0]


def test_leader_begins_its_epoch_before_its_leadership_is_reported() -> None:
    hosted, effects = opened(started(), image(), a_log())
    assert effects == [
        StopFetching(hosted),
        BeginEpoch(hosted, 5),
        LeadershipChanged(ORDERS, 5),
        CheckDamage(hosted, image()),
    ]


def test_follower_fetches_from_its_leader() -> None:
    state = image(leader=2)
    hosted, effects = opened(started(), state, a_log())
    assert effects == [
        LeadershipChanged(ORDERS, None),
        WakeFetches(hosted),
        FetchFrom(hosted, 2, 5),
        CheckDamage(hosted, state),
    ]


def test_leader_that_follows_now_answers_what_waits() -> None:
    replicas, hosted = leading(a_log())
    state = image(leader=2, epoch=6, partition_epoch=8)
    assert replicas.receive(changed(state, image()), 1.0) == [
        GiveUpCommits(hosted),
        NotifyWaiting(hosted),
        LeadershipChanged(ORDERS, None),
        WakeFetches(hosted),
        FetchFrom(hosted, 2, 6),
        CheckDamage(hosted, state),
    ]


def test_replica_without_a_leader_does_not_fetch() -> None:
    state = image(leader=-1)
    hosted, effects = opened(started(), state, a_log())
    assert effects[-2:] == [StopFetching(hosted), CheckDamage(hosted, state)]


def test_older_metadata_change_no_role() -> None:
    replicas, hosted = leading(a_log())
    older = image(leader=2, epoch=4, partition_epoch=6)
    assert replicas.receive(changed(older), 1.0) == [CheckDamage(hosted, older)]
    assert hosted.partition.leads
    follows = image(leader=2, epoch=6, partition_epoch=8)
    replicas.receive(changed(follows), 1.0)
    assert replicas.receive(changed(image()), 1.0) == [CheckDamage(hosted, image())]
    assert not hosted.partition.leads


def test_nothing_is_led_before_the_start_and_replicas_are_given_up() -> None:
    replicas = HostedPartitions(Node())
    assert replicas.receive(changed(image()), 0.0) == []
    moved = replace(image(leader=2), replicas=[2, 3], isr=[2, 3])
    assert replicas.receive(changed(moved, image()), 0.0) == [
        LeadershipChanged(ORDERS, None),
        DeleteLog(ORDERS, TOPIC_ID),
    ]


def test_partition_that_moved_away_is_released_and_deleted() -> None:
    replicas, hosted = leading(a_log())
    moved = replace(image(leader=2), replicas=[2, 3], isr=[2, 3])
    assert replicas.receive(changed(moved, image()), 1.0) == [
        Release(hosted),
        LeadershipChanged(ORDERS, None),
        DeleteLog(ORDERS, TOPIC_ID),
    ]
    assert replicas.get(ORDERS) is None


def test_only_replica_is_no_longer_replicated() -> None:
    replicas, hosted = leading(a_log())
    alone = replace(image(epoch=6, isr=(1,)), replicas=[1])
    assert replicas.receive(changed(alone, image()), 1.0) == [
        Release(hosted),
        EndReplication(ORDERS),
        LeadershipChanged(ORDERS, 6),
    ]
    assert replicas.receive(changed(alone, alone), 1.0) == []


def test_deleted_topic_is_released_once() -> None:
    replicas, hosted = leading(a_log())
    assert replicas.receive(TopicDeleted(hosted), 1.0) == [Release(hosted)]
    assert not hosted.partition.leads  # what waits for its commit is refused
    assert replicas.receive(TopicDeleted(hosted), 1.0) == []
    assert replicas.receive(changed(None, image()), 1.0) == []


def test_topic_of_the_same_name_with_another_id_is_a_new_partition() -> None:
    replicas, hosted = leading(a_log())
    effects = replicas.receive(PartitionChanged(ORDERS, UUID(int=8), None, image(epoch=0)), 1.0)
    assert effects[0] == Release(hosted)
    assert isinstance(effects[1], OpenLog)
    assert effects[1].hosted is replicas.get(ORDERS) is not hosted


def test_log_that_is_ready_late_is_opened_with_the_newest_metadata() -> None:
    replicas = started()
    [effect] = replicas.receive(changed(image()), 0.0)
    assert isinstance(effect, OpenLog)
    newest = image(leader=2, epoch=6)
    assert replicas.receive(LogReady(effect.hosted, newest), 1.0) == [OpenLog(effect.hosted, newest)]
    replicas.receive(TopicDeleted(effect.hosted), 2.0)
    assert replicas.receive(LogReady(effect.hosted, newest), 3.0) == []


def fetch(
    replicas: HostedPartitions, hosted: HostedPartition, node: int, offset: int, now: float = 1.0
) -> list[Effect]:
    """Let a follower fetch from an offset."""
    return replicas.receive(FollowerFetched(hosted, FollowerFetch(node, offset, 0, node * 100)), now)


def test_high_watermark_follows_the_slowest_in_sync_replica() -> None:
    replicas, hosted = leading(a_log(10))
    assert fetch(replicas, hosted, 2, 10) == [NotifyWaiting(hosted)]
    assert fetch(replicas, hosted, 3, 7) == [AdvanceHighWatermark(hosted, 7), NotifyWaiting(hosted)]
    assert replicas.receive(Grown(hosted), 1.0) == [AdvanceHighWatermark(hosted, 7)]


def test_follower_that_has_caught_up_is_proposed() -> None:
    replicas, hosted = leading(a_log(10), isr=(1, 2))
    fetch(replicas, hosted, 2, 10)
    proposed, *_others = fetch(replicas, hosted, 3, 10)
    assert isinstance(proposed, Propose)
    assert proposed.change.isr == ((1, 100), (2, 200), (3, 300))
    accepted = IsrAccepted(hosted, proposed.change, frozenset({1, 2, 3}), 5, 8)
    assert replicas.receive(accepted, 1.0) == [
        ReportIsr(hosted, frozenset({1, 2, 3})),
        AdvanceHighWatermark(hosted, 10),
    ]
    assert replicas.receive(accepted, 1.0) == []


def test_commit_that_waited_for_a_lagging_replica_follows_its_removal() -> None:
    log = a_log(10)
    replicas, hosted = leading(log)
    fetch(replicas, hosted, 2, 10, now=25.0)
    fetch(replicas, hosted, 3, 4, now=25.0)
    assert replicas.receive(LagCheckDue(hosted), 29.0) == [AdvanceHighWatermark(hosted, 4)]
    proposed, *others = replicas.receive(LagCheckDue(hosted), 31.0)
    assert isinstance(proposed, Propose)
    assert proposed.change.members == {1, 2}
    assert others == [AdvanceHighWatermark(hosted, 4)]
    accepted = IsrAccepted(hosted, proposed.change, frozenset({1, 2}), 5, 8)
    assert replicas.receive(accepted, 31.0) == [ReportIsr(hosted, frozenset({1, 2})), AdvanceHighWatermark(hosted, 10)]


@pytest.mark.parametrize(
    ("error", "again"),
    [(errors.UnknownServerError, True), (errors.IneligibleReplica, False), (errors.FencedLeaderEpoch, False)],
)
def test_refused_proposal_is_repeated_unless_it_cannot_succeed(error: type[errors.BrokerError], again: bool) -> None:
    replicas, hosted = leading(a_log(10), isr=(1, 2))
    proposed, *_others = fetch(replicas, hosted, 3, 10)
    assert isinstance(proposed, Propose)
    refused = IsrRefused(hosted, proposed.change, error.code)
    assert replicas.receive(refused, 1.0) == ([ProposeAgain(proposed.change)] if again else [])


def test_lower_min_insync_replicas_commits_what_waited() -> None:
    log = a_log(10, min_isr=3)
    replicas, hosted = leading(log, isr=(1, 2))
    assert fetch(replicas, hosted, 2, 10) == [NotifyWaiting(hosted)]
    assert replicas.receive(OptionsChanged(hosted), 1.0) == []
    log.config.min_insync_replicas = 2
    assert replicas.receive(OptionsChanged(hosted), 1.0) == [AdvanceHighWatermark(hosted, 10)]


def test_follower_decides_nothing_about_commits() -> None:
    replicas = started()
    hosted, _effects = opened(replicas, image(leader=2), a_log())
    assert replicas.receive(Grown(hosted), 1.0) == []
    assert replicas.receive(LagCheckDue(hosted), 100.0) == []
    assert replicas.receive(OptionsChanged(hosted), 1.0) == []
