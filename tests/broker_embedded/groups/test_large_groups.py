"""Groups of many members: the cost of a request does not grow with their number, and no deadline is missed."""

from __future__ import annotations

import gc
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


def count_calls(work: Callable[[], object]) -> int:
    """Return the number of functions called or resumed, without finalizers that a garbage collection would call."""
    calls = 0

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    gc.disable()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls


def join_event(number: int, **options: Any) -> Join:
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


def test_join_cost_is_independent_of_group_size() -> None:
    group = ClassicGroup("g", initial_delay_ms=3000)

    def cost(number: int) -> int:
        event = join_event(number)
        return count_calls(lambda: (step(group, event, 0.0), next_deadline_of(group, event)))

    costs = [cost(number) for number in range(1000)]
    assert group.joining == len(group.members) == 1000
    assert max(costs[500:]) <= max(costs[1:50]) + 5


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["join", "again", "sync", "later", "leave"]), st.integers(0, 4)), max_size=30)
)
def test_timer_is_never_later_than_next_deadline(operations: list[tuple[str, int]]) -> None:
    """While the state is unchanged, only the deadlines of the requesting member are examined."""
    group, now, timer = ClassicGroup("g", initial_delay_ms=1000), 0.0, None
    for operation, number in operations:
        before, member_id = group.state, f"member {number}"
        if operation == "later":
            now += number
            continue
        if operation == "leave":
            if member_id in group.members:
                group.remove(member_id)
            continue
        event: Join | Sync = join_event(number)
        if operation == "again" and member_id in group.members:
            event = Join(**{name: getattr(event, name) for name in event.__slots__} | {"member_id": member_id})
        elif operation == "join" and member_id in group.members:
            continue
        elif operation == "sync":
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


def test_expensive_pattern_matches_nothing() -> None:
    names = [f"{number:03d}{'ab' * 120}" for number in range(200)]
    topics = KnownTopics({name: TopicInfo(ZERO_UUID, 1) for name in names}, version=7)
    heavy = "(a?b?[0-9]?){400}x"
    calls = count_calls(lambda: resolve(heavy, topics, 0))
    assert calls < 2_000_000
    assert resolve(heavy, topics, 0).topics == ()
    assert resolve("0.*b", topics, 0).topics == tuple(names[:100])  # other patterns are not affected
    assert len(resolve("[0-9]+(ab)*", topics, 0).topics) == 200
