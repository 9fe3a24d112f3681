"""Codes that any request may get: about the request itself, the broker and its disk."""

from __future__ import annotations

from pyclient.errors.base import BrokerError
from pyclient.types import ErrorAction

__all__ = [
    "BrokerNotAvailable",
    "InvalidRequest",
    "KafkaStorageError",
    "ListenerNotFound",
    "LogDirNotFound",
    "MismatchedEndpointType",
    "NetworkError",
    "RebootstrapRequired",
    "RequestTimedOut",
    "TelemetryTooLarge",
    "ThrottlingQuotaExceeded",
    "UnknownServerError",
    "UnknownSubscriptionId",
    "UnsupportedCompressionType",
    "UnsupportedEndpointType",
    "UnsupportedVersion",
]


class UnknownServerError(BrokerError):
    """The broker failed in a way that has no code of its own; see its log."""

    code = -1


class RequestTimedOut(BrokerError):
    """The broker could not finish within the request's timeout; the operation may still complete."""

    code = 7
    retriable = True


class BrokerNotAvailable(BrokerError):
    """The broker is not available."""

    code = 8


class NetworkError(BrokerError):
    """The broker closed the connection before it responded."""

    code = 13
    retriable = True


class UnsupportedVersion(BrokerError):
    """The broker does not serve this version of the API."""

    code = 35
    action = ErrorAction.CONFIGURE


class InvalidRequest(BrokerError):
    """The request is invalid, or client and broker disagree about its format."""

    code = 42


class KafkaStorageError(BrokerError):
    """The broker's storage failed."""

    code = 56
    retriable = True


class LogDirNotFound(BrokerError):
    """The log directory is not one of the broker's."""

    code = 57


class ListenerNotFound(BrokerError):
    """No listener of that name has an address on the leader."""

    code = 72
    retriable = True


class UnsupportedCompressionType(BrokerError):
    """The broker does not support this compression."""

    code = 76
    action = ErrorAction.CONFIGURE


class ThrottlingQuotaExceeded(BrokerError):
    """The request exceeded a quota and has to wait."""

    code = 89
    retriable = True


class MismatchedEndpointType(BrokerError):
    """The request came in on the wrong kind of listener."""

    code = 114


class UnsupportedEndpointType(BrokerError):
    """The broker does not know this kind of endpoint."""

    code = 115


class UnknownSubscriptionId(BrokerError):
    """The telemetry subscription id is unknown."""

    code = 117


class TelemetryTooLarge(BrokerError):
    """The telemetry payload is too large."""

    code = 118


class RebootstrapRequired(BrokerError):
    """The client has to bootstrap again."""

    code = 129
