"""A broker that does not answer is given up when its partitions have other leaders, and only then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pyclient import Admin, NewTopic, Producer
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.producer.silent_brokers import (
    PATIENCE,
    SHORTEST_WAIT,
    SilentBrokerCheck,
    seconds_until_check,
    silent_connections,
)
from tests.producer.sender_fixture import SenderFixture
from tests.waiting import until


def connection(seconds: float) -> Any:
    return SimpleNamespace(unanswered_for=seconds)


def test_only_silent_brokers_without_their_partitions_are_given_up():
    quick, slow, frozen = connection(0.0), connection(PATIENCE + 1), connection(PATIENCE + 1)
    connections = [(1, quick), (2, slow), (3, frozen)]
    assert silent_connections(connections, {1, 3}.__contains__) == ([(3, frozen)], True)
    assert silent_connections(connections[:1], {1}.__contains__) == ([], False)


def test_next_check_comes_when_a_broker_may_be_silent_and_soon_while_it_is():
    connections = [(1, connection(0.0)), (2, connection(0.75))]
    assert seconds_until_check([], undecided=False) == PATIENCE
    assert seconds_until_check(connections[:1], undecided=False) == PATIENCE
    assert seconds_until_check(connections, undecided=False) == 0.25
    assert seconds_until_check([(1, connection(PATIENCE))], undecided=False) == SHORTEST_WAIT
    assert seconds_until_check([(1, connection(PATIENCE + 9))], undecided=True) == SHORTEST_WAIT


def test_metadata_are_refreshed_twice_a_second_while_a_broker_is_silent():
    now, refreshed = 0.0, []
    loop: Any = SimpleNamespace(time=lambda: now)
    connections = [(1, connection(PATIENCE + 1))]
    check = SilentBrokerCheck(loop, lambda: connections, lambda _node: False, lambda: refreshed.append(now))
    for tenth in range(20):
        now = 100 + tenth / 10
        assert check.check() == SHORTEST_WAIT
    assert refreshed == [100.0, 100.5, 101.0, 101.5]


def test_a_broker_is_left_behind_when_all_partitions_have_other_leaders():
    fixture = SenderFixture(leaders=(1, 1))
    fixture.batch("a0")
    fixture.batch("b1", partition=1)
    fixture.drain()
    is_left_behind = fixture.accumulator.is_left_behind
    for leaders, expected in [((1, 1), False), ((2, 1), False), ((2, -1), False), ((2, 3), True)]:
        fixture.lead(*leaders)
        assert is_left_behind(1) is expected
    assert not is_left_behind(2)


def test_a_new_leader_gets_a_batch_without_a_pause():
    fixture = SenderFixture(leaders=(1,))
    fixture.batch("a0")
    [_names] = fixture.drain()
    fixture.lose("a0")
    assert fixture.drain() == []
    fixture.lead(2)
    assert fixture.drain(node=2) == [["a0"]]


@pytest.mark.slow
def test_records_reach_the_new_leader_while_the_old_one_is_frozen():
    with EmbeddedCluster(3) as cluster:
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("frozen", 1, 3)])
        with Producer(cluster.bootstrap_servers, request_timeout_ms=100_000, delivery_timeout_ms=200_000) as producer:
            producer.send("frozen", b"a").result(60)
            leader = cluster.leader_of("frozen", 0)
            assert leader is not None
            cluster.pause(leader)
            assert producer.send("frozen", b"b").result(60).offset == 1
            until(lambda: cluster.leader_of("frozen", 0) not in (leader, None))
            cluster.resume(leader)
