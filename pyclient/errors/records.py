"""Codes about writing and reading records: batches, acks, offsets and fetch sessions."""

from __future__ import annotations

from pyclient.errors.base import BrokerError
from pyclient.types import ErrorAction

__all__ = [
    "CorruptMessage",
    "FetchSessionIdNotFound",
    "FetchSessionTopicIdError",
    "InvalidFetchSessionEpoch",
    "InvalidFetchSize",
    "InvalidRecord",
    "InvalidRequiredAcks",
    "InvalidTimestamp",
    "MessageTooLarge",
    "NotEnoughReplicas",
    "NotEnoughReplicasAfterAppend",
    "OffsetMovedToTieredStorage",
    "OffsetNotAvailable",
    "OffsetOutOfRange",
    "RecordListTooLarge",
    "UnsupportedForMessageFormat",
]


class OffsetOutOfRange(BrokerError):
    """The offset asked for is outside the partition's log."""

    code = 1


class CorruptMessage(BrokerError):
    """A batch's CRC or length is wrong."""

    code = 2
    retriable = True


class InvalidFetchSize(BrokerError):
    """The fetch size is impossible."""

    code = 4


class MessageTooLarge(BrokerError):
    """The batch is larger than the topic's max.message.bytes."""

    code = 10


class RecordListTooLarge(BrokerError):
    """The batch is larger than the topic's segment.bytes."""

    code = 18


class NotEnoughReplicas(BrokerError):
    """Fewer replicas are in sync than min.insync.replicas asks for; nothing was written."""

    code = 19
    retriable = True


class NotEnoughReplicasAfterAppend(BrokerError):
    """The batch was written, but too few replicas were in sync afterwards."""

    code = 20
    retriable = True


class InvalidRequiredAcks(BrokerError):
    """acks must be 0, 1 or all."""

    code = 21
    action = ErrorAction.CONFIGURE


class InvalidTimestamp(BrokerError):
    """A record's timestamp is outside the range the topic allows."""

    code = 32


class UnsupportedForMessageFormat(BrokerError):
    """The log's message format does not support the request."""

    code = 43
    action = ErrorAction.CONFIGURE


class FetchSessionIdNotFound(BrokerError):
    """The broker does not know this fetch session."""

    code = 70
    retriable = True


class InvalidFetchSessionEpoch(BrokerError):
    """The fetch session has another epoch."""

    code = 71
    retriable = True


class OffsetNotAvailable(BrokerError):
    """The offset is not settled yet after a change of leader."""

    code = 78
    retriable = True


class InvalidRecord(BrokerError):
    """The record breaks a rule of the broker."""

    code = 87


class FetchSessionTopicIdError(BrokerError):
    """The topic ids do not match the fetch session."""

    code = 106
    retriable = True


class OffsetMovedToTieredStorage(BrokerError):
    """The offset is in tiered storage."""

    code = 109
