"""Codes about authentication, authorization and delegation tokens."""

from __future__ import annotations

from pyclient.errors.base import BrokerError
from pyclient.types import ErrorAction

__all__ = [
    "ClusterAuthorizationFailed",
    "DelegationTokenAuthDisabled",
    "DelegationTokenAuthorizationFailed",
    "DelegationTokenExpired",
    "DelegationTokenNotFound",
    "DelegationTokenOwnerMismatch",
    "DelegationTokenRequestNotAllowed",
    "GroupAuthorizationFailed",
    "IllegalSaslState",
    "InvalidPrincipalType",
    "PrincipalDeserializationFailure",
    "SaslAuthenticationFailed",
    "SecurityDisabled",
    "TopicAuthorizationFailed",
    "TransactionalIdAuthorizationFailed",
    "UnacceptableCredential",
    "UnsupportedSaslMechanism",
]


class TopicAuthorizationFailed(BrokerError):
    """Not allowed to use this topic."""

    code = 29
    action = ErrorAction.CONFIGURE


class GroupAuthorizationFailed(BrokerError):
    """Not allowed to use this group."""

    code = 30
    action = ErrorAction.CONFIGURE


class ClusterAuthorizationFailed(BrokerError):
    """Not allowed to do this on the cluster."""

    code = 31
    action = ErrorAction.CONFIGURE


class UnsupportedSaslMechanism(BrokerError):
    """The broker does not offer this SASL mechanism."""

    code = 33
    action = ErrorAction.CONFIGURE


class IllegalSaslState(BrokerError):
    """The SASL exchange is in another state."""

    code = 34
    action = ErrorAction.CONFIGURE


class TransactionalIdAuthorizationFailed(BrokerError):
    """Not allowed to use this transactional id."""

    code = 53
    action = ErrorAction.CONFIGURE


class SecurityDisabled(BrokerError):
    """Security features are off on the broker."""

    code = 54
    action = ErrorAction.CONFIGURE


class SaslAuthenticationFailed(BrokerError):
    """SASL authentication failed."""

    code = 58
    action = ErrorAction.CONFIGURE


class DelegationTokenAuthDisabled(BrokerError):
    """Delegation tokens are not enabled."""

    code = 61
    action = ErrorAction.CONFIGURE


class DelegationTokenNotFound(BrokerError):
    """There is no such delegation token."""

    code = 62


class DelegationTokenOwnerMismatch(BrokerError):
    """The principal may not use this delegation token."""

    code = 63


class DelegationTokenRequestNotAllowed(BrokerError):
    """Delegation tokens cannot be managed over this connection."""

    code = 64


class DelegationTokenAuthorizationFailed(BrokerError):
    """Not allowed to use this delegation token."""

    code = 65
    action = ErrorAction.CONFIGURE


class DelegationTokenExpired(BrokerError):
    """The delegation token has expired."""

    code = 66


class InvalidPrincipalType(BrokerError):
    """The principal type is not supported."""

    code = 67


class UnacceptableCredential(BrokerError):
    """The credential is not acceptable."""

    code = 93


class PrincipalDeserializationFailure(BrokerError):
    """The principal could not be read from a forwarded request."""

    code = 97
