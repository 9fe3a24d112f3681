"""Sequence numbers of transactions: how many batches of a new epoch are sent at once, and what refusals lead to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyclient import Admin, NewTopic, Producer, errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.producer.transaction_manager import TransactionManager, TransactionState
from tests.producer.sender_fixture import NOT_LEADER, OUT_OF_ORDER, SenderFixture
from tests.producer.transactional_clients import PARTITIONS, values_of


class Transactions(SenderFixture):
    """A sender in a transaction of transaction.version 2, whose epoch `next_transaction` raises."""

    def __init__(self) -> None:
        super().__init__()
        ids = self.sender.producer_ids
        self.manager = TransactionManager("t", 60_000, ids, lambda attempt: 1.0)
        self.manager.cluster_version = 2
        self.manager.state = TransactionState.READY
        self.manager.begin()
        self.sender.transactions = self.manager

    def next_transaction(self, producer_id: int = 7) -> None:
        assert self.sender.quiet
        ids = self.sender.producer_ids
        ids.obtained(producer_id, ids.epoch + 1)
        self.manager.state = TransactionState.READY
        self.manager.begin()

    def three(self) -> list[list[str]]:
        for name in ("a", "b", "c"):
            self.batch(name)
        return self.drain()


@pytest.fixture
def fixture() -> Transactions:
    made = Transactions()
    made.warm()
    return made


def test_first_transaction_begins_with_one_batch() -> None:
    fixture = Transactions()
    assert fixture.three() == [["a"]]
    fixture.answer("a")
    assert fixture.drain() == [["b"], ["c"]]


def test_later_epoch_begins_with_several_batches_at_once(fixture: Transactions) -> None:
    fixture.next_transaction()
    assert fixture.three() == [["a"], ["b"], ["c"]]
    assert [fixture.numbers(name) for name in ("a", "b", "c")] == [(1, 0), (1, 1), (1, 2)]


def test_partition_that_skipped_transactions_may_begin_with_several(fixture: Transactions) -> None:
    fixture.next_transaction()
    fixture.next_transaction()
    assert fixture.three() == [["a"], ["b"], ["c"]]
    assert fixture.numbers("a") == (2, 0)


def test_new_producer_id_or_long_pause_begins_with_one_batch(fixture: Transactions) -> None:
    fixture.next_transaction(producer_id=8)
    assert fixture.three() == [["a"]]
    fixture.answer("a")
    for names in fixture.drain():
        fixture.answer(names[0])
    fixture.now += 61.0
    fixture.next_transaction(producer_id=8)
    assert fixture.three() == [["a"]]


def test_refused_first_batch_is_sent_again_before_the_others(fixture: Transactions) -> None:
    fixture.next_transaction()
    fixture.three()
    fixture.answer("a", NOT_LEADER)
    fixture.answer("b", OUT_OF_ORDER)
    fixture.answer("c", OUT_OF_ORDER)
    assert fixture.drain(seconds=2.0) == [["a"]]
    fixture.answer("a")
    assert fixture.drain() == [["b"], ["c"]]
    assert [fixture.numbers(name) for name in ("a", "b", "c")] == [(1, 0), (1, 1), (1, 2)]
    assert fixture.manager.state is TransactionState.IN_TRANSACTION


def test_lost_first_batch_is_sent_again_before_the_others(fixture: Transactions) -> None:
    fixture.next_transaction()
    fixture.three()
    for name in ("a", "b", "c"):
        fixture.lose(name)
    assert fixture.drain(seconds=2.0) == [["a"]]
    fixture.answer("a", errors.DuplicateSequenceNumber.code)
    assert fixture.drain() == [["b"], ["c"]]


def test_broker_that_took_a_later_batch_first_aborts_the_transaction(fixture: Transactions) -> None:
    """It lost what it knew of the producer, so that any first number was right; the first batch can only be refused."""
    fixture.next_transaction()
    fixture.three()
    fixture.answer("a", NOT_LEADER)
    fixture.answer("b")
    fixture.answer("c")
    assert fixture.drain(seconds=2.0) == [["a"]]
    fixture.answer("a", OUT_OF_ORDER)
    assert fixture.manager.state is TransactionState.ABORTABLE_ERROR


@pytest.fixture(scope="module", params=["4.3", "3.9"])
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(as_version=request.param) as cluster:
        yield cluster


@pytest.mark.parametrize("error", ["NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS"])
def test_refusals_at_the_start_of_an_epoch_keep_order(cluster: EmbeddedCluster, topic: str, error: str) -> None:
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS)])
    options = {"linger_ms": 1000, "batch_size": 1, "retry_backoff_ms": 10, "transactional_id": topic}
    with Producer(cluster.bootstrap_servers, **options) as producer:
        producer.init_transactions()
        for number in range(4):
            with cluster.faults.fail("Produce", error, times=1), producer.transaction():
                for part in range(4):
                    producer.send(topic, b"%d-%d" % (number, part), partition=0)
    expected = [b"%d-%d" % (number, part) for number in range(4) for part in range(4)]
    assert values_of(cluster.bootstrap_servers, topic, "read_committed") == expected
