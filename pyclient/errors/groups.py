"""Codes about groups: consumer, share and streams groups, and the offsets they commit."""

from __future__ import annotations

from pyclient.errors.base import BrokerError
from pyclient.types import ErrorAction

__all__ = [
    "CoordinatorLoadInProgress",
    "CoordinatorNotAvailable",
    "FencedInstanceId",
    "FencedMemberEpoch",
    "FencedStateEpoch",
    "GroupIdNotFound",
    "GroupMaxSizeReached",
    "GroupSubscribedToTopic",
    "IllegalGeneration",
    "InconsistentGroupProtocol",
    "InvalidCommitOffsetSize",
    "InvalidGroupId",
    "InvalidRecordState",
    "InvalidRegularExpression",
    "InvalidSessionTimeout",
    "InvalidShareSessionEpoch",
    "MemberIdRequired",
    "NonEmptyGroup",
    "NotCoordinator",
    "OffsetMetadataTooLarge",
    "RebalanceInProgress",
    "ShareSessionLimitReached",
    "ShareSessionNotFound",
    "StaleMemberEpoch",
    "StreamsInvalidTopology",
    "StreamsInvalidTopologyEpoch",
    "StreamsTopologyFenced",
    "UnknownMemberId",
    "UnreleasedInstanceId",
    "UnsupportedAssignor",
]


class OffsetMetadataTooLarge(BrokerError):
    """The metadata string committed with an offset is larger than the broker allows."""

    code = 12


class CoordinatorLoadInProgress(BrokerError):
    """The coordinator is still reading its state."""

    code = 14
    retriable = True


class CoordinatorNotAvailable(BrokerError):
    """No coordinator is available at the moment."""

    code = 15
    retriable = True


class NotCoordinator(BrokerError):
    """The broker asked is not the coordinator any more."""

    code = 16
    retriable = True


class IllegalGeneration(BrokerError):
    """The group has moved on to another generation."""

    code = 22
    action = ErrorAction.RESTART


class InconsistentGroupProtocol(BrokerError):
    """No assignment protocol is supported by every member of the group."""

    code = 23


class InvalidGroupId(BrokerError):
    """The group id is not allowed."""

    code = 24


class UnknownMemberId(BrokerError):
    """The coordinator does not know this member."""

    code = 25
    action = ErrorAction.RESTART


class InvalidSessionTimeout(BrokerError):
    """The session timeout is outside the range the broker allows."""

    code = 26


class RebalanceInProgress(BrokerError):
    """The group is rebalancing; the member has to join again."""

    code = 27


class InvalidCommitOffsetSize(BrokerError):
    """The offset commit is too large."""

    code = 28


class NonEmptyGroup(BrokerError):
    """The group still has members."""

    code = 68


class GroupIdNotFound(BrokerError):
    """There is no such group."""

    code = 69


class MemberIdRequired(BrokerError):
    """The member has to join again with the id it was given."""

    code = 79


class GroupMaxSizeReached(BrokerError):
    """The group has as many members as it may have."""

    code = 81


class FencedInstanceId(BrokerError):
    """Another member uses the same group.instance.id now."""

    code = 82
    action = ErrorAction.RESTART


class GroupSubscribedToTopic(BrokerError):
    """The group is subscribed to the topic."""

    code = 86


class FencedMemberEpoch(BrokerError):
    """The coordinator has fenced the member's epoch."""

    code = 110
    action = ErrorAction.RESTART


class UnreleasedInstanceId(BrokerError):
    """The group.instance.id is still in use by another member."""

    code = 111


class UnsupportedAssignor(BrokerError):
    """The group does not offer this assignor."""

    code = 112


class StaleMemberEpoch(BrokerError):
    """The member's epoch is stale; retry with the new one."""

    code = 113
    retriable = True


class InvalidRecordState(BrokerError):
    """The record's share state does not allow this."""

    code = 121


class ShareSessionNotFound(BrokerError):
    """There is no such share session."""

    code = 122
    retriable = True


class InvalidShareSessionEpoch(BrokerError):
    """The share session has another epoch."""

    code = 123
    retriable = True


class FencedStateEpoch(BrokerError):
    """The share coordinator has fenced the state's epoch."""

    code = 124


class InvalidRegularExpression(BrokerError):
    """The regular expression is not valid."""

    code = 128


class StreamsInvalidTopology(BrokerError):
    """The streams topology is not valid."""

    code = 130


class StreamsInvalidTopologyEpoch(BrokerError):
    """The streams topology's epoch is not valid."""

    code = 131


class StreamsTopologyFenced(BrokerError):
    """The streams topology is fenced."""

    code = 132


class ShareSessionLimitReached(BrokerError):
    """The broker has as many share sessions as it may have."""

    code = 133
    retriable = True
