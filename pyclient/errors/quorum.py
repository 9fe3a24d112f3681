"""Codes about the controllers: their quorum, the registration of brokers, and features."""

from __future__ import annotations

from pyclient.errors.base import BrokerError

__all__ = [
    "BrokerIdNotRegistered",
    "DuplicateBrokerRegistration",
    "DuplicateVoter",
    "FeatureUpdateFailed",
    "InconsistentClusterId",
    "InconsistentVoterSet",
    "InvalidRegistration",
    "InvalidVoterKey",
    "NotController",
    "PositionOutOfRange",
    "SnapshotNotFound",
    "StaleBrokerEpoch",
    "StaleControllerEpoch",
    "UnknownControllerId",
    "VoterNotFound",
]


class StaleControllerEpoch(BrokerError):
    """The controller has moved on to a newer epoch."""

    code = 11


class NotController(BrokerError):
    """The broker asked is not the controller."""

    code = 41
    retriable = True


class StaleBrokerEpoch(BrokerError):
    """The broker has registered again since."""

    code = 77


class InconsistentVoterSet(BrokerError):
    """The voter sets differ."""

    code = 94


class FeatureUpdateFailed(BrokerError):
    """The feature's level cannot be changed."""

    code = 96


class SnapshotNotFound(BrokerError):
    """The snapshot is not there."""

    code = 98


class PositionOutOfRange(BrokerError):
    """The position is outside the snapshot."""

    code = 99


class DuplicateBrokerRegistration(BrokerError):
    """A broker with that id is registered already."""

    code = 101


class BrokerIdNotRegistered(BrokerError):
    """The broker id is not registered."""

    code = 102


class InconsistentClusterId(BrokerError):
    """The cluster id does not match."""

    code = 104


class UnknownControllerId(BrokerError):
    """The controller id is unknown."""

    code = 116


class InvalidRegistration(BrokerError):
    """The registration is not acceptable."""

    code = 119


class InvalidVoterKey(BrokerError):
    """The voter's key does not match."""

    code = 125


class DuplicateVoter(BrokerError):
    """The voter is in the set already."""

    code = 126


class VoterNotFound(BrokerError):
    """The voter is not in the set."""

    code = 127
