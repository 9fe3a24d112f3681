"""Errors found out on this side of the connection."""

from __future__ import annotations

from typing import Literal

from pyclient.errors.base import ClientError

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
    "TruncatedMessage",
    "Wakeup",
]


class ConfigError(ClientError, ValueError):
    """Options are unknown, impossible, or in conflict with each other; `problems` has one text for each."""

    def __init__(self, *problems: str) -> None:
        text = problems[0] if len(problems) == 1 else "\n- ".join([f"{len(problems)} options are wrong:", *problems])
        super().__init__(text)
        self.problems = problems


class ClosedError(ClientError, RuntimeError):
    """The client was closed before the call."""


class ForkError(ClientError, RuntimeError):
    """The client was made in another process: after `fork()` a child makes its own."""


class SerializationError(ClientError, ValueError):
    """A key or value could not be turned into bytes, or bytes into a value."""


class PartitionerError(ClientError, ValueError):
    """The partitioner that a producer was given raised, or chose what is no partition of the topic."""


class ConnectionFailed(ClientError, ConnectionError):
    """A connection could not be made, or ended before the answer came.

    `lasting` says that trying again cannot help, only another option or another broker: a certificate is refused, a
    name does not exist, the port speaks another protocol.
    """

    retriable = True
    lasting: bool = False

    def __init__(self, *args: object, lasting: bool = False) -> None:
        super().__init__(*args)
        self.lasting = lasting


class ClusterUnreachable(ConnectionFailed):
    """No address of the cluster can be used, each for a cause that waiting does not mend; the text has them all.

    Raised at once, where otherwise the call's timeout would be waited for. The client goes on trying.
    """

    retriable = False


class KafkaTimeout(ClientError, TimeoutError):
    """What was asked for did not happen in time."""

    retriable = True


class BufferExhausted(KafkaTimeout, BufferError):
    """The producer's `buffer_memory` stayed full for `max_block_ms`."""


class DeliveryTimeout(KafkaTimeout):
    """A record was not confirmed within `delivery_timeout_ms`."""


class DeliveryFailed(ClientError):
    """Records accepted by `send` failed, and nobody looked at their futures.

    `count` is how many since the last `flush`; `first_error` is the first one's error.
    """

    def __init__(self, count: int, first_error: BaseException) -> None:
        super().__init__(count, first_error)
        self.count = count
        self.first_error = first_error

    def __str__(self) -> str:
        noun = "record was" if self.count == 1 else "records were"
        return f"{self.count} {noun} not delivered; the first error: {self.first_error!r}"


class ProtocolError(ClientError):
    """Bytes from the network or the disk make no sense."""


class TruncatedMessage(ProtocolError):
    """A message ends before its last field."""


class MalformedMessage(ProtocolError):
    """A message has a length, a count or a value that cannot be, or bytes behind its last field."""


class FieldNotInVersion(ProtocolError, ValueError):
    """A field was set that the message's version cannot carry."""


class CorruptRecord(ProtocolError):
    """A record batch has a wrong CRC, length or content."""


class NotAssigned(ClientError, ValueError):
    """The call needs a partition that is assigned to this consumer, or any subscription at all."""


class CommitFailed(ClientError):
    """Offsets were not committed, because the member does not own the partitions any more.

    Records since the last commit will be read again, by their new owner. The next `poll` joins the group again.
    """


class NoOffsetForPartition(ClientError):
    """A partition has no committed offset, and `auto_offset_reset` is "none": seek, or set a policy."""


class LogTruncation(ClientError):
    """The log was truncated below the consumer's position (KIP-320), and `auto_offset_reset` is "none": seek."""


class PollIntervalExceeded(ClientError):
    """More than `max_poll_interval_ms` passed between two polls, so the member left its group and lost its partitions.

    The next `poll` joins again. Poll more often, ask for fewer records a poll, or raise `max_poll_interval_ms`.
    """

    retriable = True


class ConcurrentUse(ClientError, RuntimeError):
    """A consumer was used by two threads, or two tasks, at once; only `wakeup` may be called from another one."""


class Wakeup(ClientError):
    """Another thread called `wakeup()`; the call that waited was given up, the consumer is as it was before."""


class PoisonRecord(ClientError):
    """A fetched record, or a whole batch, cannot be read; `__cause__` says why.

    It is at `topic`, `partition`, `offset`. The position stays in front of it, so later polls raise it again, until
    `consumer.seek((topic, partition), error.next_offset)` skips it, and nothing else.
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
