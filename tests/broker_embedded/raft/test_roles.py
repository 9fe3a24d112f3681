"""The transitions between the roles of a replica, all of them: six to six, in the same, a later or an earlier epoch."""

from __future__ import annotations

from itertools import product

import pytest

from pyclient.broker_embedded.controller.raft.roles import (
    Ballot,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    Unattached,
    check_transition,
)
from pyclient.broker_embedded.controller.raft.voters import ReplicaKey

ME, OTHER, THIRD = ReplicaKey(1), ReplicaKey(2), ReplicaKey(3)

ROLES = ("Unattached", "Prospective", "Candidate", "Follower", "Leader", "Resigned")

# As the comment of Kafka's QuorumState has them: = within the epoch, + in a later epoch.
ALLOWED = """
             Unattached  Prospective  Candidate  Follower  Leader  Resigned
Unattached       =+           =           -         =+        -        -
Prospective      =+           =           +         =+        -        -
Candidate        +            =           -         =+        =        -
Follower         +            =           -         +         -        -
Leader           +            -           -         +         -        =
Resigned         +            -           -         +         -        -
"""


def role(name: str, epoch: int) -> Role:
    """Return a role of node 1, which voted for itself; if it follows, it follows node 2."""
    match name:
        case "Unattached":
            return Unattached(epoch, 0.0, None, ME)
        case "Prospective":
            return Prospective(epoch, 0.0, Ballot(1), None, ME)
        case "Candidate":
            return Candidate(epoch, 0.0, Ballot(1), ME)
        case "Follower":
            return Follower(epoch, 2, 0.0, ME)
        case "Leader":
            return Leader(epoch, 1, ME, 0, 0.0, 0.0)
        case _:
            return Resigned(epoch, 1, 0.0, ME)


def is_allowed(old: Role, new: Role) -> bool:
    try:
        check_transition(old, new)
    except ValueError as error:
        assert "cannot follow" in str(error)
        return False
    return True


def test_roles_change_only_as_the_table_has_it() -> None:
    table = [line.split() for line in ALLOWED.splitlines()[2:]]
    rows = {row[0]: dict(zip(ROLES, row[1:], strict=True)) for row in table}
    for old, new in product(ROLES, ROLES):
        before = role(old, 5)
        after = role(new, 5)
        if isinstance(before, Follower) and isinstance(after, Prospective):
            after.leader_id = 2  # it keeps asking in the epoch whose leader it knows
        marks = ("=" if is_allowed(before, after) else "") + ("+" if is_allowed(before, role(new, 6)) else "")
        assert (marks or "-") == rows[old][new], f"{old} -> {new}"


def test_no_role_returns_to_an_earlier_epoch() -> None:
    for old, new in product(ROLES, ROLES):
        assert not is_allowed(role(old, 5), role(new, 4)), f"{old} -> {new}"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (Follower(5, 2, 0.0), Prospective(5, 0.0, Ballot(1), None)),
        (Follower(5, 2, 0.0), Prospective(5, 0.0, Ballot(1), 3)),
        (Unattached(5, 0.0, 2), Follower(5, 3, 0.0)),
        (Prospective(5, 0.0, Ballot(1), 2), Unattached(5, 0.0)),
    ],
)
def test_leader_of_an_epoch_is_neither_forgotten_nor_replaced(old: Role, new: Role) -> None:
    with pytest.raises(ValueError, match="epoch 5 has the leader 2"):
        check_transition(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (Unattached(5, 0.0, None, OTHER), Unattached(5, 0.0, None, THIRD)),
        (Unattached(5, 0.0, None, OTHER), Unattached(5, 0.0)),
        (Candidate(5, 0.0, Ballot(1), ME), Follower(5, 2, 0.0)),
        (Candidate(5, 0.0, Ballot(1), ME), Prospective(5, 0.0, Ballot(1), None, OTHER)),
    ],
)
def test_vote_of_an_epoch_is_neither_forgotten_nor_changed(old: Role, new: Role) -> None:
    with pytest.raises(ValueError, match=f"the vote of epoch 5 went to {old.voted}"):
        check_transition(old, new)


def test_later_epoch_begins_without_leader_and_vote() -> None:
    check_transition(Follower(5, 2, 0.0, OTHER), Unattached(6, 0.0))
    check_transition(Follower(5, 2, 0.0, OTHER), Follower(6, 3, 0.0))
    check_transition(Candidate(5, 0.0, Ballot(1), ME), Unattached(6, 0.0, None, THIRD))
