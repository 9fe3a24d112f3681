"""Events of a transactional id, and the actions that its state machine returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyclient.broker_embedded.transactions.state import TransactionMetadata
    from pyclient.types import TopicPartition


class Outcome(NamedTuple):
    """The answer to a request: an error code, and the producer's id and epoch."""

    error: int = 0
    producer_id: int = -1
    producer_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerId:
    """A producer begins with this id. `expected` is the (id, epoch) that it has; `version` the transaction.version."""

    reply: Any
    timeout_ms: int
    expected: tuple[int, int] | None = None
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """A producer writes to partitions in its transaction."""

    reply: Any
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    client_version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    """A producer commits or aborts."""

    reply: Any
    producer_id: int
    producer_epoch: int
    commit: bool
    client_version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has passed: an open transaction may have timed out, an unused id may have expired."""

    expiration_ms: int
    version: int = 0


@dataclass(frozen=True, slots=True)
class Written:
    """The last `Write` is committed, or failed with an error code."""

    error: int = 0


@dataclass(frozen=True, slots=True)
class MarkersWritten:
    """Partitions have the marker of the transaction that `SendMarkers` named, or do not exist any more."""

    prepared: TransactionMetadata
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Loaded:
    """The state was read from the log: what was decided is completed."""


Event = InitProducerId | AddPartitions | EndTransaction | Tick | Written | MarkersWritten | Loaded


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer a request; `to` is the `reply` of its event."""

    to: Any
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Write:
    """Append the state to the log, a tombstone if it is dead; report it by `Written`. It is the last of its effects."""

    metadata: TransactionMetadata


@dataclass(frozen=True, slots=True)
class SendMarkers:
    """Write the marker of a decided transaction to its partitions, until each has it; report it by `MarkersWritten`."""

    prepared: TransactionMetadata


@dataclass(frozen=True, slots=True)
class CompleteLater:
    """Writing the completion failed: after a pause, pass `MarkersWritten` without partitions, which retries it."""

    prepared: TransactionMetadata


@dataclass(frozen=True, slots=True)
class NeedProducerId:
    """Get a producer id that was never used, and give the event again with it. Nothing was changed."""

    event: InitProducerId | EndTransaction | Tick


@dataclass(frozen=True, slots=True)
class Forget:
    """The id is removed."""


Effect = Reply | Write | SendMarkers | CompleteLater | NeedProducerId | Forget
