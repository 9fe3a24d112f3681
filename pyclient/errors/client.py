"""Errors detected by the client."""

from __future__ import annotations

from typing import Literal

from pyclient.errors.base import ClientError
from pyclient.types import ErrorAction

__all__ = [
    "BufferExhausted",
    "ClosedError",
    "ClusterUnreachable",
    "CommitFailed",
    "ConcurrentUse",
    "ConfigError",
    "ConnectionFailed",
    "CorruptBatch",
    "CorruptRecord",
    "DeliveryFailed",
    "DeliveryTimeout",
    "DeserializationError",
    "FieldNotInVersion",
    "ForkError",
    "KafkaTimeout",
    "LogTruncation",
    "MalformedMessage",
    "NoOffsetForPartition",
    "NotAssigned",
    "PartitionerError",
    "PoisonRecord",
    "PollIntervalExceeded",
    "ProtocolError",
    "SerializationError",
    "TransactionAborted",
    "TransactionOutcomeUnknown",
    "TransactionStateError",
    "TruncatedMessage",
    "Wakeup",
]


class ConfigError(ClientError, ValueError):
    """Options are unknown, invalid, or in conflict with each other; `problems` has one text for each problem."""

    action = ErrorAction.CONFIGURE

    def __init__(self, *problems: str) -> None:
        text = problems[0] if len(problems) == 1 else "\n- ".join([f"{len(problems)} options are wrong:", *problems])
        super().__init__(text)
        self.problems = problems


class ClosedError(ClientError, RuntimeError):
    """The client was closed before the call."""

    action = ErrorAction.RESTART


class ForkError(ClientError, RuntimeError):
    """The client was created in another process: after `fork()`, a child creates its own."""


class SerializationError(ClientError, ValueError):
    """A key or value could not be converted to bytes, or bytes to a key or value."""


class PartitionerError(ClientError, ValueError):
    """The producer's partitioner raised, or returned something that is not a partition of the topic."""


class ConnectionFailed(ClientError, ConnectionError):
    """A connection could not be opened, or ended before the response came.

    `lasting` is True if a retry cannot help, only another option or another broker: a certificate is rejected, a name
    does not exist, the port speaks another protocol.
    """

    retriable = True
    lasting: bool = False

    def __init__(self, *args: object, lasting: bool = False) -> None:
        super().__init__(*args)
        self.lasting = lasting


class ClusterUnreachable(ConnectionFailed):
    """No address of the cluster can be used, each for a lasting cause; the text has all causes.

    Raised at once, without waiting for the call's timeout. The client keeps retrying.
    """

    retriable = False
    action = ErrorAction.CONFIGURE


class KafkaTimeout(ClientError, TimeoutError):
    """A call did not complete in time."""

    retriable = True


class BufferExhausted(KafkaTimeout, BufferError):
    """The producer's `buffer_memory` stayed full for `max_block_ms`."""


class DeliveryTimeout(KafkaTimeout):
    """A record was not acknowledged within `delivery_timeout_ms`."""


class DeliveryFailed(ClientError):
    """Records accepted by `send` failed, and their futures were not read.

    `count` is their number since the last `flush`; `first_error` is the first one's error.
    """

    def __init__(self, count: int, first_error: BaseException) -> None:
        super().__init__(count, first_error)
        self.count = count
        self.first_error = first_error

    def __str__(self) -> str:
        noun = "record was" if self.count == 1 else "records were"
        return f"{self.count} {noun} not delivered; the first error: {self.first_error!r}"


class TransactionStateError(ClientError, RuntimeError):
    """A call does not fit the state of the producer's transaction; nothing was sent."""


class TransactionAborted(ClientError):
    """A record was not sent, because its transaction is aborted."""

    action = ErrorAction.ABORT


class TransactionOutcomeUnknown(ClientError):
    """No answer says if the transaction was committed: `commit_transaction()` again asks the coordinator again.

    `begin_transaction()` does the same, and takes a new epoch before the next transaction, so that a delayed request
    cannot end that one.
    """

    retriable = True


class ProtocolError(ClientError):
    """Bytes from the network or the disk are invalid."""


class TruncatedMessage(ProtocolError):
    """A message ends before its last field."""


class MalformedMessage(ProtocolError):
    """A message has an impossible length, count or value, or bytes after its last field."""


class FieldNotInVersion(ProtocolError, ValueError):
    """A field was set that the message's version does not have."""


class CorruptRecord(ProtocolError):
    """A record batch has a wrong CRC, length or content."""


class NotAssigned(ClientError, ValueError):
    """The call needs a partition that is assigned to this consumer, or any subscription."""


class CommitFailed(ClientError):
    """Offsets were not committed, because the member does not own the partitions any more.

    Records since the last commit will be read again by their new owner. The next `poll` rejoins the group.
    """


class NoOffsetForPartition(ClientError):
    """A partition has no committed offset, and `auto_offset_reset` is "none": seek, or set a policy."""


class LogTruncation(ClientError):
    """The log was truncated below the consumer's position (KIP-320), and `auto_offset_reset` is "none": seek."""


class PollIntervalExceeded(ClientError):
    """More than `max_poll_interval_ms` passed between two polls, so the member left its group and lost its partitions.

    The next `poll` rejoins. Poll more often, request fewer records per poll, or raise `max_poll_interval_ms`.
    """

    retriable = True


class ConcurrentUse(ClientError, RuntimeError):
    """A consumer was used by two threads, or two tasks, at once; only `wakeup` may be called from another one."""


class Wakeup(ClientError):
    """Another thread called `wakeup()`; the waiting call was aborted, and the consumer's state is unchanged."""


class PoisonRecord(ClientError):
    """A fetched record, or a whole batch, cannot be read; `__cause__` is the reason.

    It is at `topic`, `partition`, `offset`. The consumer's position stays at it, so later polls raise it again, until
    `consumer.seek((topic, partition), error.next_offset)` skips exactly this record or batch.
    """

    def __init__(self, message: str, topic: str, partition: int, offset: int, next_offset: int) -> None:
        super().__init__(message, topic, partition, offset, next_offset)
        self.message = message
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset

    def __str__(self) -> str:
        return f"{self.message}; seek(({self.topic!r}, {self.partition}), offset={self.next_offset}) skips it"


class DeserializationError(PoisonRecord, SerializationError):
    """A deserializer failed on a record's key or value (`origin`); `__cause__` is what it raised.

    `key`, `value`, `headers` and `timestamp_ms` are the record's as they are in the log, for a dead-letter topic:
    `producer.send("orders.dlq", error.value, key=error.key, headers=error.headers)`.
    """

    def __init__(
        self,
        message: str,
        topic: str,
        partition: int,
        offset: int,
        next_offset: int,
        *,
        origin: Literal["key", "value"] = "value",
        key: bytes | None = None,
        value: bytes | None = None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        timestamp_ms: int = -1,
    ) -> None:
        super().__init__(message, topic, partition, offset, next_offset)
        self.origin = origin
        self.key = key
        self.value = value
        self.headers = headers
        self.timestamp_ms = timestamp_ms


class CorruptBatch(PoisonRecord, CorruptRecord):
    """A fetched batch has a wrong CRC, length or content."""
