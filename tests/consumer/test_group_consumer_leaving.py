"""A member in the consumer protocol (KIP-848) is removed, fenced, or leaves: transcripts."""

from __future__ import annotations

import pytest

from pyclient import errors
from pyclient.consumer.member import State
from pyclient.consumer.member_events import (
    ConsumerHeartbeatAnswered,
    CoordinatorFound,
    Departing,
    InstanceReleased,
    LossAcknowledged,
    Polled,
    Refused,
    ReleaseInstance,
    SendConsumerHeartbeat,
    Subscribed,
    Ticked,
    TopicsResolved,
)
from tests.consumer.consumer_script import INTERVAL, JOIN, RELEASE, Script, ids

# ---- lost


@pytest.mark.parametrize("error", [errors.FencedMemberEpoch, errors.UnknownMemberId])
def test_removed_member_loses_its_partitions_and_rejoins_under_its_id(
    error: type[errors.KafkaError],
) -> None:
    script = Script().stable("a0")
    script.tick()
    assert script.refused(SendConsumerHeartbeat, error) == ["LOST a0"]
    assert script.tick() == [JOIN]
    script.heartbeat_answered(9, "a1")
    with pytest.raises(errors.CommitFailed, match="member epoch 9"):
        script.member.commit_identity()  # the user may still be at work on what is lost
    script.step(LossAcknowledged())
    assert script.member.commit_identity() == (9, "m")


def test_overdue_member_leaves_after_a_late_join_response() -> None:
    script = Script().joining()
    script.now = 300.0
    assert script.heartbeat_answered(1, "a0") == [
        "leave: max_poll_interval_ms passed without a poll",
        "FAIL PollIntervalExceeded",
    ]


def test_overdue_poll_while_revoking_leaves_too() -> None:
    script = Script().stable("a0 a1")
    script.tick()
    script.heartbeat_answered(1, "a0")
    script.now = 300.0
    assert script.step(Ticked())[1:] == ["LOST a0 a1", "FAIL PollIntervalExceeded"]
    assert script.applied() == []


# ---- a static member that owns its instance id already


def refused_as_owner() -> Script:
    """Return a static member whose second join was refused: the answer to its first one was lost."""
    script = Script(instance_id="i").joining()
    assert script.refused(SendConsumerHeartbeat, errors.ConnectionFailed) == []
    assert script.tick() == ["find coordinator"]
    assert script.step(CoordinatorFound(1)) == [JOIN]
    assert script.refused(SendConsumerHeartbeat, errors.UnreleasedInstanceId) == [RELEASE]
    return script


def test_static_member_releases_its_instance_id_after_a_lost_answer() -> None:
    script = refused_as_owner()
    assert script.member.state is State.JOINING
    assert script.released() == [JOIN]
    script.heartbeat_answered(3, "a0")
    assert script.resolved("a") == ["APPLY a0, added a0, revoked nothing"]
    script.applied()
    assert script.member.commit_identity() == (3, "m")


def test_fenced_static_member_releases_its_instance_id() -> None:
    script = Script(instance_id="i").stable("a0")
    script.tick()
    assert script.refused(SendConsumerHeartbeat, errors.FencedMemberEpoch) == ["LOST a0"]
    assert script.tick() == [JOIN]
    assert script.refused(SendConsumerHeartbeat, errors.UnreleasedInstanceId) == [RELEASE]
    assert script.released() == [JOIN]


def test_refusal_of_a_joined_member_as_owner_loses_its_partitions_first() -> None:
    """Kafka refuses only joins for that reason. A release alone would leave partitions that no heartbeat renews."""
    script = Script(instance_id="i").stable("a0")
    script.tick()
    lost = script.refused(SendConsumerHeartbeat, errors.UnreleasedInstanceId)
    assert lost == ["LOST a0", "FAIL UnreleasedInstanceId"]
    assert script.step(Polled(), after=1.0) == [JOIN]
    assert script.refused(SendConsumerHeartbeat, errors.UnreleasedInstanceId) == [RELEASE]


def test_instance_id_of_another_consumer_is_an_error_at_once() -> None:
    script = Script(instance_id="i").joining()
    assert script.refused(SendConsumerHeartbeat, errors.UnreleasedInstanceId) == ["FAIL UnreleasedInstanceId"]
    assert script.step(Polled(), after=1.0) == [JOIN]
    assert script.refused(SendConsumerHeartbeat, errors.UnreleasedInstanceId) == ["FAIL UnreleasedInstanceId"]


def test_instance_id_that_another_consumer_took_meanwhile_is_an_error() -> None:
    script = refused_as_owner()
    assert script.refused(ReleaseInstance, errors.FencedInstanceId) == ["FAIL UnreleasedInstanceId"]
    assert script.step(Polled(), after=1.0) == [JOIN]
    assert script.refused(SendConsumerHeartbeat, errors.UnreleasedInstanceId) == ["FAIL UnreleasedInstanceId"]


def test_released_instance_id_that_is_refused_again_is_an_error() -> None:
    script = refused_as_owner()
    assert script.released() == [JOIN]
    assert script.refused(SendConsumerHeartbeat, errors.UnreleasedInstanceId) == ["FAIL UnreleasedInstanceId"]


@pytest.mark.parametrize("error", [errors.UnknownMemberId, errors.GroupIdNotFound])
def test_member_that_expired_before_its_release_joins(error: type[errors.KafkaError]) -> None:
    script = refused_as_owner()
    assert script.refused(ReleaseInstance, error) == [JOIN]


def test_lost_answer_to_a_release_leads_to_another_join() -> None:
    script = refused_as_owner()
    assert script.refused(ReleaseInstance, errors.ConnectionFailed) == []
    assert script.tick() == ["find coordinator"]
    assert script.step(CoordinatorFound(1)) == [JOIN]
    assert script.refused(SendConsumerHeartbeat, errors.UnreleasedInstanceId) == [RELEASE]
    assert script.refused(ReleaseInstance, errors.CoordinatorLoadInProgress) == []
    assert script.tick() == [JOIN]


def test_refused_release_is_raised_if_it_cannot_be_retried() -> None:
    script = refused_as_owner()
    assert script.refused(ReleaseInstance, errors.GroupAuthorizationFailed) == ["FAIL GroupAuthorizationFailed"]
    assert script.member.state is State.FAILED


def test_late_answer_to_a_release_is_ignored() -> None:
    script = refused_as_owner()
    late = script.last[ReleaseInstance].attempt
    script.step(Departing("closed"))
    assert script.step(InstanceReleased(late)) == []
    assert script.step(Refused(late, errors.FencedInstanceId("late"))) == []
    assert script.member.state is State.IDLE


def test_static_member_that_left_while_joining_may_own_its_instance_id() -> None:
    script = Script(instance_id="i").joining()
    assert script.step(Departing("closed")) == ["leave: closed"]
    assert script.step(Subscribed(("a",))) == [JOIN]
    assert script.refused(SendConsumerHeartbeat, errors.UnreleasedInstanceId) == [RELEASE]


# ---- leaving


def test_leaving_while_joining_sends_a_leave_heartbeat() -> None:
    script = Script().joining()
    attempt = script.last[SendConsumerHeartbeat].attempt
    assert script.step(Departing("closed")) == ["leave: closed"]
    assert script.step(ConsumerHeartbeatAnswered(attempt, 1, INTERVAL, ids("a0"))) == []
    assert script.member.state is State.IDLE


def test_member_that_never_joined_leaves_without_a_request() -> None:
    script = Script()
    script.step(Subscribed(("a",)))
    assert script.step(Departing("closed")) == []


def test_responses_of_earlier_attempts_are_ignored() -> None:
    script = Script().stable("a0")
    stale = script.last[SendConsumerHeartbeat].attempt
    script.tick()
    assert script.step(ConsumerHeartbeatAnswered(stale, 9, INTERVAL, ids("a5"))) == []
    assert script.step(Refused(stale, errors.FencedMemberEpoch("late"))) == []
    assert script.step(TopicsResolved(stale, {})) == []
    assert script.member.generation == 1
