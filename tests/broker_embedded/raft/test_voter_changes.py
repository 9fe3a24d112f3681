"""Changes of the voter set in a quorum without faults: what is refused, what is committed, and what a restart finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest

from pyclient import errors
from pyclient.broker_embedded.controller.raft.messages import (
    AddVoter,
    RemoveVoter,
    UpdateVoter,
    VoterChange,
    VoterChangeResponse,
)
from pyclient.broker_embedded.controller.raft.roles import Leader
from pyclient.broker_embedded.controller.raft.voters import Endpoint, ReplicaKey, Voter
from tests.broker_embedded.raft.simulated_node import SimulatedNode
from tests.broker_embedded.raft.simulation import Simulation


def led(seed: int, *, voters: int, observers: int = 0, dynamic: bool = True) -> tuple[Simulation, SimulatedNode]:
    """Return a quorum whose leader has committed a record, and whose observers have caught up."""
    simulation = Simulation(seed, voters=voters, observers=observers, dynamic=dynamic)
    assert simulation.run_while(lambda: simulation.leader() is None, 30)
    simulation.propose()
    proposed = 4 if dynamic else 2  # the leader's own records are before it
    assert simulation.run_while(lambda: any(len(node.applied) < proposed for node in simulation.nodes.values()), 30)
    simulation.run(simulation.now + 1)
    leader = simulation.leader()
    assert leader is not None
    return simulation, leader


def ask(simulation: Simulation, node: SimulatedNode, request: VoterChange) -> VoterChangeResponse:
    """Let a node answer a request for a change."""
    answers: list[VoterChangeResponse] = []
    node.running.step(answers.append, request, simulation.now)
    simulation.settle(node)
    assert simulation.run_while(lambda: not answers, 30)
    return answers[0]


def test_quorum_of_one_grows_to_three_and_shrinks_again() -> None:
    simulation, leader = led(1, voters=1, observers=2)
    simulation.run(simulation.now + 60)  # alone for longer than any timeout of the quorum
    for number in (2, 3):
        assert ask(simulation, leader, AddVoter(Voter(simulation.nodes[number].key), 5.0)).error == 0
        simulation.run(simulation.now + 5)
    assert simulation.leader() is leader
    assert leader.running.state.voters.newest.ids == (1, 2, 3)
    for number in (3, 2):
        assert ask(simulation, leader, RemoveVoter(simulation.nodes[number].key, 5.0)).error == 0
        simulation.run(simulation.now + 5)
    assert {node.running.state.voters.newest.ids for node in simulation.nodes.values()} == {(1,)}
    assert simulation.leader() is leader


def test_new_voter_counts_when_it_is_needed() -> None:
    simulation, leader = led(2, voters=3, observers=2)
    for number in (4, 5):
        assert ask(simulation, leader, AddVoter(Voter(simulation.nodes[number].key), 5.0)).error == 0
    simulation.crash(leader.key.id)
    other = next(number for number in (1, 2, 3) if number != leader.key.id)
    simulation.crash(other)
    assert simulation.run_while(lambda: simulation.leader() is None, 30)  # three of five
    simulation.crash(max(number for number in (1, 2, 3) if number not in (leader.key.id, other)))
    simulation.run(simulation.now + 10)
    assert simulation.leader() is None  # two of five


def test_restart_finds_the_voters_in_log_and_snapshot() -> None:
    simulation, leader = led(3, voters=1, observers=1)
    assert ask(simulation, leader, AddVoter(Voter(simulation.nodes[2].key), 5.0)).error == 0
    simulation.run(simulation.now + 1)
    leader.create_snapshot(delete=True)
    simulation.settle(leader)
    simulation.crash(1)
    simulation.restart(1)
    assert leader.running.state.voters.newest.ids == (1, 2)
    assert leader.running.state.voters.kraft_version == 1
    assert leader.running.state.log.start_offset > leader.running.state.voters.newest_offset


REFUSED: dict[str, tuple[Callable[[Simulation], VoterChange], int, str]] = {
    "a node id that votes already": (
        lambda simulation: AddVoter(Voter(ReplicaKey(2, UUID(int=77))), 5.0),
        errors.DuplicateVoter.code,
        "The voter id for 2-00000000 is already part of the set of voters",
    ),
    "a replica that never fetched": (
        lambda simulation: AddVoter(Voter(ReplicaKey(9, UUID(int=9))), 5.0),
        errors.RequestTimedOut.code,
        "lagging behind: it has not fetched",
    ),
    "a new voter without kraft.version 1": (
        lambda simulation: AddVoter(Voter(simulation.nodes[4].key, max_kraft_version=0), 5.0),
        errors.InvalidRequest.code,
        "kraft.version is 1, and the voter supports only the versions 0 to 0",
    ),
    "a removal of a stranger": (
        lambda simulation: RemoveVoter(simulation.nodes[4].key, 5.0),
        errors.VoterNotFound.code,
        "Cannot remove voter 4-00000000 from the set of voters",
    ),
    "a removal by another directory id": (
        lambda simulation: RemoveVoter(ReplicaKey(2, UUID(int=77)), 5.0),
        errors.VoterNotFound.code,
        "Cannot remove voter 2-00000000",
    ),
    "addresses of a stranger": (
        lambda simulation: UpdateVoter(Voter(simulation.nodes[4].key), simulation.nodes[1].running.state.epoch, 5.0),
        errors.VoterNotFound.code,
        "4-00000000 is not one of the voters",
    ),
    "addresses from an older epoch": (
        lambda simulation: UpdateVoter(Voter(simulation.nodes[1].key), 0, 5.0),
        errors.FencedLeaderEpoch.code,
        "the request is of epoch 0",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_leader_refuses_invalid_voter_changes(what: str) -> None:
    simulation, leader = led(4, voters=3, observers=1)
    request, code, reason = REFUSED[what]
    answer = ask(simulation, leader, request(simulation))
    assert answer.error == code
    assert reason in answer.reason
    assert leader.running.state.voters.newest.ids == (1, 2, 3)


def test_follower_refuses_and_names_the_leader() -> None:
    simulation, leader = led(5, voters=3)
    follower = next(node for node in simulation.nodes.values() if node is not leader)
    answer = ask(simulation, follower, RemoveVoter(leader.key, 5.0))
    assert (answer.error, answer.leader_id) == (errors.NotLeaderOrFollower.code, leader.key.id)


def test_voters_of_the_configuration_cannot_change() -> None:
    simulation, leader = led(6, voters=3, observers=1, dynamic=False)
    for request in (AddVoter(Voter(simulation.nodes[4].key), 5.0), RemoveVoter(ReplicaKey(1), 5.0)):
        answer = ask(simulation, leader, request)
        assert answer.error == errors.UnsupportedVersion.code
        assert "the kraft.version feature is 0" in answer.reason


def test_uncommitted_change_times_out_and_stays_in_force() -> None:
    simulation, leader = led(7, voters=3)
    others = [node for node in simulation.nodes.values() if node is not leader]
    for node in others:
        simulation.crash(node.key.id)
    answer = ask(simulation, leader, RemoveVoter(others[0].key, 0.5))
    assert answer.error == errors.RequestTimedOut.code
    assert isinstance(leader.running.state.role, Leader)
    assert others[0].key not in leader.running.state.voters.newest
    refused = ask(simulation, leader, RemoveVoter(others[1].key, 0.5))
    assert "to commit the latest voter change at" in refused.reason


def test_voter_reports_new_addresses_to_its_leader() -> None:
    simulation, leader = led(8, voters=3)
    moved = (Endpoint("CONTROLLER", "127.0.0.1", 9099),)
    for node in simulation.nodes.values():
        node.running.state.description = replace(Voter(node.key), endpoints=moved)
    follower = next(node for node in simulation.nodes.values() if node is not leader)

    def known(node: SimulatedNode) -> bool:
        voter = node.running.state.voters.newest.voter(follower.key.id)
        return voter is not None and voter.endpoints == moved

    assert simulation.run_while(lambda: not all(map(known, simulation.nodes.values())), 30)
