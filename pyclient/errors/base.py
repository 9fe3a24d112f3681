"""The roots of all errors: what a broker answers, and what is found out on this side."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

__all__ = [
    "BrokerError",
    "ClientError",
    "KafkaError",
    "UnknownErrorCode",
]


class KafkaError(Exception):
    """The root of all errors raised by this library.

    `code` is Kafka's error code (0 for errors that no broker sent); `retriable` says whether the same call may
    succeed later. `maybe_persisted` tells the outcome of a failed send: False if the record is certainly not in the
    log, True if nobody knows (its request was sent, and the answer was lost or late).
    """

    code: int = 0
    retriable: ClassVar[bool] = False
    maybe_persisted: bool = False


class BrokerError(KafkaError):
    """A broker answered with an error code.

    Where one call was about several things (an admin client's topics), `results` has what became of each: its own
    error, or None where it succeeded.
    """

    code: int = -1
    results: Mapping[str, BrokerError | None] = MappingProxyType({})


class UnknownErrorCode(BrokerError):
    """A broker answered with a code this library does not know; `code` of the instance is that code."""


class ClientError(KafkaError):
    """An error found out on this side of the connection."""
