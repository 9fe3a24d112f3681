"""Groups of many members: what one request costs does not grow with their number, and no deadline is missed for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pyclient.broker_embedded.groups.classic import next_deadline, next_deadline_of, step
from pyclient.broker_embedded.groups.consumer.patterns import resolve
from pyclient.broker_embedded.groups.consumer.topics import KnownTopics, TopicInfo
from pyclient.broker_embedded.groups.events import Join, Protocol, Store, Stored, Sync
from pyclient.broker_embedded.groups.state import ClassicGroup
from pyclient.protocol.fields import ZERO_UUID


def calls_of(work: Callable[[], object]) -> int:
    """How many functions are called or resumed."""
    calls = 0

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def joining(number: int, **options: Any) -> Join:
    return Join(
        reply=f"join {number}",
        member_id="",
        fresh_id=f"member {number}",
        protocol_type="consumer",
        protocols=(Protocol("range", b""),),
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        **options,
    )


def test_a_join_costs_the_same_in_a_large_group() -> None:
    group = ClassicGroup("g", initial_delay_ms=3000)

    def cost(number: int) -> int:
        event = joining(number)
        return calls_of(lambda: (step(group, event, 0.0), next_deadline_of(group, event)))

    costs = [cost(number) for number in range(1000)]
    assert group.joining == len(group.members) == 1000
    assert max(costs[500:]) <= max(costs[1:50]) + 5


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["join", "again", "sync", "later", "leave"]), st.integers(0, 4)), max_size=30)
)
def test_no_deadline_is_missed_and_those_who_join_are_counted(moves: list[tuple[str, int]]) -> None:
    """The timer is set by the deadlines of the one member, as long as the state stays the same."""
    group, now, timer = ClassicGroup("g", initial_delay_ms=1000), 0.0, None
    for move, number in moves:
        before, member_id = group.state, f"member {number}"
        if move == "later":
            now += number
            continue
        if move == "leave":
            if member_id in group.members:
                group.remove(member_id)
            continue
        event: Join | Sync = joining(number)
        if move == "again" and member_id in group.members:
            event = Join(**{name: getattr(event, name) for name in event.__slots__} | {"member_id": member_id})
        elif move == "join" and member_id in group.members:
            continue
        elif move == "sync":
            event = Sync(reply=f"sync {number}", member_id=member_id, generation=group.generation, assignments={})
        todo = step(group, event, now)
        while todo:
            action = todo.pop(0)
            if isinstance(action, Store):
                todo += step(group, Stored(action.serial), now)
        found = next_deadline_of(group, event) if group.state is before else next_deadline(group)
        timer = found if timer is None or (found is not None and found < timer) else timer
        due = next_deadline(group)
        assert group.joining == sum(member.join_reply is not None for member in group.members.values())
        assert due is None or (timer is not None and timer <= due)


def test_a_pattern_that_takes_too_much_work_matches_nothing() -> None:
    names = [f"{number:03d}{'ab' * 120}" for number in range(200)]
    topics = KnownTopics({name: TopicInfo(ZERO_UUID, 1) for name in names}, version=7)
    heavy = "(a?b?[0-9]?){400}x"
    calls = calls_of(lambda: resolve(heavy, topics, 0))
    assert calls < 2_000_000
    assert resolve(heavy, topics, 0).topics == ()
    assert resolve("0.*b", topics, 0).topics == tuple(names[:100])  # others are not concerned
    assert len(resolve("[0-9]+(ab)*", topics, 0).topics) == 200
