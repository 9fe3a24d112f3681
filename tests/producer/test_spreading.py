"""Partitions over several connections to their broker: each keeps to one, and moves when nothing of it is under way."""

from __future__ import annotations

import pytest

from pyclient.producer.node import PRESSED
from tests.producer.sender_bench import Bench


@pytest.fixture
def bench():
    """Four partitions of broker 1, each with one batch confirmed; one request may be under way on a connection."""
    bench = Bench((1, 1, 1, 1), max_connections=3, max_in_flight=1)
    for partition in range(4):
        bench.batch(f"warm {partition}", partition=partition)
    bench.drain()
    bench.answer("warm 0")
    return bench


def fill(bench, suffix=""):
    for partition in range(4):
        bench.batch(f"p{partition}{suffix}", partition=partition)


def test_partitions_take_turns_among_the_connections(bench):
    fill(bench)
    assert bench.drain_all(2) == [[["p0", "p2"]], [["p1", "p3"]]]
    assert [batch.queue.wire_link for batch in bench.names if bench.names[batch] in ("p0", "p3")] == [0, 1]


def test_the_partitions_of_each_broker_take_turns_of_their_own():
    bench = Bench((1, 2, 1, 2), max_connections=2)
    fill(bench)
    assert bench.drain_all(2, node=1) == [[["p0"]], [["p2"]]]
    assert bench.drain_all(2, node=2) == [[["p1"]], [["p3"]]]


def test_a_partition_moves_only_when_nothing_of_it_is_under_way(bench):
    fill(bench)
    assert bench.drain_all(1) == [[["p0", "p1", "p2", "p3"]]]
    fill(bench, " again")
    assert bench.drain_all(2) == [[], []]
    bench.answer("p0")
    assert bench.drain_all(2) == [[["p0 again", "p2 again"]], [["p1 again", "p3 again"]]]


def test_it_moves_back_in_the_same_way(bench):
    fill(bench)
    bench.drain_all(2)
    fill(bench, " again")
    assert bench.drain_all(1) == [[]]
    bench.answer("p0")
    assert bench.drain_all(1) == [[["p0 again", "p2 again"]]]
    bench.answer("p0 again")
    assert bench.drain_all(1) == [[]]  # the others are still under way where they were
    bench.answer("p1")
    assert bench.drain_all(1) == [[["p1 again", "p3 again"]]]


def test_what_a_broken_connection_had_goes_where_there_is_one(bench):
    fill(bench)
    bench.drain_all(2)
    fill(bench, " again")
    bench.lose("p1")
    assert bench.drain_all(1) == [[]]
    bench.answer("p0")
    bench.now += 1.0
    assert bench.drain_all(1) == [[["p0 again", "p1", "p2 again", "p3"]]]
    assert bench.numbers("p1") == (0, 1) and bench.numbers("p3") == (0, 1)


def test_each_connection_has_as_much_under_way_as_is_allowed_and_no_more(bench):
    fill(bench)
    bench.drain_all(3)
    assert [bench.sender.nodes[1].in_flight_on(link) for link in range(3)] == [1, 1, 1]
    assert bench.sender.total_in_flight == 3 and bench.sender.connections == 3
    fill(bench, " again")
    assert bench.drain_all(3) == [[], [], []]
    bench.answer("p1")
    assert bench.drain_all(3) == [[], [["p1 again"]], []]


def test_pressure_asks_for_a_connection_and_rest_gives_it_back(bench):
    fill(bench, " 0")
    bench.drain_all(1)
    fill(bench, " 1")
    node = bench.sender.nodes[1]
    for number in range(PRESSED):
        assert node.wanted == 1
        bench.answer(f"p0 {number}")
        fill(bench, f" {number + 2}")
        bench.drain_all(1)
    assert node.wanted == 2
    last = PRESSED + 1
    bench.answer(f"p0 {PRESSED}")
    assert bench.drain_all(2) == [[[f"p0 {last}", f"p2 {last}"]], [[f"p1 {last}", f"p3 {last}"]]]
    bench.answer(f"p0 {last}")
    assert (node.width, bench.sender.connections) == (2, 2)
    bench.answer(f"p1 {last}")
    assert (node.width, node.wanted, node.in_flight, bench.sender.connections) == (1, 1, 0, 0)


def test_throttling_is_the_brokers_and_holds_on_all_connections(bench):
    fill(bench)
    bench.drain_all(2)
    bench.answer("p0", throttle_ms=5000)
    bench.answer("p1", throttle_ms=1)  # which does not end the other
    fill(bench, " again")
    assert bench.drain_all(2) == [[], []]
    bench.now += 5.0
    assert bench.drain_all(2) == [[["p0 again", "p2 again"]], [["p1 again", "p3 again"]]]


def test_without_idempotence_the_order_is_kept_as_well():
    bench = Bench((1, 1), max_connections=2, idempotent=False)
    bench.batch("a", partition=1)
    assert bench.drain_all(1) == [[["a"]]]
    bench.batch("b", partition=1)
    assert bench.drain_all(2) == [[], []]
    bench.answer("a")
    assert bench.drain_all(2) == [[], [["b"]]]


def test_without_idempotence_a_new_leader_is_not_made_to_wait_for_the_old_one():
    bench = Bench((1, 1), max_connections=2, idempotent=False)
    bench.batch("a", partition=1)
    assert bench.drain_all(2) == [[], [["a"]]]
    bench.batch("b", partition=1)
    bench.lead(1, 2)
    assert bench.drain_all(1, node=2) == [[["b"]]]


def test_a_full_connection_does_not_stall_a_broker_for_which_nothing_is_left():
    """`partitioner_availability_timeout_ms` would otherwise keep records from it."""
    bench = Bench((1, 1), max_connections=2, max_in_flight=1, availability_timeout=1.0)
    bench.batch("a", partition=1)
    assert bench.drain_all(2) == [[], [["a"]]]
    bench.batch("b", partition=0)
    bench.sender.begin(bench.now)
    assert [len(bench.sender.drain_all(1, bench.now, link)) for link in (0, 1)] == [1, 0]
    bench.sender.begin(bench.now + 2.0)
    assert bench.accumulator.stalled_nodes() == set()
