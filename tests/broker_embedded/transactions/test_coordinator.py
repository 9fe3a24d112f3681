"""The coordinator over a fake node: partitions of `__transaction_state` come and go, writes and markers fail."""

from __future__ import annotations

import pytest

from pyclient import errors
from pyclient.broker_embedded.transactions.config import TransactionConfig
from pyclient.broker_embedded.transactions.events import Outcome
from pyclient.broker_embedded.transactions.runtime import Marker
from pyclient.types import TopicPartition
from tests.broker_embedded.transactions.memory_node import EPOCH, A, B, Node, begun, state, value


@pytest.fixture
def node() -> Node:
    """Return a coordinator of two partitions."""
    return Node()


def test_ids_are_where_their_partition_is(node: Node) -> None:
    producer = begun(node)
    partition = node.coordinator.partition_of("x")
    node.coordinator.unload(partition)
    ended = node.coordinator.end("x", *producer, commit=True, client_version=2)
    assert value(ended).error == errors.NotCoordinator.code
    with pytest.raises(errors.NotCoordinator):
        node.coordinator.describe("x")
    node.coordinator.load(partition, EPOCH)
    assert state(node) == "Ongoing"
    assert value(node.coordinator.end("x", *producer, commit=True, client_version=2)).error == 0


def test_pending_write_fails_when_the_partition_is_unloaded(node: Node) -> None:
    producer = begun(node)
    node.held = True
    ended = node.coordinator.end("x", *producer, commit=True, client_version=2)
    assert ended.value is None
    node.coordinator.unload(node.coordinator.partition_of("x"))
    assert value(ended).error == errors.NotCoordinator.code
    node.commit()
    assert node.markers == []  # the next coordinator writes them


def test_markers_wait_for_the_decision_in_the_log(node: Node) -> None:
    producer = begun(node)
    node.held = True
    ended = node.coordinator.end("x", *producer, commit=False, client_version=2)
    assert (ended.value, node.markers) == (None, [])
    node.commit()
    assert value(ended) == Outcome(0, producer[0], producer[1] + 1)
    assert node.markers == [(each, Marker(producer[0], producer[1] + 1, False, EPOCH, 2)) for each in (A, B)]
    assert state(node) == "PrepareAbort"
    node.commit()
    assert state(node) == "CompleteAbort"


@pytest.mark.parametrize(
    ("code", "code_for_clients"),
    [
        (errors.NotEnoughReplicas.code, errors.CoordinatorNotAvailable.code),
        (errors.KafkaStorageError.code, errors.NotCoordinator.code),
        (errors.MessageTooLarge.code, errors.UnknownServerError.code),
    ],
)
def test_failed_writes_are_answered_with_errors_of_coordinators(node: Node, code: int, code_for_clients: int) -> None:
    producer = begun(node)
    node.held = True
    ended = node.coordinator.end("x", *producer, commit=True, client_version=2)
    node.commit(code)
    assert value(ended).error == code_for_clients
    assert state(node) == "Ongoing"


def test_write_that_is_not_committed_in_time_fails_and_is_superseded(node: Node) -> None:
    producer = begun(node)
    node.held = True
    late = node.coordinator.end("x", *producer, commit=True, client_version=2)
    node.pass_time(0.9)
    assert late.value is None
    node.pass_time(0.2)
    assert value(late).error == errors.CoordinatorNotAvailable.code
    assert state(node) == "Ongoing"
    [first] = node.waiting
    node.waiting.clear()
    again = node.coordinator.end("x", *producer, commit=False, client_version=2)
    first(0)  # its success is not that of the second one
    assert (again.value, state(node), node.markers) == (None, "Ongoing", [])
    node.commit()
    node.commit()
    assert (value(again).error, state(node)) == (0, "CompleteAbort")
    assert {marker.commit for _, marker in node.markers} == {False}
    node.restart()
    assert state(node) == "CompleteAbort"


def test_late_write_counts_for_the_next_coordinator(node: Node) -> None:
    producer = begun(node)
    node.held = True
    node.coordinator.end("x", *producer, commit=True, client_version=2)
    node.pass_time(1.1)
    node.commit()
    assert (state(node), node.markers) == ("Ongoing", [])
    node.held = False
    node.restart()
    assert state(node) == "CompleteCommit"
    retried = node.coordinator.end("x", *producer, commit=True, client_version=2)
    assert value(retried) == Outcome(0, producer[0], producer[1] + 1)


def test_transaction_times_out_although_a_write_was_never_committed(node: Node) -> None:
    producer = begun(node)
    node.held = True
    node.coordinator.add_partitions("x", *producer, frozenset({TopicPartition("t", 2)}), client_version=2)
    node.pass_time(10)
    node.pass_time(10)
    for _ in range(3):
        node.commit()
    assert state(node) == "CompleteAbort"


@pytest.mark.parametrize("problem", ["it is never committed", "too few replicas are in sync"])
def test_end_of_a_decided_transaction_is_written_until_it_is_committed(node: Node, problem: str) -> None:
    producer = begun(node)
    node.held = True
    node.coordinator.end("x", *producer, commit=True, client_version=2)
    node.commit()
    for _ in range(3):
        if problem == "it is never committed":
            node.waiting.clear()
            node.pass_time(1.1)
        else:
            node.commit(errors.NotEnoughReplicas.code)
        assert state(node) == "PrepareCommit"
        node.pass_time(0.1)
    node.commit()
    assert state(node) == "CompleteCommit"
    assert len(node.markers) == 2, "the markers were there before"


def pass_slowly(node: Node, seconds: int) -> None:
    for _ in range(seconds):
        node.pass_time(1)


def test_timeouts_are_checked_at_their_interval(node: Node) -> None:
    node.config = TransactionConfig(
        transaction_abort_timed_out_transaction_cleanup_interval_ms=30_000,
        transaction_remove_expired_transaction_cleanup_interval_ms=2_000,
    )
    node.restart()
    begun(node)
    pass_slowly(node, 29)
    assert state(node) == "Ongoing", "removing unused ids aborts nothing"
    pass_slowly(node, 1)
    assert state(node) == "CompleteAbort"


def test_unused_ids_are_removed_after_their_time_in_the_interval_for_it(node: Node) -> None:
    node.config = TransactionConfig(
        transactional_id_expiration_ms=60_000,
        transaction_abort_timed_out_transaction_cleanup_interval_ms=1_000,
        transaction_remove_expired_transaction_cleanup_interval_ms=50_000,
    )
    node.restart()
    node.coordinator.init_producer_id("x", 1000, None)
    pass_slowly(node, 30)
    node.coordinator.init_producer_id("y", 1000, None)
    pass_slowly(node, 69)
    assert sorted(entry.metadata.transactional_id for entry in node.coordinator) == ["x", "y"]
    pass_slowly(node, 1)
    assert list(node.coordinator) == [], "both have expired, and the second interval is over"


def test_open_transaction_is_kept_beyond_the_expiration_of_ids(node: Node) -> None:
    node.config = TransactionConfig(
        transactional_id_expiration_ms=5_000, transaction_remove_expired_transaction_cleanup_interval_ms=1_000
    )
    node.restart()
    assert value(node.coordinator.init_producer_id("x", 60_000, None)).error == 0
    node.coordinator.add_partitions("x", 1, 0, frozenset({A}), client_version=2)
    pass_slowly(node, 60)
    assert state(node) == "Ongoing"
    pass_slowly(node, 30)  # aborted, and unused since
    with pytest.raises(errors.TransactionalIdNotFound):
        node.coordinator.describe("x")


def test_unused_id_is_removed_later_if_its_tombstone_is_not_committed(node: Node) -> None:
    node.config = TransactionConfig(request_timeout_ms=5000)
    node.coordinator.init_producer_id("x", 60_000, None)
    node.held = True
    week = 7 * 24 * 3600
    node.pass_time(week)
    node.waiting.clear()
    node.pass_time(5)
    assert state(node) == "Empty"
    node.pass_time(3600)
    node.commit()
    with pytest.raises(errors.TransactionalIdNotFound):
        node.coordinator.describe("x")


@pytest.mark.parametrize("problem", ["no leader", "an error"])
def test_markers_are_sent_again_until_they_are_written(node: Node, problem: str) -> None:
    producer = begun(node)
    if problem == "no leader":
        node.leaders[B] = -1
    else:
        node.marker_errors[B] = errors.NotLeaderOrFollower.code
    assert value(node.coordinator.end("x", *producer, commit=True, client_version=2)).error == 0
    for _ in range(3):
        node.pass_time(1)
        assert (state(node), [partition for partition, _ in node.markers]) == ("PrepareCommit", [A])
    node.leaders[B] = 2  # another node leads it now
    node.marker_errors.clear()
    node.pass_time(1)
    assert (state(node), [partition for partition, _ in node.markers]) == ("CompleteCommit", [A, B])


@pytest.mark.parametrize("reason", ["deleted", "ended before"])
def test_a_partition_without_need_of_a_marker_holds_nothing_up(node: Node, reason: str) -> None:
    producer = begun(node)
    if reason == "deleted":
        del node.leaders[B]
    else:
        node.marker_errors[B] = errors.InvalidProducerEpoch.code
    assert value(node.coordinator.end("x", *producer, commit=True, client_version=2)).error == 0
    assert state(node) == "CompleteCommit"


def test_a_coordinator_that_is_fenced_leaves_the_rest_to_the_next(node: Node) -> None:
    producer = begun(node)
    node.marker_errors[B] = errors.TransactionCoordinatorFenced.code
    node.coordinator.end("x", *producer, commit=True, client_version=2)
    node.marker_errors.clear()
    node.pass_time(60)
    assert (state(node), [partition for partition, _ in node.markers]) == ("PrepareCommit", [A])


def test_a_restart_completes_what_was_decided_and_keeps_what_is_open(node: Node) -> None:
    producers = {name: begun(node, name) for name in ("decided", "open")}
    node.marker_errors = dict.fromkeys((A, B), errors.NotLeaderOrFollower.code)
    node.coordinator.end("decided", *producers["decided"], commit=True, client_version=2)
    node.marker_errors.clear()
    node.restart()
    assert (state(node, "decided"), state(node, "open")) == ("CompleteCommit", "Ongoing")
    assert {marker.producer_id for _, marker in node.markers} == {producers["decided"][0]}


def test_timed_out_transactions_are_aborted_and_unused_ids_removed(node: Node) -> None:
    begun(node)
    node.pass_time(0.5)
    assert state(node) == "Ongoing"
    node.pass_time(10)
    assert state(node) == "CompleteAbort"
    node.pass_time(7 * 24 * 3600)
    with pytest.raises(errors.TransactionalIdNotFound):
        node.coordinator.describe("x")
    node.restart()
    assert list(node.coordinator) == []


def test_requests_that_cannot_be_served(node: Node) -> None:
    init = node.coordinator.init_producer_id
    assert value(init("", 1, None)).error == errors.InvalidRequest.code
    for timeout in (0, -1, 60_001):
        assert value(init("x", timeout, None)).error == errors.InvalidTransactionTimeout.code
    for unknown in ("x", ""):
        expected = errors.InvalidProducerIdMapping.code if unknown else errors.InvalidRequest.code
        assert value(node.coordinator.end(unknown, 1, 0, commit=True, client_version=2)).error == expected
        assert value(node.coordinator.add_partitions(unknown, 1, 0, frozenset({A}))).error == expected
        assert node.coordinator.verify(unknown, 1, 0, frozenset({A})) == {A: expected}
    node.no_ids = errors.CoordinatorNotAvailable.code
    assert value(init("x", 1, None)).error == errors.CoordinatorNotAvailable.code
    node.log = []
    assert value(init("x", 1, None)).error == errors.NotCoordinator.code


def test_an_unreadable_record_affects_only_its_id(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    producer = begun(node)
    node.log[0].insert(0, (b"\0\0\0\1y", b"\0\x63"))
    node.log[0].insert(0, (b"\0\x09", b""))
    node.log[0].insert(0, (None, b"x"))
    node.restart()
    assert (state(node), node.coordinator.describe("x").producer_id) == ("Ongoing", producer[0])
    assert "cannot be read" in caplog.text
