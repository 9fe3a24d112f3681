"""Small value types used throughout the package and by its users."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

TIMESTAMP_NONE: Final = -1
TIMESTAMP_CREATE: Final = 0
TIMESTAMP_LOG_APPEND: Final = 1

Headers = tuple[tuple[str, bytes | None], ...]


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetAndMetadata(NamedTuple):
    """A committed position: `offset` is the next record to read; `metadata` is a text of the application."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class GroupMetadata(NamedTuple):
    """A consumer's membership in its group, by which a coordinator refuses offsets of a former owner (KIP-447).

    `generation_id` is the member's epoch in a group of KIP-848.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class OffsetAndTimestamp(NamedTuple):
    """The result of a search by time: the first offset whose record is not older, and that record's timestamp."""

    offset: int
    timestamp_ms: int
    leader_epoch: int = -1


class ErrorAction(Enum):
    """The reaction of an application to an error: the five categories of KIP-1050."""

    RETRY = "retry"
    """The same call may succeed later."""
    ABORT = "abort"
    """Abort the transaction; the next one may succeed."""
    RESTART = "restart"
    """Close the client, create another one, and continue from the last committed state."""
    CONFIGURE = "configure"
    """Correct the client's options, its permissions or the cluster's settings."""
    STOP = "stop"
    """Stop: the call is wrong, or its data are, or the client has a defect."""


class RecordMetadata(NamedTuple):
    """The position of a delivered record; `timestamp_ms` is the timestamp in the log.

    `offset` is -1 if it is not known: with acks=0, and for a record whose response was lost and whose replicas all
    restarted since.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
