"""Transactions on a broker, request by request: verification, offsets, fencing, timeouts, and kills in every state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.log.filesystem import RealFileSystem
from pyclient.protocol.messages.describe_transactions import DescribeTransactionsRequest
from pyclient.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.broker_embedded.log.slow_disks import NodeOnDisk, start
from tests.broker_embedded.topics import create, end_offset
from tests.broker_embedded.transactions.raw_producer import RawProducer, committed_offset, committed_values
from tests.waiting import until

__all__ = ["start"]

both = pytest.mark.parametrize("version", [0, 2])
Node = NodeOnDisk[RealFileSystem]


@pytest.fixture
def node(start: Callable[[], Node], connect: Any) -> Node:
    """Return a node with topic `t` of two partitions."""
    made = start()
    create(connect(made), "t", 2)
    return made


def begun(client: Any, version: int, *partitions: int) -> RawProducer:
    """Return a producer that has written one record to each of these partitions in its transaction."""
    producer = RawProducer(client, version=version)
    assert producer.init() == 0
    write_all(producer, *partitions)
    return producer


def write_all(producer: RawProducer, *partitions: int) -> None:
    if producer.version != 2 and partitions:
        assert producer.add(*partitions) == 0
    for partition in partitions:
        assert producer.write(b"%d" % producer.epoch, partition) == 0


def state_of(client: Any, transactional_id: str = "x") -> str:
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    state: str = client.call(request, 0).transaction_states[0].transaction_state
    return state


@both
def test_records_and_offsets_become_visible_together(node: Node, connect: Any, version: int) -> None:
    client = connect(node)
    producer = begun(client, version, 0, 1)
    assert producer.commit_offset(5) == 0
    assert committed_values(client) == ([], False)
    assert committed_offset(client) == (-1, errors.UnstableOffsetCommit.code)
    assert committed_offset(client, stable=False) == (-1, 0)
    assert producer.end(commit=True) == 0
    assert [committed_values(client, each) for each in (0, 1)] == [([b"0"], True)] * 2
    assert (committed_offset(client), state_of(client)) == ((5, 0), "CompleteCommit")
    write_all(producer, 0)
    assert producer.commit_offset(9) == 0
    assert producer.end(commit=False) == 0
    assert committed_values(client) == ([b"0"], True)
    assert (committed_offset(client), state_of(client)) == ((5, 0), "CompleteAbort")


@pytest.mark.parametrize(("request_version", "error"), [(9, errors.InvalidTxnState), (11, errors.TransactionAbortable)])
def test_a_write_outside_the_transaction_is_refused(
    node: Node, connect: Any, request_version: int, error: type[errors.BrokerError]
) -> None:
    client = connect(node)
    producer = begun(client, 0, 0)
    assert producer.write(b"stray", 1, request_version=request_version) == error.code
    assert producer.end(commit=True) == 0
    assert producer.write(b"late", 0, request_version=request_version) == error.code
    assert end_offset(client, "t", 1) == 0
    assert committed_values(client) == ([b"0"], True)


def test_a_late_write_of_version_2_is_fenced_by_its_epoch(node: Node, connect: Any) -> None:
    client = connect(node)
    producer = begun(client, 2, 0)
    old = producer.epoch
    assert producer.end(commit=True) == 0
    producer.epoch = old
    assert producer.write(b"late") == errors.InvalidProducerEpoch.code
    assert committed_values(client) == ([b"0"], True)


def test_offsets_outside_the_transaction_are_refused(node: Node, connect: Any) -> None:
    client = connect(node)
    producer = begun(client, 0)
    zombie = RawProducer(client, version=2)
    zombie.producer_id, zombie.epoch = producer.producer_id, producer.epoch - 1
    assert zombie.commit_offset(3) == errors.InvalidProducerEpoch.code
    assert committed_offset(client) == (-1, 0)


@both
def test_a_successor_aborts_and_fences(node: Node, connect: Any, version: int) -> None:
    client = connect(node)
    zombie = begun(client, version, 0)
    successor = RawProducer(client, version=version)
    assert successor.init() == errors.ConcurrentTransactions.code
    assert successor.init() == 0
    assert zombie.write(b"zombie") == errors.InvalidProducerEpoch.code
    assert zombie.end(commit=True) == errors.ProducerFenced.code
    write_all(successor, 0)
    assert successor.end(commit=True) == 0
    assert committed_values(client) == ([b"2"], True)


@both
def test_a_timed_out_transaction_is_aborted(node: Node, connect: Any, version: int) -> None:
    client = connect(node)
    producer = begun(client, version, 0)
    assert producer.commit_offset(1) == 0
    node.on_loop(lambda: node.node.clock.advance(61))
    node.until(lambda: all(entry.metadata.state.label == "CompleteAbort" for entry in node.node.transactions))
    assert committed_values(client) == ([], True)
    assert committed_offset(client) == (-1, 0)
    assert producer.end(commit=True) in (errors.ProducerFenced.code, errors.InvalidTxnState.code)


@both
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("reached", ["decided", "some markers", "all markers"])
def test_a_kill_after_the_decision_completes_the_transaction(
    node: Node, start: Callable[[], Node], connect: Any, version: int, commit: bool, reached: str
) -> None:
    client = connect(node)
    producer = begun(client, version, 0, 1)
    assert producer.commit_offset(7) == 0

    def stop_after_decision() -> None:
        runtime: Any = node.node.transactions.runtime
        write, append = runtime.write_markers, runtime.append

        def some_markers(leader: int, marker: Any, partitions: Any, done: Any) -> None:
            chosen = {"decided": [], "some markers": partitions[:2], "all markers": partitions}[reached]
            write(leader, marker, chosen, done)

        def no_completion(partition: int, epoch: int, batch: bytes, done: Any) -> None:
            if runtime.decided:
                return
            runtime.decided = True
            append(partition, epoch, batch, done)

        runtime.decided = False
        runtime.write_markers, runtime.append = some_markers, no_completion

    node.on_loop(stop_after_decision)
    assert producer.end(commit=commit) == 0
    assert state_of(client) == ("PrepareCommit" if commit else "PrepareAbort")
    restarted = start()
    client = connect(restarted)
    restarted.until(lambda: not any(entry.transaction.is_changing for entry in restarted.node.transactions))
    assert state_of(client) == ("CompleteCommit" if commit else "CompleteAbort")
    expected = [b"0"] if commit else []
    assert [committed_values(client, each) for each in (0, 1)] == [(expected, True)] * 2
    assert committed_offset(client) == ((7, 0) if commit else (-1, 0))
    producer.client = client
    write_all(producer, 0)
    assert producer.end(commit=True) == 0
    assert committed_values(client) == ([*expected, b"%d" % (1 if version == 2 else 0)], True)


@both
def test_a_kill_before_the_decision_leaves_the_transaction_open(
    node: Node, start: Callable[[], Node], connect: Any, version: int
) -> None:
    producer = begun(connect(node), version, 0, 1)
    assert producer.commit_offset(7) == 0
    restarted = start()
    client = producer.client = connect(restarted)
    restarted.until(lambda: not restarted.node.logs.unopened)
    assert state_of(client) == "Ongoing"
    assert committed_values(client) == ([], False)
    assert committed_offset(client) == (-1, errors.UnstableOffsetCommit.code)
    assert producer.write(b"more") == 0
    assert producer.end(commit=True) == 0
    assert committed_values(client) == ([b"0", b"more"], True)
    assert committed_offset(client) == (7, 0)


def test_an_administrator_ends_a_hanging_transaction(node: Node, connect: Any) -> None:
    client = connect(node)
    producer = begun(client, 0, 0)
    topics = [
        WritableTxnMarkerTopic(name="t", partition_indexes=[0]),
        WritableTxnMarkerTopic(name="no", partition_indexes=[1]),
    ]
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        transaction_result=False,
        topics=topics,
        coordinator_epoch=-1,
    )
    answer = client.call(WriteTxnMarkersRequest(markers=[marker]), 1)
    codes = [each.error_code for topic in answer.markers[0].topics for each in topic.partitions]
    assert codes == [0, errors.UnknownTopicOrPartition.code]
    assert committed_values(client) == ([], True)


def test_a_deleted_topic_does_not_hold_up_a_transaction(node: Node, connect: Any) -> None:
    from pyclient.protocol.messages.delete_topics import DeleteTopicsRequest

    client = connect(node)
    create(client, "gone")
    producer = begun(client, 2, 0)
    assert producer.write(b"x", topic="gone") == 0
    client.call(DeleteTopicsRequest(topic_names=["gone"], timeout_ms=1000), 5)
    assert producer.end(commit=True) == 0
    assert state_of(client) == "CompleteCommit"
    assert committed_values(client) == ([b"0"], True)


def test_brokers_options_say_when_a_transaction_and_its_id_end(connect: Any, data_dir: str) -> None:
    config = {
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000_000,
        "transaction.remove.expired.transaction.cleanup.interval.ms": 7_000_000,
        "transactional.id.expiration.ms": 3_000_000,
    }
    with EmbeddedCluster(data_dir=data_dir, config=config) as cluster:
        client = connect(cluster)
        create(client, "t")
        begun(client, 2, 0)
        for passed, state in ((900, "Ongoing"), (100, "CompleteAbort"), (5_900, "CompleteAbort"), (100, "Dead")):
            cluster.advance_time(passed)
            until(lambda state=state: (state_of(client) or "Dead") == state)
