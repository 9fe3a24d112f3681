"""The base classes of all errors: those a broker responds with, and those the client detects."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from pyclient.types import ErrorAction

__all__ = [
    "BrokerError",
    "ClientError",
    "KafkaError",
    "UnknownErrorCode",
]


class KafkaError(Exception):
    """The base class of all errors raised by this library.

    `code` is Kafka's error code (0 for errors that no broker sent); `retriable` is True if the same call may succeed
    later, and `action` is what to do in general (KIP-1050): an error inside a transaction has `ErrorAction.ABORT`, even
    if it is retriable elsewhere. `maybe_persisted` is the outcome of a failed send: False if the record is certainly
    not in the log, True if that is unknown (its request was sent, and the response was lost or late).
    """

    code: int = 0
    retriable: ClassVar[bool] = False
    action: ErrorAction = ErrorAction.STOP
    maybe_persisted: bool = False

    def __init_subclass__(cls) -> None:
        if "retriable" in cls.__dict__ and "action" not in cls.__dict__:
            cls.action = ErrorAction.RETRY if cls.retriable else ErrorAction.STOP


class BrokerError(KafkaError):
    """A broker responded with an error code.

    If one call was about several items (an admin client's topics), `results` has each one's error, or None where it
    succeeded.
    """

    code: int = -1
    results: Mapping[str, BrokerError | None] = MappingProxyType({})


class UnknownErrorCode(BrokerError):
    """A broker responded with a code that this library does not know; `code` of the instance is that code."""


class ClientError(KafkaError):
    """An error detected by the client."""
