"""Which batches the sender lets go, and how it tries again, answer by answer, with a clock that is a number."""

from __future__ import annotations

import pytest

from pyclient import errors
from pyclient.backoff import Backoff
from tests.producer.sender_bench import NOT_LEADER, Bench


def test_the_first_batch_of_a_partition_goes_alone_and_then_up_to_five():
    bench = Bench()
    for number in range(8):
        bench.batch(f"b{number}")
    assert bench.drain() == [["b0"]]
    bench.answer("b0")
    assert bench.drain() == [["b1"], ["b2"], ["b3"], ["b4"], ["b5"]]
    assert [bench.numbers(f"b{number}") for number in range(6)] == [(0, number) for number in range(6)]


def test_a_broker_without_state_cannot_take_the_second_batch_before_the_first():
    """It takes any first sequence: were both on their way and the first refused, they would change places."""
    bench = Bench()
    bench.batch("a")
    bench.batch("b")
    assert bench.drain() == [["a"]]
    bench.answer("a", errors.NotEnoughReplicas.code)
    assert bench.drain() == [] and bench.drain(seconds=1.0) == [["a"]]
    bench.answer("a")
    assert bench.drain() == [["b"]]


def test_each_partition_has_one_batch_in_a_request_and_requests_are_bounded():
    bench = Bench(leaders=(1, 1, 1), max_request_size=2100)
    for partition in range(3):
        bench.batch(f"p{partition}", b"x" * 900, partition=partition)
    assert bench.drain() == [["p0", "p1"], ["p2"]]


def test_partitions_take_turns():
    bench = Bench(leaders=(1, 1), max_in_flight=1, idempotent=False, max_request_size=1000)
    for number in range(2):
        for partition in range(2):
            bench.batch(f"p{partition}{number}", b"x" * 900, partition=partition)
    order = []
    for _ in range(4):
        ((name,),) = bench.drain()
        order.append(name)
        bench.answer(name)
    assert order == ["p00", "p10", "p01", "p11"]


def test_a_moved_leader_is_followed_in_order_and_without_new_numbers():
    bench = Bench()
    bench.warm()
    for name in "abc":
        bench.batch(name)
    assert bench.drain() == [["a"], ["b"], ["c"]]
    bench.answer("a", NOT_LEADER)
    assert bench.sender.refresh_wanted
    bench.lead(2)
    assert bench.drain(2, seconds=1.0) == []  # two are still at the old leader
    bench.answer("b", NOT_LEADER)
    bench.answer("c", NOT_LEADER)
    assert bench.drain(2) == [["a"]]  # b and c back off, and a goes alone
    bench.answer("a")
    assert bench.drain(2, seconds=1.0) == [["b"], ["c"]]
    assert [bench.numbers(name) for name in "abc"] == [(0, 1), (0, 2), (0, 3)]


def test_a_lost_connection_is_retried_one_by_one_and_then_in_a_row():
    bench = Bench()
    bench.warm()
    for name in "abcd":
        bench.batch(name)
    bench.drain()
    for name in "abcd":
        bench.lose(name)
    assert bench.drain(seconds=1.0) == [["a"]]
    bench.answer("a")
    assert bench.drain() == [["b"], ["c"], ["d"]]


def test_a_batch_is_due_again_after_a_pause_that_doubles_up_to_the_maximum():
    """Spread by a fifth, and the maximum is one for what comes of that, too."""
    bench = Bench(backoff=Backoff(0.1, 0.3))
    bench.batch("a")
    bench.drain()
    pauses = []
    for _ in range(60):
        bench.answer("a", errors.NotEnoughReplicas.code)
        assert bench.drain() == []
        due = bench.sender.next_look()
        pauses.append(due - bench.now)
        assert bench.drain(seconds=pauses[-1] * 0.99) == []
        bench.now = due
        assert bench.drain() == [["a"]]
    assert 0.08 - 1e-9 <= pauses[0] <= 0.12 + 1e-9 and 0.16 - 1e-9 <= pauses[1] <= 0.24 + 1e-9
    assert 0.24 - 1e-9 <= min(pauses[2:]) < 0.26
    assert max(pauses) == pytest.approx(0.3)
