"""Transactions over several nodes: the coordinator, the partitions and the group's offsets have different leaders."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded.controller.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from pyclient.broker_embedded.transactions.local_markers import write_marker
from pyclient.broker_embedded.transactions.promise import Promise
from pyclient.broker_embedded.transactions.runtime import Marker
from pyclient.broker_embedded.transactions.verification import verify_writes
from pyclient.protocol.messages.end_txn import EndTxnRequest
from pyclient.protocol.messages.init_producer_id import InitProducerIdRequest
from pyclient.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pyclient.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from pyclient.records import build_batch
from pyclient.types import TopicPartition
from tests.broker_embedded.replication.hand_controlled import TOPIC, TOPIC_ID, Nodes, run
from tests.waiting import until_async

DATA, COORDINATOR, GROUPS = 1, 2, 3
"""The nodes that lead the partition, `__transaction_state` and `__consumer_offsets` at the beginning."""


class Writer:
    """A producer of transaction version 2 that knows its nodes."""

    def __init__(self, nodes: Nodes, timeout_ms: int = 60_000) -> None:
        self.nodes = nodes
        self.timeout_ms = timeout_ms
        self.producer_id = self.epoch = -1
        self.sequence = 0
        self.coordinator = COORDINATOR

    async def ask(self, node_id: int, request: Any) -> Any:
        return await self.nodes.client(node_id).send(request, 60.0)

    async def init(self) -> int:
        request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=self.timeout_ms)
        answer = await self.ask(self.coordinator, request)
        self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        code: int = answer.error_code
        return code

    async def write(self, value: bytes) -> int:
        batch = build_batch(
            [(None, value)],
            timestamp_ms=round(time.time() * 1000),
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            transactional=True,
        )
        topic = TopicProduceData(
            name=TOPIC, topic_id=TOPIC_ID, partition_data=[PartitionProduceData(index=0, records=batch)]
        )
        request = ProduceRequest(transactional_id="x", acks=-1, timeout_ms=30_000, topic_data=[topic])
        answer = await self.ask(DATA, request)
        code: int = answer.responses[0].partition_responses[0].error_code
        if code == errors.ConcurrentTransactions.code:  # the previous transaction is being completed
            return await self.write(value)
        self.sequence += 1
        return code

    async def commit_offset(self, offset: int) -> int:
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=None)
        request = TxnOffsetCommitRequest(
            transactional_id="x",
            group_id="group",
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
        )
        answer = await self.ask(GROUPS, request)
        code: int = answer.topics[0].partitions[0].error_code
        return code

    async def end(self, *, commit: bool) -> int:
        request = EndTxnRequest(
            transactional_id="x", producer_id=self.producer_id, producer_epoch=self.epoch, committed=commit
        )
        answer = await self.ask(self.coordinator, request)
        code: int = answer.error_code
        if not code:
            self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return code


async def prepared(nodes: Nodes, timeout_ms: int = 60_000) -> Writer:
    """Return a producer that has written a record and an offset in its transaction."""
    nodes.create([DATA, COORDINATOR, GROUPS])
    nodes.create([COORDINATOR, GROUPS, DATA], name=TRANSACTIONS_TOPIC)
    nodes.create([GROUPS, DATA, COORDINATOR], name=OFFSETS_TOPIC)
    await until_async(lambda: nodes.nodes[COORDINATOR].transactions.loaded_partitions)
    await until_async(lambda: nodes.nodes[GROUPS].groups.groups.loaded_partitions())
    writer = Writer(nodes, timeout_ms)
    assert await writer.init() == 0
    assert await writer.write(b"first") == 0
    assert await writer.commit_offset(5) == 0
    return writer


def stable(nodes: Nodes, node_id: int = DATA) -> tuple[int, int]:
    """Return the last stable offset and the end of a node's log."""
    opened = nodes.hosted(node_id).log
    assert opened is not None
    return opened.last_stable_offset, opened.end_offset


def committed(nodes: Nodes) -> int | None:
    """Return the group's offset as its coordinator has it."""
    entry = nodes.nodes[GROUPS].groups.groups.find("group")
    found = None if entry is None else entry.offsets.get(TopicPartition(TOPIC, 0))
    return None if found is None else found.offset


@pytest.mark.parametrize("commit", [True, False])
def test_transaction_over_three_leaders(tmp_path: Path, commit: bool) -> None:
    async def scenario(nodes: Nodes) -> None:
        writer = await prepared(nodes)
        assert (stable(nodes), committed(nodes)) == ((0, 1), None)
        assert await writer.end(commit=commit) == 0
        await until_async(lambda: stable(nodes) == (2, 2))
        await until_async(lambda: committed(nodes) == (5 if commit else None))
        for node_id in (COORDINATOR, GROUPS):  # the replicas agree
            await until_async(lambda node_id=node_id: stable(nodes, node_id) == (2, 2))
        assert await writer.write(b"second") == 0
        assert await writer.end(commit=True) == 0
        await until_async(lambda: stable(nodes) == (4, 4))

    run(tmp_path, scenario)


def test_offsets_at_a_former_coordinator_of_the_group_are_refused_as_such(tmp_path: Path) -> None:
    """Answer NotCoordinator: with any other error the producer would retry at the former coordinator for ever."""

    async def scenario(nodes: Nodes) -> None:
        writer = await prepared(nodes)
        nodes.change(nodes.nodes[GROUPS].image.topics[OFFSETS_TOPIC].topic_id, leader=DATA)
        assert await writer.commit_offset(6) == errors.NotCoordinator.code

    run(tmp_path, scenario)


@pytest.mark.parametrize("commit", [True, False])
def test_next_coordinator_completes_what_was_decided(tmp_path: Path, commit: bool) -> None:
    async def scenario(nodes: Nodes) -> None:
        writer = await prepared(nodes)
        lost: Any = nodes.nodes[COORDINATOR].transactions.runtime
        lost.write_markers = lambda *_markers: None
        assert await writer.end(commit=commit) == 0
        assert stable(nodes) == (0, 1)
        topic_id = nodes.nodes[DATA].image.topics[TRANSACTIONS_TOPIC].topic_id
        nodes.change(topic_id, leader=GROUPS)
        await until_async(lambda: stable(nodes) == (2, 2))
        await until_async(lambda: committed(nodes) == (5 if commit else None))
        assert await writer.init() == errors.NotCoordinator.code
        writer.coordinator = GROUPS
        await until_async(lambda: not any(each.transaction.is_changing for each in nodes.nodes[GROUPS].transactions))
        assert await writer.init() == 0
        assert await writer.write(b"second") == 0
        assert await writer.end(commit=True) == 0
        await until_async(lambda: stable(nodes) == (4, 4))

    run(tmp_path, scenario)


def test_decision_that_the_replicas_do_not_get_is_not_answered(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        writer = await prepared(nodes)
        nodes.freeze(DATA, GROUPS)
        ended = nodes.loop.create_task(writer.end(commit=True))
        await until_async(lambda: any(each.transaction.is_changing for each in nodes.nodes[COORDINATOR].transactions))
        assert not ended.done()
        assert stable(nodes) == (0, 1)
        nodes.thaw(DATA, GROUPS)
        assert await ended == 0
        await until_async(lambda: stable(nodes) == (2, 2))

    run(tmp_path, scenario)


def test_decision_that_the_replicas_get_too_late_is_superseded(tmp_path: Path) -> None:
    """Replicate the record of the decision too late: the producer gets the error, and aborts."""

    async def scenario(nodes: Nodes) -> None:
        writer = await prepared(nodes, timeout_ms=3_000)
        nodes.freeze(DATA, GROUPS)
        code = errors.CoordinatorNotAvailable.code
        assert await writer.end(commit=True) == code
        assert stable(nodes) == (0, 1)
        nodes.thaw(DATA, GROUPS)
        while code == errors.CoordinatorNotAvailable.code:
            code = await writer.end(commit=False)
        assert code == 0
        for node_id in (DATA, COORDINATOR, GROUPS):
            await until_async(lambda node_id=node_id: stable(nodes, node_id) == (2, 2))
        opened = nodes.hosted(DATA).log
        assert opened is not None
        found = opened.read(0, 1 << 20, isolation="committed", copied=True)
        assert found.aborted == [(writer.producer_id, 0)]
        assert committed(nodes) is None

    hour = "3600000"  # the transaction's own timeout is not what ends it
    run(tmp_path, scenario, transaction_abort_timed_out_transaction_cleanup_interval_ms=hour)


def test_write_that_was_verified_before_the_transaction_ended_is_refused(tmp_path: Path) -> None:
    """Use a transaction version below 2: the next transaction has the same epoch, and would get the late write."""

    async def scenario(nodes: Nodes) -> None:
        writer = await prepared(nodes)
        node, opened = nodes.nodes[DATA], nodes.hosted(DATA).log
        assert opened is not None
        topic_partition = TopicPartition(TOPIC, 0)
        producer = writer.producer_id, writer.epoch
        await until_async(lambda: opened.high_watermark == 1)
        codes: list[int] = []
        write_marker(node.services, topic_partition, Marker(*producer, False, 0, 0), codes.append)
        await until_async(lambda: codes == [0])
        answer: Promise[dict[TopicPartition, int]] = Promise()
        inter_broker_requests: Any = node.services.inter_broker_requests
        inter_broker_requests.verify = lambda *_asked, **_options: answer
        late = build_batch(
            [(None, b"late")], timestamp_ms=1, producer_id=producer[0], producer_epoch=producer[1], transactional=True
        )
        first, second = (verify_writes(node.services, "x", {topic_partition: memoryview(late)}, 11) for _ in range(2))
        assert first.value is None
        write_marker(node.services, topic_partition, Marker(*producer, False, 0, 0), codes.append)
        await until_async(lambda: codes == [0, 0])
        answer.set({topic_partition: 0})
        assert second.value is not None
        with pytest.raises(errors.TransactionAbortable):
            second.value.check(opened, late)
        verify_writes(node.services, "x", {topic_partition: memoryview(late)}, 11).then(
            lambda writes: writes.check(opened, late)
        )

    run(tmp_path, scenario)


def test_write_is_accepted_after_the_marker_of_the_previous_transaction(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        writer = await prepared(nodes)
        node, opened = nodes.nodes[DATA], nodes.hosted(DATA).log
        assert opened is not None
        topic_partition = TopicPartition(TOPIC, 0)
        answers = [errors.ConcurrentTransactions.code, 0]

        def verify(*_asked: Any, **_options: Any) -> Promise[dict[TopicPartition, int]]:
            found = {topic_partition: answers.pop(0)}
            answer: Promise[dict[TopicPartition, int]] = Promise()
            if found[topic_partition]:
                previous = Marker(writer.producer_id, writer.epoch, True, 0, 0)
                write_marker(node.services, topic_partition, previous, lambda _code: answer.set(found))
            else:
                answer.set(found)
            return answer

        inter_broker_requests: Any = node.services.inter_broker_requests
        inter_broker_requests.verify = verify
        batch = build_batch(
            [(None, b"next")],
            timestamp_ms=1,
            producer_id=writer.producer_id,
            producer_epoch=writer.epoch + 1,
            transactional=True,
        )
        writes = verify_writes(node.services, "x", {topic_partition: memoryview(batch)}, 12)
        await until_async(lambda: writes.value is not None)
        assert writes.value is not None
        writes.value.check(opened, batch)
        assert answers == []

    run(tmp_path, scenario)
