"""Vote requests that no replica of Kafka would send, or that come too late: they are refused and change nothing."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from pyclient import errors
from pyclient.broker_embedded.controller.raft.election_state import ElectionState
from pyclient.broker_embedded.controller.raft.messages import Answer, Vote, VoteResponse
from pyclient.broker_embedded.controller.raft.quorum_state import LocalReplica
from pyclient.broker_embedded.controller.raft.raft import RaftReplica
from pyclient.broker_embedded.controller.raft.replica_log import OffsetAndEpoch, ReplicaLog
from pyclient.broker_embedded.controller.raft.voters import ReplicaKey, VoterSet, VoterSetHistory

ME, OTHER = ReplicaKey(1), ReplicaKey(2)


def replica(*, epoch: int = 7, log_epoch: int = 5) -> RaftReplica:
    """Return a voter in `epoch` whose log has three records of `log_epoch`."""
    log = ReplicaLog(end_offset=3, epochs=[(log_epoch, 0)])
    voters = VoterSetHistory(VoterSet.of(1, 2, 3))
    raft = RaftReplica(LocalReplica(ME), log, voters, ElectionState(epoch), Random(1))
    raft.start(0.0)
    raft.ready()
    return raft


def answer(raft: RaftReplica, request: Vote) -> object:
    raft.step("asked", request, 0.0)
    return next(effect.response for effect in raft.ready() if isinstance(effect, Answer))


def vote(epoch: int, last: OffsetAndEpoch, *, pre_vote: bool = False, voter: ReplicaKey = ME) -> Vote:
    return Vote(voter, OTHER, epoch, last, pre_vote)


@pytest.mark.parametrize(
    "request_",
    [
        vote(8, OffsetAndEpoch(9, 8)),  # a record of the epoch for which the candidate asks
        vote(8, OffsetAndEpoch(9, 9)),
        vote(7, OffsetAndEpoch(9, 8), pre_vote=True),
        vote(6, OffsetAndEpoch(9, 6)),  # late, and wrong at any time
        vote(8, OffsetAndEpoch(-1, 5)),
        vote(8, OffsetAndEpoch(9, -1)),
        vote(-1, OffsetAndEpoch(0, 0), pre_vote=True),
        vote(0, OffsetAndEpoch(0, 0)),
    ],
)
def test_vote_with_an_impossible_log_is_invalid(request_: Vote) -> None:
    raft = replica()
    assert answer(raft, request_) == VoteResponse(errors.InvalidRequest.code, 7, None, granted=False)
    assert (raft.state.epoch, raft.state.role.voted) == (7, None)


def test_vote_for_the_epoch_after_the_last_record_is_granted() -> None:
    raft = replica()
    assert answer(raft, vote(8, OffsetAndEpoch(9, 7))) == VoteResponse(0, 8, None, granted=True)
    assert raft.state.role.voted == OTHER


def test_pre_vote_in_the_epoch_of_the_last_record_is_granted() -> None:
    raft = replica()
    assert answer(raft, vote(7, OffsetAndEpoch(9, 7), pre_vote=True)) == VoteResponse(0, 7, None, granted=True)
    assert (raft.state.epoch, raft.state.role.voted) == (7, None)


def test_vote_of_an_earlier_epoch_is_fenced() -> None:
    raft = replica()
    fenced = VoteResponse(errors.FencedLeaderEpoch.code, 7, None, granted=False)
    assert answer(raft, vote(6, OffsetAndEpoch(9, 5))) == fenced


def test_vote_for_another_replica_is_refused() -> None:
    raft = replica()
    for voter in (ReplicaKey(3), ReplicaKey(1, UUID(int=9))):
        response = answer(raft, vote(8, OffsetAndEpoch(9, 5), voter=voter))
        assert response == VoteResponse(errors.InvalidVoterKey.code, 7, None, granted=False)
