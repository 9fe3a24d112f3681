"""Partitions spread over several connections to their broker: each uses one, and moves with nothing in flight."""

from __future__ import annotations

import pytest

from pyclient.producer.sender import OVERLOADED_RESPONSES
from tests.producer.sender_fixture import SenderFixture


@pytest.fixture
def fixture():
    """Return four partitions of broker 1, each with one batch confirmed; a connection takes one request at a time."""
    fixture = SenderFixture((1, 1, 1, 1), max_connections=3, max_in_flight=1)
    for partition in range(4):
        fixture.batch(f"warm {partition}", partition=partition)
    fixture.drain()
    fixture.answer("warm 0")
    return fixture


def fill(fixture, suffix=""):
    for partition in range(4):
        fixture.batch(f"p{partition}{suffix}", partition=partition)


def test_partitions_take_turns_among_the_connections(fixture):
    fill(fixture)
    assert fixture.drain_all(2) == [[["p0", "p2"]], [["p1", "p3"]]]
    assert [batch.queue.wire_connection for batch in fixture.names if fixture.names[batch] in ("p0", "p3")] == [0, 1]


def test_the_partitions_of_each_broker_take_turns_of_their_own():
    fixture = SenderFixture((1, 2, 1, 2), max_connections=2)
    fill(fixture)
    assert fixture.drain_all(2, node=1) == [[["p0"]], [["p2"]]]
    assert fixture.drain_all(2, node=2) == [[["p1"]], [["p3"]]]


def test_partition_moves_only_with_nothing_in_flight(fixture):
    fill(fixture)
    assert fixture.drain_all(1) == [[["p0", "p1", "p2", "p3"]]]
    fill(fixture, " again")
    assert fixture.drain_all(2) == [[], []]
    fixture.answer("p0")
    assert fixture.drain_all(2) == [[["p0 again", "p2 again"]], [["p1 again", "p3 again"]]]


def test_partition_moves_back_only_with_nothing_in_flight(fixture):
    fill(fixture)
    fixture.drain_all(2)
    fill(fixture, " again")
    assert fixture.drain_all(1) == [[]]
    fixture.answer("p0")
    assert fixture.drain_all(1) == [[["p0 again", "p2 again"]]]
    fixture.answer("p0 again")
    assert fixture.drain_all(1) == [[]]  # the others are still under way where they were
    fixture.answer("p1")
    assert fixture.drain_all(1) == [[["p1 again", "p3 again"]]]


def test_batches_of_a_broken_connection_use_another(fixture):
    fill(fixture)
    fixture.drain_all(2)
    fill(fixture, " again")
    fixture.lose("p1")
    assert fixture.drain_all(1) == [[]]
    fixture.answer("p0")
    fixture.now += 1.0
    assert fixture.drain_all(1) == [[["p0 again", "p1", "p2 again", "p3"]]]
    assert fixture.numbers("p1") == (0, 1) and fixture.numbers("p3") == (0, 1)


def test_each_connection_has_at_most_the_allowed_requests_in_flight(fixture):
    fill(fixture)
    fixture.drain_all(3)
    assert [fixture.sender.nodes[1].in_flight_on(index) for index in range(3)] == [1, 1, 1]
    assert fixture.sender.total_in_flight == 3 and fixture.sender.connections == 3
    fill(fixture, " again")
    assert fixture.drain_all(3) == [[], [], []]
    fixture.answer("p1")
    assert fixture.drain_all(3) == [[], [["p1 again"]], []]


def test_pressure_adds_a_connection_and_idleness_removes_it(fixture):
    fill(fixture, " 0")
    fixture.drain_all(1)
    fill(fixture, " 1")
    node = fixture.sender.nodes[1]
    for number in range(OVERLOADED_RESPONSES):
        assert node.wanted == 1
        fixture.answer(f"p0 {number}")
        fill(fixture, f" {number + 2}")
        fixture.drain_all(1)
    assert node.wanted == 2
    last = OVERLOADED_RESPONSES + 1
    fixture.answer(f"p0 {OVERLOADED_RESPONSES}")
    assert fixture.drain_all(2) == [[[f"p0 {last}", f"p2 {last}"]], [[f"p1 {last}", f"p3 {last}"]]]
    fixture.answer(f"p0 {last}")
    assert (node.connections, fixture.sender.connections) == (2, 2)
    fixture.answer(f"p1 {last}")
    assert (node.connections, node.wanted, node.in_flight, fixture.sender.connections) == (1, 1, 0, 0)


def test_throttling_applies_to_all_connections_of_a_broker(fixture):
    fill(fixture)
    fixture.drain_all(2)
    fixture.answer("p0", throttle_ms=5000)
    fixture.answer("p1", throttle_ms=1)  # which does not end the other
    fill(fixture, " again")
    assert fixture.drain_all(2) == [[], []]
    fixture.now += 5.0
    assert fixture.drain_all(2) == [[["p0 again", "p2 again"]], [["p1 again", "p3 again"]]]


def test_order_is_kept_without_idempotence_as_well():
    fixture = SenderFixture((1, 1), max_connections=2, idempotent=False)
    fixture.batch("a", partition=1)
    assert fixture.drain_all(1) == [[["a"]]]
    fixture.batch("b", partition=1)
    assert fixture.drain_all(2) == [[], []]
    fixture.answer("a")
    assert fixture.drain_all(2) == [[], [["b"]]]


def test_new_leader_does_not_wait_for_the_old_one_without_idempotence():
    fixture = SenderFixture((1, 1), max_connections=2, idempotent=False)
    fixture.batch("a", partition=1)
    assert fixture.drain_all(2) == [[], [["a"]]]
    fixture.batch("b", partition=1)
    fixture.lead(1, 2)
    assert fixture.drain_all(1, node=2) == [[["b"]]]


def test_full_connection_does_not_stall_a_broker_without_ready_batches():
    """`partitioner_availability_timeout_ms` would otherwise keep records from it."""
    fixture = SenderFixture((1, 1), max_connections=2, max_in_flight=1, availability_timeout=1.0)
    fixture.batch("a", partition=1)
    assert fixture.drain_all(2) == [[], [["a"]]]
    fixture.batch("b", partition=0)
    fixture.sender.begin(fixture.now)
    assert [len(fixture.sender.drain_all(1, fixture.now, index)) for index in (0, 1)] == [1, 0]
    fixture.sender.begin(fixture.now + 2.0)
    assert fixture.accumulator.stalled_nodes() == set()
