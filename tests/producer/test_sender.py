"""Sender: which batches it sends, and how it retries, response by response, with a fake clock."""

from __future__ import annotations

import pytest

from pyclient import errors
from pyclient.backoff import Backoff
from tests.producer.sender_fixture import NOT_LEADER, SenderFixture


def test_first_batch_of_a_partition_is_sent_alone_and_then_up_to_five():
    fixture = SenderFixture()
    for number in range(8):
        fixture.batch(f"b{number}")
    assert fixture.drain() == [["b0"]]
    fixture.answer("b0")
    assert fixture.drain() == [["b1"], ["b2"], ["b3"], ["b4"], ["b5"]]
    assert [fixture.numbers(f"b{number}") for number in range(6)] == [(0, number) for number in range(6)]


def test_broker_without_state_never_gets_the_second_batch_first():
    """It takes any first sequence: were both on their way and the first refused, they would change places."""
    fixture = SenderFixture()
    fixture.batch("a")
    fixture.batch("b")
    assert fixture.drain() == [["a"]]
    fixture.answer("a", errors.NotEnoughReplicas.code)
    assert fixture.drain() == [] and fixture.drain(seconds=1.0) == [["a"]]
    fixture.answer("a")
    assert fixture.drain() == [["b"]]


def test_requests_have_one_batch_per_partition_and_bounded_size():
    fixture = SenderFixture(leaders=(1, 1, 1), max_request_size=2100)
    for partition in range(3):
        fixture.batch(f"p{partition}", b"x" * 900, partition=partition)
    assert fixture.drain() == [["p0", "p1"], ["p2"]]


def test_partitions_take_turns():
    fixture = SenderFixture(leaders=(1, 1), max_in_flight=1, idempotent=False, max_request_size=1000)
    for number in range(2):
        for partition in range(2):
            fixture.batch(f"p{partition}{number}", b"x" * 900, partition=partition)
    order = []
    for _ in range(4):
        ((name,),) = fixture.drain()
        order.append(name)
        fixture.answer(name)
    assert order == ["p00", "p10", "p01", "p11"]


def test_a_moved_leader_is_followed_in_order_and_without_new_numbers():
    fixture = SenderFixture()
    fixture.warm()
    for name in "abc":
        fixture.batch(name)
    assert fixture.drain() == [["a"], ["b"], ["c"]]
    fixture.answer("a", NOT_LEADER)
    assert fixture.sender.refresh_wanted
    fixture.lead(2)
    assert fixture.drain(2, seconds=1.0) == []  # two are still at the old leader
    fixture.answer("b", NOT_LEADER)
    fixture.answer("c", NOT_LEADER)
    assert fixture.drain(2) == [["a"]]  # b and c back off, and a goes alone
    fixture.answer("a")
    assert fixture.drain(2, seconds=1.0) == [["b"], ["c"]]
    assert [fixture.numbers(name) for name in "abc"] == [(0, 1), (0, 2), (0, 3)]


def test_lost_batches_are_retried_one_by_one_and_then_pipelined():
    fixture = SenderFixture()
    fixture.warm()
    for name in "abcd":
        fixture.batch(name)
    fixture.drain()
    for name in "abcd":
        fixture.lose(name)
    assert fixture.drain(seconds=1.0) == [["a"]]
    fixture.answer("a")
    assert fixture.drain() == [["b"], ["c"], ["d"]]


def test_a_batch_is_due_again_after_a_pause_that_doubles_up_to_the_maximum():
    """Spread by a fifth, and the maximum is one for what comes of that, too."""
    fixture = SenderFixture(backoff=Backoff(0.1, 0.3))
    fixture.batch("a")
    fixture.drain()
    pauses = []
    for _ in range(60):
        fixture.answer("a", errors.NotEnoughReplicas.code)
        assert fixture.drain() == []
        due = fixture.sender.next_round()
        pauses.append(due - fixture.now)
        assert fixture.drain(seconds=pauses[-1] * 0.99) == []
        fixture.now = due
        assert fixture.drain() == [["a"]]
    assert 0.08 - 1e-9 <= pauses[0] <= 0.12 + 1e-9 and 0.16 - 1e-9 <= pauses[1] <= 0.24 + 1e-9
    assert 0.24 - 1e-9 <= min(pauses[2:]) < 0.26
    assert max(pauses) == pytest.approx(0.3)
