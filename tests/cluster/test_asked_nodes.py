"""The order in which nodes are asked a question again."""

from hypothesis import given
from hypothesis import strategies as st

from pyclient.cluster.asked_nodes import AskedNodes


def asked(*addresses):
    nodes = AskedNodes()
    for address in addresses:
        nodes.note(address)
    return nodes


def test_first_question_goes_to_the_least_busy_connected_node():
    assert asked().order({"a": False, "b": True, "c": True}) == ["b", "c", "a"]


def test_repeated_question_goes_to_the_node_asked_last_only_at_the_end():
    nodes = asked("a")
    assert nodes.order({"a": True, "b": False}) == ["b", "a"]
    assert nodes.order({"a": True, "b": False, "c": True}) == ["c", "b", "a"]
    assert nodes.order({"a": True}) == ["a"]


def test_repeated_question_prefers_nodes_that_were_not_asked_lately():
    nodes = asked("a", "b", "c", "a")
    assert nodes.order({"a": True, "c": True, "d": True, "b": True}) == ["d", "b", "c", "a"]


def test_nodes_that_are_gone_count_as_not_asked():
    nodes = asked("a", "b")
    assert nodes.order({"a": True, "c": True}) == ["c", "a"]
    assert nodes.order({"b": True, "c": False}) == ["b", "c"]


@given(st.data(), st.integers(2, 5), st.integers(0, 3))
def test_repeated_questions_reach_each_connected_node_in_turn(data, connected, others):
    candidates = {**{f"c{n}": True for n in range(connected)}, **{f"o{n}": False for n in range(others)}}
    nodes, first = AskedNodes(), []
    for _ in range(3 * connected):
        by_load = data.draw(st.permutations(list(candidates)))
        first.append(nodes.order({address: candidates[address] for address in by_load})[0])
        nodes.note(first[-1])
    for start in range(len(first) - connected + 1):
        assert set(first[start : start + connected]) == {f"c{n}" for n in range(connected)}
