"""A transactional id: its state, and every change of state that is allowed. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyclient.types import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
LAST_EPOCH: Final = 32_766
"""The last epoch that a client gets. 32767 is for the markers that end its last transaction."""

EPOCH_PER_TRANSACTION: Final = 2
"""The transaction.version from which on every transaction has its own epoch (KIP-890)."""


class TransactionState(IntEnum):
    """Kafka's states, with the numbers of its records. PREPARE_EPOCH_FENCE is never in a record."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """Return the name in answers to administrators, such as "PrepareCommit"."""
        return "".join(word.capitalize() for word in self.name.split("_"))


EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, DEAD, PREPARE_EPOCH_FENCE = (
    TransactionState
)
AT_REST: Final = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})
"""The states between two transactions."""

PREPARED: Final = frozenset({PREPARE_COMMIT, PREPARE_ABORT})
"""The states in which the outcome is decided and markers are written."""

PREVIOUS: Final[dict[TransactionState, frozenset[TransactionState]]] = {
    EMPTY: AT_REST,
    ONGOING: AT_REST | {ONGOING},
    PREPARE_COMMIT: frozenset({ONGOING}),
    PREPARE_ABORT: AT_REST | {ONGOING, PREPARE_EPOCH_FENCE},  # at rest: transaction version 2 aborts without partitions
    COMPLETE_COMMIT: frozenset({PREPARE_COMMIT}),
    COMPLETE_ABORT: frozenset({PREPARE_ABORT}),
    DEAD: AT_REST,
    PREPARE_EPOCH_FENCE: frozenset({ONGOING}),
}
"""The transition table: each state, with the states that it may follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMetadata:
    """The durable state of a transactional id; times are epoch ms.

    `last_producer_epoch` is the epoch before the last bump that the client itself asked for, by which a repetition
    is recognised. `next_producer_id` is the id of the next transaction if this one ends with the last epoch.
    """

    transactional_id: str
    producer_id: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    last_producer_epoch: int = NO_EPOCH
    timeout_ms: int
    state: TransactionState = EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    last_update_ms: int
    client_version: int = 0

    @property
    def is_exhausted(self) -> bool:
        """Return True if the producer id has no further epoch for a client."""
        return self.producer_epoch >= LAST_EPOCH

    def is_timed_out(self, now_ms: int) -> bool:
        """Return True if the transaction is open for longer than its timeout."""
        return self.state is ONGOING and self.start_ms + self.timeout_ms < now_ms

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Return True if the id was not used for `expiration_ms`."""
        return self.state in AT_REST and self.last_update_ms <= now_ms - expiration_ms

    def _moved(self, state: TransactionState, now_ms: int, **changes: object) -> TransactionMetadata:
        if self.state not in PREVIOUS[state]:
            raise ValueError(f"{self.transactional_id!r} cannot go from {self.state.label} to {state.label}")
        changed = {"previous_producer_id": self.producer_id, "last_update_ms": now_ms, **changes}
        return replace(self, state=state, **changed)  # type: ignore[arg-type]

    def with_next_epoch(self, now_ms: int, timeout_ms: int, last_epoch: int) -> TransactionMetadata:
        """Return the state for the next producer of the same id. `last_epoch` as in `last_producer_epoch`."""
        return self._at_start(
            now_ms, timeout_ms, producer_epoch=self.producer_epoch + 1, last_producer_epoch=last_epoch
        )

    def unchanged(self, now_ms: int, timeout_ms: int) -> TransactionMetadata:
        """Return the state after a repeated InitProducerId."""
        return self._at_start(now_ms, timeout_ms)

    def with_new_id(self, now_ms: int, timeout_ms: int, producer_id: int, last_epoch: int) -> TransactionMetadata:
        """Return the state with another producer id, since the epochs of the present one are used up."""
        return self._at_start(
            now_ms, timeout_ms, producer_id=producer_id, producer_epoch=0, last_producer_epoch=last_epoch
        )

    def _at_start(self, now_ms: int, timeout_ms: int, **changes: int) -> TransactionMetadata:
        return self._moved(EMPTY, now_ms, timeout_ms=timeout_ms, partitions=frozenset(), start_ms=-1, **changes)

    def with_partitions(
        self, partitions: Iterable[TopicPartition], now_ms: int, client_version: int
    ) -> TransactionMetadata:
        """Return the state with further partitions, which begins a transaction if there is none."""
        return self._moved(
            ONGOING,
            now_ms,
            partitions=self.partitions.union(partitions),
            start_ms=now_ms if self.state in AT_REST else self.start_ms,
            client_version=client_version,
        )

    def fenced(self, now_ms: int) -> TransactionMetadata:
        """Return the state, never written, in which the coordinator itself is about to abort the transaction."""
        return self._moved(PREPARE_EPOCH_FENCE, now_ms)

    def with_fence_epoch(self) -> TransactionMetadata:
        """Return the state with an epoch of which no client knows, before transaction version 2."""
        return replace(self, producer_epoch=self.producer_epoch + 1, last_producer_epoch=NO_EPOCH)

    def prepared(
        self, *, commit: bool, now_ms: int, client_version: int, next_producer_id: int = NO_PRODUCER_ID
    ) -> TransactionMetadata:
        """Return the state in which the outcome is decided. From transaction version 2 on it has the next epoch."""
        changes: dict[str, object] = {"client_version": client_version}
        if client_version >= EPOCH_PER_TRANSACTION:
            changes |= {
                "producer_epoch": self.producer_epoch + 1,
                "last_producer_epoch": self.producer_epoch,
                "next_producer_id": next_producer_id,
            }
        if self.state in AT_REST:
            changes |= {"start_ms": now_ms, "partitions": frozenset()}
        return self._moved(PREPARE_COMMIT if commit else PREPARE_ABORT, now_ms, **changes)

    def completed(self, now_ms: int) -> TransactionMetadata:
        """Return the state after all markers. A client sees the epoch after its last one as 0 of the next id."""
        changes: dict[str, object] = {"partitions": frozenset(), "next_producer_id": NO_PRODUCER_ID}
        if self.next_producer_id != NO_PRODUCER_ID:
            changes |= {"producer_id": self.next_producer_id, "producer_epoch": 0}
        return self._moved(COMPLETE_COMMIT if self.state is PREPARE_COMMIT else COMPLETE_ABORT, now_ms, **changes)

    def dead(self, now_ms: int) -> TransactionMetadata:
        """Return the state of an id that is removed."""
        return self._moved(DEAD, now_ms)
