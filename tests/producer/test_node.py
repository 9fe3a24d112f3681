"""When a broker gets one more connection, and when it is back to one: decided by counts alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyclient.producer.node import PRESSED, Node


def filled(depth=2, most=3):
    node = Node(depth, most)
    for _ in range(depth):
        node.began(0)
    return node


def look(node, left=10):
    """An answer, what it makes room for goes out, and so many partitions are left behind."""
    node.ended(0)
    node.began(0)
    node.looked(left)


def pressed(node, left=10):
    """One look fewer than it takes."""
    for _ in range(PRESSED - 1):
        look(node, left)
    return node


def test_one_more_is_wanted_once_enough_answers_were_not_enough():
    node = pressed(filled())
    assert node.wanted == 1
    look(node, 2)
    assert node.wanted == 2 and node.width == 1  # until it is there


def test_looks_that_leave_nothing_behind_count_against_it():
    node = pressed(filled())
    look(node, 0)
    look(node)
    assert node.wanted == 1
    look(node)
    assert node.wanted == 2


def test_looks_without_an_answer_in_between_are_one():
    """A short burst makes many of them, and a broker that does not answer at all as many as one likes."""
    node = filled()
    for _ in range(3 * PRESSED):
        node.looked(10)
    assert node.wanted == 1


def test_nothing_is_gained_where_no_connection_is_full():
    """What is left waits for something else: a pause before it is tried again, or what is under way elsewhere."""
    node = Node(2, 3)
    node.began(0)
    look(pressed(node))
    assert node.wanted == 1


def test_more_connections_than_partitions_are_of_no_use():
    node = filled()
    node.spread(2)
    look(pressed(node, left=2), 2)
    assert node.wanted == 2
    look(pressed(node, left=3), 3)
    assert node.wanted == 3


def test_each_further_one_takes_as_long_and_there_is_a_limit():
    node = filled(depth=1)
    for width in (2, 3):
        look(pressed(node))
        assert node.wanted == width
        node.spread(width)
        assert node.wanted == width
    look(pressed(node))
    assert node.wanted == 3


def test_a_connection_that_is_gone_is_not_missed_at_once():
    node = filled()
    node.spread(3)
    node.spread(1)
    assert node.wanted == 1
    look(pressed(node))
    assert node.wanted == 2


def test_at_rest_one_connection_will_do():
    node = filled()
    node.spread(3)
    pressed(node)
    node.rested()
    look(node)
    assert (node.width, node.wanted) == (1, 1)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3))))
def test_each_connection_has_its_own_count(steps):
    node, counts = Node(5, 4), [0] * 4
    for begins, link in steps:
        if begins:
            node.began(link)
            counts[link] += 1
        elif counts[link]:
            node.ended(link)
            counts[link] -= 1
        assert [node.in_flight_on(each) for each in range(4)] == counts
        assert node.in_flight == sum(counts)
        assert [node.is_full(each) for each in range(4)] == [count >= 5 for count in counts]
