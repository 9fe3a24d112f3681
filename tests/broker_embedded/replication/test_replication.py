"""Replication between nodes over sockets: acks=all, in-sync replicas, changes of the leader, truncation."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded.controller.image import BROKER_RESOURCE, TOPIC_RESOURCE
from pyclient.broker_embedded.handlers import produce
from pyclient.broker_embedded.replication import fetcher_state
from pyclient.broker_embedded.replication.produce_purgatory import AppendedBatch, when_replicated
from pyclient.protocol.messages.fetch import ReplicaState
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pyclient.protocol.messages.metadata_log import ConfigRecord, FenceBrokerRecord
from pyclient.protocol.messages.produce import ProduceResponse
from pyclient.types import TopicPartition
from tests.broker_embedded.replication.hand_controlled import TOPIC, Nodes, run
from tests.waiting import PATIENCE, until_async

LARGE_VALUE = b"x" * (64 << 10)
"""A value whose batch is recompressed on the I/O thread."""


def test_acks_all_waits_for_the_replicas(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.create([1, 2, 3], min_isr=2)
        for number in range(5):
            answer = await nodes.produce(1, b"value-%d" % number)
            assert (answer.error_code, answer.base_offset) == (0, number)
            assert nodes.high_watermark(1) == number + 1
            assert nodes.end(2) == nodes.end(3) == number + 1
        await until_async(lambda: nodes.high_watermark(2) == nodes.high_watermark(3) == 5)
        assert nodes.bytes_of(1) == nodes.bytes_of(2) == nodes.bytes_of(3) != b""

    run(tmp_path, scenario)


def test_waiting_followers_learn_of_the_high_watermark_soon(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.create([1, 2, 3], min_isr=2)
        assert (await nodes.produce(1, b"value")).error_code == 0
        # no fetch has waited its time
        await until_async(lambda: nodes.high_watermark(2) == nodes.high_watermark(3) == 1)

    run(tmp_path, scenario, replica_fetch_wait_max_ms="300000", replica_lag_time_max_ms="600000")


def test_follower_logs_an_unexpected_error_and_fetches_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    original = fetcher_state.decide

    def broken(*_given: object) -> None:
        monkeypatch.setattr(fetcher_state, "decide", original)
        raise KeyError("a bug")

    async def scenario(nodes: Nodes) -> None:
        nodes.create([1, 2], min_isr=2)
        monkeypatch.setattr(fetcher_state, "decide", broken)
        assert (await nodes.produce(1, b"value")).error_code == 0
        assert nodes.end(2) == 1

    run(tmp_path, scenario)
    [logged] = [each for each in caplog.records if "a fetch from broker 1 failed: 'a bug'" in each.getMessage()]
    assert logged.exc_info is not None


def test_consumers_see_nothing_above_the_high_watermark(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.create([1, 2, 3])
        await nodes.produce(1, b"a")
        nodes.freeze(2, 3)
        assert (await nodes.produce(1, b"b", acks=1)).base_offset == 1
        timed_out = await nodes.produce(1, b"c", timeout_ms=50)
        assert timed_out.error_code == errors.RequestTimedOut.code
        answer = await nodes.fetch(1, 2)
        assert (answer.error_code, answer.records, answer.high_watermark) == (0, b"", nodes.high_watermark(1))
        nodes.thaw(2, 3)
        assert (await nodes.produce(1, b"d")).error_code == 0
        assert bytes((await nodes.fetch(1, 2)).records or b"") != b""

    run(tmp_path, scenario)


def test_node_that_starts_leads_nothing_before_it_is_registered(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.create([1, 2, 3], min_isr=2)
        assert (await nodes.produce(1, b"a")).error_code == 0
        await nodes.stop(1)
        await nodes.start(1, starts_replicas=False)
        assert nodes.nodes[1].image.topics[TOPIC].partitions[0].leader == 1
        assert (await nodes.produce(1, b"b")).error_code == errors.NotLeaderOrFollower.code
        assert (nodes.end(2), nodes.end(3)) == (1, 1)
        nodes.start_replicas(1)
        assert (await nodes.produce(1, b"b")).error_code == 0

    run(tmp_path, scenario)


def test_log_that_is_read_before_the_metadata_keeps_its_high_watermark(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.create([1, 2, 3], min_isr=2)
        assert (await nodes.produce(1, b"a")).error_code == 0
        nodes.freeze(2, 3)
        assert (await nodes.produce(1, b"b", acks=1)).error_code == 0
        topic_partition = TopicPartition(TOPIC, 0)
        partitions = nodes.nodes[1].partitions
        topic = nodes.nodes[1].image.topics.pop(TOPIC)  # as in a node that has not yet heard of the active controller
        assert nodes.nodes[1].logs.is_replicated(topic_partition)
        nodes.nodes[1].image.topics[TOPIC] = topic
        assert nodes.nodes[1].logs.is_replicated(topic_partition)
        topic.partitions[0] = replace(topic.partitions[0], replicas=[1], isr=[1])
        assert not nodes.nodes[1].logs.is_replicated(topic_partition)
        topic.partitions[0] = replace(topic.partitions[0], replicas=[1, 2, 3])
        partitions.alone = True
        assert not nodes.nodes[1].logs.is_replicated(topic_partition)

    run(tmp_path, scenario)


def test_slow_follower_leaves_and_joins_again(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.create([1, 2, 3], min_isr=2)
        assert (await nodes.produce(1, b"a")).error_code == 0
        nodes.freeze(3)
        waiting = nodes.loop.create_task(nodes.produce(1, b"b", timeout_ms=600_000))
        await until_async(lambda: nodes.hosted(1).partition.followers[2].log_end == 2)
        assert not waiting.done()
        assert nodes.isr() == [1, 2, 3]
        nodes.advance(1, 61)  # more than replica.lag.time.max.ms
        assert (await waiting).error_code == 0
        assert nodes.isr() == [1, 2]
        assert (await nodes.produce(1, b"c")).error_code == 0
        nodes.thaw(3)
        await until_async(lambda: nodes.isr() == [1, 2, 3])
        assert nodes.end(3) == 3

    run(tmp_path, scenario)


def test_too_few_replicas_refuse_acks_all(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.create([1, 2, 3], min_isr=2)
        nodes.change(isr=[1])
        refused = await nodes.produce(1, b"a")
        assert refused.error_code == errors.NotEnoughReplicas.code
        assert nodes.end(1) == 0

    run(tmp_path, scenario)


def test_min_insync_replicas_of_all_brokers_is_changed_while_they_run(tmp_path: Path) -> None:
    def change(kind: int, resource: str, value: str | None) -> ConfigRecord:
        return ConfigRecord(resource_type=kind, resource_name=resource, name="min.insync.replicas", value=value)

    async def scenario(nodes: Nodes) -> None:
        nodes.create([1, 2])
        nodes.append(change(TOPIC_RESOURCE, TOPIC, None))
        await nodes.stop(2)
        nodes.append(FenceBrokerRecord(id=2, epoch=0))
        nodes.change(isr=[1])
        assert (await nodes.produce(1, b"a")).error_code == 0
        nodes.append(change(BROKER_RESOURCE, "", "2"))
        assert (await nodes.produce(1, b"b")).error_code == errors.NotEnoughReplicas.code
        nodes.append(change(BROKER_RESOURCE, "", "1"))
        assert (await nodes.produce(1, b"b")).base_offset == 1
        nodes.append(change(TOPIC_RESOURCE, TOPIC, "2"))
        assert (await nodes.produce(1, b"c")).error_code == errors.NotEnoughReplicas.code

    run(tmp_path, scenario)


def test_replicas_that_leave_after_the_append_are_reported(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.create([1, 2, 3], min_isr=2)
        await nodes.produce(1, b"a")
        nodes.freeze(2, 3)
        answer = nodes.loop.create_task(nodes.produce(1, b"b", timeout_ms=300))
        await until_async(lambda: nodes.end(1) == 2)
        nodes.change(isr=[1])
        assert (await answer).error_code == errors.RequestTimedOut.code
        assert nodes.high_watermark(1) == 1, "held while fewer than min.insync.replicas are in sync"

    run(tmp_path, scenario)


def test_answer_waits_for_the_replicas_of_one_and_the_disk_of_another(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.create([1, 2], min_isr=2)
        nodes.create([1], name="alone")
        nodes.append(ConfigRecord(resource_type=2, resource_name="alone", name="flush.messages", value="1"))
        answers = await nodes.produce_to(1, b"value", TOPIC, "alone")
        assert [(each.error_code, each.base_offset) for each in answers] == [(0, 0), (0, 0)]
        assert nodes.high_watermark(1) == nodes.end(2) == 1
        alone = nodes.nodes[1].services.logs.find("alone", 0)
        assert alone is not None
        assert alone.high_watermark == 1

    run(tmp_path, scenario)


def create_with_slow(nodes: Nodes) -> None:
    """Create a topic with a follower, and one named slow whose follower is frozen."""
    nodes.create([1, 2], min_isr=2)
    nodes.create([1, 3], min_isr=2, name="slow")
    nodes.freeze(3)


@pytest.mark.parametrize("change", ["its follower leaves", "its leader moves"])
def test_committed_batch_stays_acknowledged_while_another_waits(tmp_path: Path, change: str) -> None:
    """Change the first topic when its batch is committed, while that of the second one waits."""

    async def scenario(nodes: Nodes) -> None:
        create_with_slow(nodes)
        answers = nodes.loop.create_task(nodes.produce_to(1, b"value", TOPIC, "slow"))
        await until_async(lambda: nodes.high_watermark(1) == 1)
        if change == "its follower leaves":
            nodes.append(FenceBrokerRecord(id=2, epoch=0))
            nodes.change(isr=[1])
            assert not nodes.hosted(1).partition.has_enough_replicas
        else:
            nodes.change(leader=2)
            assert not nodes.hosted(1).partition.leads
        nodes.thaw(3)
        assert [(each.error_code, each.base_offset) for each in await answers] == [(0, 0), (0, 0)]

    run(tmp_path, scenario)


def test_lost_leader_fails_its_own_partition_only(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        create_with_slow(nodes)
        nodes.freeze(2)
        answers = nodes.loop.create_task(nodes.produce_to(1, b"value", TOPIC, "slow"))
        await until_async(lambda: nodes.end(1) == 1)
        nodes.change(leader=2)
        nodes.change(leader=1)  # in a later epoch: the batch may be gone
        nodes.thaw(3)
        first, second = await answers
        assert (first.error_code, first.base_offset) == (errors.NotLeaderOrFollower.code, -1)
        assert (second.error_code, second.base_offset) == (0, 0)

    run(tmp_path, scenario)


def test_timeout_fails_the_partitions_that_wait_only(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        create_with_slow(nodes)
        answers = nodes.loop.create_task(nodes.produce_to(1, b"value", TOPIC, "slow"))
        await until_async(lambda: nodes.high_watermark(1) == 1)
        nodes.advance(1, 31)  # the request's timeout is 30 s
        first, second = await answers
        assert (first.error_code, first.base_offset) == (0, 0)
        assert (second.error_code, second.base_offset) == (errors.RequestTimedOut.code, -1)

    run(tmp_path, scenario)


def test_committed_batch_with_too_few_replicas_is_reported(tmp_path: Path) -> None:
    """Let the followers leave between the commit and the decision, which happen in one iteration of the loop."""

    async def scenario(nodes: Nodes) -> None:
        nodes.create([1, 2], min_isr=2)
        answer = await nodes.produce(1, b"value")
        hosted = nodes.hosted(1)
        appended = AppendedBatch(answer, hosted, answer.base_offset, hosted.partition.leader_epoch)
        nodes.append(FenceBrokerRecord(id=2, epoch=0))
        nodes.change(isr=[1])
        env, response = nodes.nodes[1].env, ProduceResponse(responses=[])
        timing = env.clock, env.timers
        assert when_replicated(response, [appended], 30_000, nodes.loop, timing, lambda _done: None) is response
        assert (answer.error_code, answer.base_offset) == (errors.NotEnoughReplicasAfterAppend.code, -1)
        assert answer.error_message == f"{TOPIC}-0: 1 replicas are in sync, 2 required"

    run(tmp_path, scenario)


def test_follower_that_leaves_while_a_request_is_appended_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commit the first batch of a request while its second one is checked on the I/O thread.

    That one has to be recompressed, and is too long for the loop.
    """
    checking, checked = threading.Event(), threading.Event()
    original = produce.check_client_batch

    def check(*given: Any) -> Any:
        checking.set()
        assert checked.wait(PATIENCE)
        return original(*given)

    monkeypatch.setattr(produce, "check_client_batch", check)

    async def scenario(nodes: Nodes) -> None:
        nodes.create([1, 2], min_isr=2)
        nodes.create([1, 3], min_isr=2, name="slow")
        recompressed = {"resource_name": "slow", "name": "compression.type", "value": "gzip"}
        nodes.append(ConfigRecord(resource_type=TOPIC_RESOURCE, **recompressed))
        answers = nodes.loop.create_task(nodes.produce_to(1, LARGE_VALUE, TOPIC, "slow"))
        await until_async(lambda: checking.is_set() and nodes.high_watermark(1) == 1)
        nodes.append(FenceBrokerRecord(id=2, epoch=0))
        nodes.change(isr=[1])
        checked.set()
        first, second = await answers
        assert (first.error_code, first.base_offset) == (errors.NotEnoughReplicasAfterAppend.code, -1)
        assert first.error_message == f"{TOPIC}-0: 1 replicas are in sync, 2 required"
        assert (second.error_code, second.base_offset) == (0, 0)
        assert nodes.end(1) == nodes.high_watermark(1) == 1, "the batch stays in the log"

    try:
        run(tmp_path, scenario)
    finally:
        checked.set()


def test_new_leader_has_all_that_was_acknowledged(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.create([1, 2, 3], min_isr=2)
        for number in range(20):
            assert (await nodes.produce(1, b"%d" % number)).error_code == 0
        await nodes.stop(1)
        nodes.change(leader=2, isr=[2, 3])
        assert (await nodes.produce(2, b"after")).base_offset == 20
        await until_async(lambda: nodes.high_watermark(3) == 21)
        await nodes.start(1)
        await until_async(lambda: nodes.isr(2) == [1, 2, 3])
        assert nodes.bytes_of(1) == nodes.bytes_of(2) == nodes.bytes_of(3)

    run(tmp_path, scenario)


def test_old_leader_truncates_what_was_not_replicated(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.create([1, 2, 3])
        assert (await nodes.produce(1, b"committed")).error_code == 0
        nodes.freeze(2, 3)
        for number in range(3):
            await nodes.produce(1, b"lost-%d" % number, acks=1)
        assert nodes.end(1) == 4
        lost = nodes.loop.create_task(nodes.produce(1, b"lost"))
        await until_async(lambda: nodes.end(1) == 5)
        before = nodes.end(2)
        nodes.change(leader=2, isr=[2, 3])
        assert (await lost).error_code == errors.NotLeaderOrFollower.code
        nodes.thaw(2, 3)
        assert (await nodes.produce(2, b"new")).base_offset == before
        await until_async(lambda: nodes.isr(2) == [1, 2, 3])
        assert nodes.bytes_of(1) == nodes.bytes_of(2) == nodes.bytes_of(3)
        opened = nodes.hosted(1).log
        assert opened is not None
        assert opened.end_offset_for_epoch(0) == (0, before)

    run(tmp_path, scenario)


def test_follower_behind_the_leaders_start_restarts_there(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.create([1, 2])
        for number in range(5):
            await nodes.produce(1, b"%d" % number)
        opened = nodes.hosted(1).log
        assert opened is not None
        opened.delete_records_before(3)
        opened.roll()
        opened.apply_retention(0)
        nodes.change(replicas=[1, 2, 3])
        await until_async(lambda: nodes.isr() == [1, 2, 3])
        copy = nodes.hosted(3).log
        assert copy is not None
        assert (copy.start_offset, copy.end_offset) == (3, 5)
        assert (await nodes.produce(1, b"more")).base_offset == 5
        await until_async(lambda: nodes.hosted(2).log.start_offset == 3)  # type: ignore[union-attr]

    run(tmp_path, scenario)


def test_delete_records_waits_for_the_replicas(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.create([1, 2, 3])
        for number in range(3):
            await nodes.produce(1, b"%d" % number)
        answer = await nodes.delete_records(1, 2)
        assert (answer.error_code, answer.low_watermark) == (0, 2)
        for node_id in (1, 2, 3):
            opened = nodes.hosted(node_id).log
            assert opened is not None
            assert opened.start_offset == 2
        nodes.freeze(3)
        await nodes.produce(1, b"3", acks=1)
        await until_async(lambda: nodes.end(3) == 4)
        answer = await nodes.delete_records(1, 3, timeout_ms=50)
        assert (answer.error_code, answer.low_watermark) == (errors.RequestTimedOut.code, -1)

    # on a busy machine, too, a fetch of node 3 is on its way when it is frozen
    run(tmp_path, scenario, replica_fetch_wait_max_ms="60000")


def test_metadata_requests_create_topics_and_report_offline_replicas(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
        first = await nodes.client(2).send(request, 60.0)
        assert first.topics[0].error_code == errors.UnknownTopicOrPartition.code
        await until_async(lambda: "new" in nodes.nodes[2].image.topics)
        [topic] = (await nodes.client(2).send(request, 60.0)).topics
        assert [partition.replica_nodes for partition in topic.partitions] == [[1, 2, 3]]
        assert topic.partitions[0].offline_replicas == []
        nodes.append(FenceBrokerRecord(id=3, epoch=0))
        [topic] = (await nodes.client(2).send(request, 60.0)).topics
        assert topic.partitions[0].offline_replicas == [3]

    run(tmp_path, scenario)


def test_other_nodes_name_the_leader(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.create([1, 2])
        await nodes.produce(1, b"a")
        answer = await nodes.produce(3, b"b")
        assert answer.error_code == errors.NotLeaderOrFollower.code
        assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (1, 0)
        fetched = await nodes.fetch(3, 0)
        assert fetched.error_code == errors.NotLeaderOrFollower.code
        assert fetched.current_leader.leader_id == 1

    run(tmp_path, scenario)


def test_fetch_of_a_replica_that_is_not_one_is_refused_and_counts_nothing(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.create([1, 2])
        await nodes.produce(1, b"a")
        nodes.freeze(2)
        assert (await nodes.produce(1, b"b", acks=1)).error_code == 0
        before = nodes.hosted(1).partition.followers
        broker_epoch = nodes.nodes[1].image.brokers[2].epoch
        for replica, epoch, error in (
            (ReplicaState(replica_id=3), 0, errors.UnknownLeaderEpoch),
            (ReplicaState(replica_id=99), 0, errors.UnknownLeaderEpoch),
            (ReplicaState(replica_id=99), -1, errors.NotLeaderOrFollower),
            (ReplicaState(replica_id=2, replica_epoch=broker_epoch - 1), 0, errors.NotLeaderOrFollower),
            (ReplicaState(replica_id=2, replica_epoch=broker_epoch), 1, errors.UnknownLeaderEpoch),
        ):
            answer = await nodes.fetch(1, 2, epoch=epoch, replica=replica)
            assert (answer.error_code, answer.records or b"") == (error.code, b""), replica
        assert nodes.hosted(1).partition.followers == before
        assert nodes.high_watermark(1) < 2

    run(tmp_path, scenario)


def test_fetch_of_a_replica_in_an_earlier_epoch_is_fenced(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.create([1, 2])
        await nodes.produce(1, b"a")
        nodes.freeze(2)
        nodes.change(leader=2)
        nodes.change(leader=1)
        assert nodes.hosted(1).partition.leader_epoch == 2
        assert (await nodes.produce(1, b"b", acks=1)).error_code == 0
        before, high_watermark = dict(nodes.hosted(1).partition.followers), nodes.high_watermark(1)
        replica = ReplicaState(replica_id=2, replica_epoch=nodes.nodes[1].image.brokers[2].epoch)
        for epoch in (0, 1):
            answer = await nodes.fetch(1, 2, epoch=epoch, replica=replica)
            assert (answer.error_code, answer.records or b"") == (errors.FencedLeaderEpoch.code, b""), epoch
            assert nodes.hosted(1).partition.followers == before
            assert nodes.high_watermark(1) == high_watermark < 2
        assert (await nodes.fetch(1, 2, epoch=2, replica=replica)).error_code == 0
        assert nodes.high_watermark(1) == 2, "the same fetch in the present epoch counts"

    run(tmp_path, scenario)


def test_consumer_reads_from_the_replica_in_its_rack(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.create([1, 2, 3])
        await nodes.produce(1, b"a")
        await until_async(lambda: nodes.high_watermark(3) == 1)
        answer = await nodes.fetch(1, 0, rack="rack-3")
        assert (answer.preferred_read_replica, answer.records) == (3, b"")
        assert (await nodes.fetch(1, 0, rack="rack-1")).preferred_read_replica == -1
        assert (await nodes.fetch(1, 0, rack="elsewhere")).preferred_read_replica == -1
        read = await nodes.fetch(3, 0, rack="rack-3")
        assert read.error_code == 0
        assert bytes(read.records or b"") == nodes.bytes_of(1)
        assert (await nodes.fetch(3, 0, epoch=1)).error_code == errors.UnknownLeaderEpoch.code

    run(tmp_path, scenario, replica_selector_class="org.apache.kafka.common.replica.RackAwareReplicaSelector")


@pytest.mark.parametrize("replicas", [[1], [1, 2]])
def test_replicas_added_and_removed(tmp_path: Path, replicas: list[int]) -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.create(replicas)
        assert (await nodes.produce(1, b"a")).base_offset == 0
        nodes.change(replicas=[1, 2, 3])
        assert (await nodes.produce(1, b"b")).base_offset == 1
        await until_async(lambda: nodes.isr() == [1, 2, 3])
        assert nodes.bytes_of(1) == nodes.bytes_of(3)
        nodes.change(replicas=[1], isr=[1])
        assert (await nodes.produce(1, b"c")).base_offset == 2
        assert nodes.nodes[3].logs.find("orders", 0) is None
        opened = nodes.nodes[1].logs.find("orders", 0)
        assert opened is not None
        assert opened.high_watermark == 3

    run(tmp_path, scenario)
