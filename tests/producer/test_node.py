"""Node: when a broker gets one more connection, and when it returns to one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyclient.producer.sender import OVERLOADED_RESPONSES, Node


def filled(depth=2, most=3):
    node = Node(depth, most)
    for _ in range(depth):
        node.began(0)
    return node


def drain_round(node, left=10):
    """Handle a response and a drain that leaves so many partitions with more to send."""
    node.ended(0)
    node.began(0)
    node.drained(left)


def overloaded(node, left=10):
    """Return a node that is one drain short of the next connection."""
    for _ in range(OVERLOADED_RESPONSES - 1):
        drain_round(node, left)
    return node


def test_node_adds_a_connection_after_enough_overloaded_responses():
    node = overloaded(filled())
    assert node.wanted == 1
    drain_round(node, 2)
    assert node.wanted == 2 and node.connections == 1  # until it is there


def test_drains_that_leave_nothing_reduce_the_overload():
    node = overloaded(filled())
    drain_round(node, 0)
    drain_round(node)
    assert node.wanted == 1
    drain_round(node)
    assert node.wanted == 2


def test_drains_without_a_response_in_between_count_once():
    """A short burst makes many drains, and a silent broker any number."""
    node = filled()
    for _ in range(3 * OVERLOADED_RESPONSES):
        node.drained(10)
    assert node.wanted == 1


def test_pressure_does_not_grow_unless_a_connection_is_full():
    """The rest waits for something else: a retry backoff, or batches in flight on another connection."""
    node = Node(2, 3)
    node.began(0)
    drain_round(overloaded(node))
    assert node.wanted == 1


def test_connections_are_not_more_than_waiting_partitions():
    node = filled()
    node.set_connections(2)
    drain_round(overloaded(node, left=2), 2)
    assert node.wanted == 2
    drain_round(overloaded(node, left=3), 3)
    assert node.wanted == 3


def test_each_further_connection_takes_as_long_up_to_the_limit():
    node = filled(depth=1)
    for count in (2, 3):
        drain_round(overloaded(node))
        assert node.wanted == count
        node.set_connections(count)
        assert node.wanted == count
    drain_round(overloaded(node))
    assert node.wanted == 3


def test_lost_connection_is_not_replaced_at_once():
    node = filled()
    node.set_connections(3)
    node.set_connections(1)
    assert node.wanted == 1
    drain_round(overloaded(node))
    assert node.wanted == 2


def test_idle_node_returns_to_one_connection():
    node = filled()
    node.set_connections(3)
    overloaded(node)
    node.reset()
    drain_round(node)
    assert (node.connections, node.wanted) == (1, 1)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3))))
def test_each_connection_has_its_own_count(steps):
    node, counts = Node(5, 4), [0] * 4
    for begins, index in steps:
        if begins:
            node.began(index)
            counts[index] += 1
        elif counts[index]:
            node.ended(index)
            counts[index] -= 1
        assert [node.in_flight_on(each) for each in range(4)] == counts
        assert node.in_flight == sum(counts)
        assert [node.is_full(each) for each in range(4)] == [count >= 5 for count in counts]
