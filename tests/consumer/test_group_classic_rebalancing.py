"""A member in the classic protocol rebalances, eagerly and cooperatively: transcripts."""

from __future__ import annotations

from pyclient import errors
from pyclient.consumer.member import State
from pyclient.consumer.member_events import (
    CoordinatorFound,
    RejoinWanted,
    Released,
    SendHeartbeat,
    SendJoin,
    Subscribed,
)
from tests.consumer.classic_script import Script, tp

# ---- rebalancing, eager


def test_eager_rebalance_revokes_everything_before_joining() -> None:
    script = Script().stable("a0 a1")
    script.tick()
    assert script.refused(SendHeartbeat, errors.RebalanceInProgress) == ["REVOKE a0 a1"]
    assert script.member.state is State.REVOKING
    assert script.tick() == ["heartbeat to node 1 as m1, generation 1"]  # while the user's code works
    assert script.refused(SendHeartbeat, errors.RebalanceInProgress) == []
    assert script.member.commit_identity() == (1, "m1")  # the callback may commit
    assert script.step(Released()) == [
        "join node 1 as m1, topics a, owning nothing of generation -1: the group is rebalancing"
    ]
    script.joined(2)
    assert script.synced("a1") == ["APPLY a1, added a1, revoked nothing"]


def test_rebalance_waits_until_the_last_assignment_is_applied() -> None:
    script = Script()
    script.step(Subscribed(("a",)))
    script.step(CoordinatorFound(1))
    script.joined()
    script.synced("a0")
    script.tick()
    assert script.refused(SendHeartbeat, errors.RebalanceInProgress) == []
    assert script.applied() == ["REVOKE a0"]


def test_new_subscription_rebalances() -> None:
    script = Script().stable("a0")
    assert script.step(Subscribed(("a",))) == []
    assert script.step(Subscribed(("b",))) == ["REVOKE a0"]
    assert script.step(Released())[0].startswith("join node 1 as m1, topics b, owning nothing")


def test_changed_subscription_while_joining_joins_once_more() -> None:
    script = Script()
    script.step(Subscribed(("a",)))
    script.step(CoordinatorFound(1))
    assert script.step(Subscribed(("b",))) == []
    script.joined()
    script.synced("")
    assert script.applied() == [
        "join node 1 as m1, topics b, owning nothing of generation -1: the subscription changed"
    ]


def test_leader_rebalances_when_partitions_appear() -> None:
    script = Script().stable("a0")
    assert script.step(RejoinWanted("topic a has 2 partitions now")) == ["REVOKE a0"]
    assert script.step(Released())[0].endswith("topic a has 2 partitions now")


def test_join_reports_the_last_assignment_even_if_revoked() -> None:
    script = Script().stable("a0 a1")
    script.step(RejoinWanted("why not"))
    script.step(Released())
    join = script.last[SendJoin]
    assert (join.owned, join.last, join.last_generation) == ((), tp("a0 a1"), 1)


# ---- rebalancing, cooperative


def test_cooperative_rebalance_keeps_partitions_and_rejoins_after_revoking() -> None:
    script = Script(cooperative=True).stable("a0 a1")
    script.tick()
    assert script.refused(SendHeartbeat, errors.RebalanceInProgress) == [
        "join node 1 as m1, topics a, owning a0 a1 of generation 1: the group is rebalancing"
    ]
    script.joined(2)
    assert script.synced("a0") == ["APPLY a0, added nothing, revoked a1"]
    assert script.applied() == [
        "join node 1 as m1, topics a, owning a0 of generation 2: partitions were given up for others"
    ]
    script.joined(3)
    assert script.synced("a0") == ["APPLY a0, added nothing, revoked nothing"]
    assert script.applied() == []


def test_cooperative_member_revokes_unsubscribed_topics_before_joining() -> None:
    script = Script(cooperative=True)
    script.step(Subscribed(("a", "b")))
    script.step(CoordinatorFound(1))
    script.joined()
    script.synced("a0 b0")
    script.applied()
    assert script.step(Subscribed(("a",))) == ["REVOKE b0"]
    assert script.step(Released()) == [
        "join node 1 as m1, topics a, owning a0 of generation 1: the subscription changed"
    ]
