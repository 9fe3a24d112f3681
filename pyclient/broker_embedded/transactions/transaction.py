"""The state machine of one transactional id: `receive` takes what happens and returns what is to be done. Pure.

Every state is written to the log before anything follows from it: the answer to the client, and after a decision
the markers. While a state is being written, or markers are, all requests are answered with CONCURRENT_TRANSACTIONS.

A failed write may still be in the log, if it was only too slow. The transactional id keeps its state then, and
the record has no effect: the id's next record is appended after it, and the last record of an id counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyclient.broker_embedded.transactions.events import (
    AddPartitions,
    CompleteLater,
    Effect,
    EndTransaction,
    Event,
    Forget,
    InitProducerId,
    Loaded,
    MarkersWritten,
    NeedProducerId,
    Outcome,
    Reply,
    SendMarkers,
    Tick,
    Write,
    Written,
)
from pyclient.broker_embedded.transactions.state import (
    AT_REST,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    EPOCH_PER_TRANSACTION,
    LAST_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    ONGOING,
    PREPARED,
    TransactionMetadata,
    TransactionState,
)
from pyclient.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    InvalidProducerIdMapping,
    InvalidTxnState,
    ProducerFenced,
    TransactionAbortable,
)

if TYPE_CHECKING:
    from pyclient.types import TopicPartition

_ABORT_NOTHING: Final = "abort a transaction without partitions"
_DONE: Final = "answer as before"

_END_AT_REST: Final[dict[tuple[int, TransactionState, bool, bool], str]] = {
    # (epochs per transaction, state, commit, repeated)
    (False, COMPLETE_COMMIT, True, False): _DONE,
    (False, COMPLETE_ABORT, False, False): _DONE,
    (True, COMPLETE_COMMIT, True, True): _DONE,
    (True, COMPLETE_ABORT, False, True): _DONE,
    (True, COMPLETE_COMMIT, False, False): _ABORT_NOTHING,
    (True, COMPLETE_ABORT, False, False): _ABORT_NOTHING,
    (True, EMPTY, False, False): _ABORT_NOTHING,
}
"""EndTxn while no transaction is open. What is missing is INVALID_TXN_STATE."""


class _Pending(NamedTuple):
    """A state that is being written, the request to answer then (None: none), and the outcome (None: the new ids)."""

    target: TransactionMetadata
    reply: Any = None
    outcome: Outcome | None = None
    is_fence: bool = False


class Transaction:
    """One transactional id: `metadata` is its state in the log, `pending` the state that is being written there."""

    __slots__ = ("_fence_failed", "_missing", "_pending", "metadata")

    def __init__(self, metadata: TransactionMetadata) -> None:
        self.metadata = metadata
        self._pending: _Pending | None = None
        self._missing: set[TopicPartition] = set()
        self._fence_failed = False

    def __repr__(self) -> str:
        known = self.metadata
        return (
            f"<Transaction {known.transactional_id!r} {known.state.label} producer={known.producer_id} "
            f"epoch={known.producer_epoch} partitions={len(known.partitions)} missing={len(self._missing)}>"
        )

    @property
    def is_changing(self) -> bool:
        """Return True while a state or markers are being written."""
        return self._pending is not None or self.metadata.state in PREPARED

    @property
    def waiting_reply(self) -> Any:
        """Return the `reply` of the request that is answered when the state is written; None without one."""
        return None if self._pending is None else self._pending.reply

    def receive(self, event: Event, now_ms: int, *, producer_id: int = NO_PRODUCER_ID) -> list[Effect]:
        """Take an event. `producer_id` is an unused one, given after `NeedProducerId`."""
        match event:
            case InitProducerId():
                return self._init(event, now_ms, producer_id)
            case AddPartitions():
                return self._add(event, now_ms)
            case EndTransaction():
                return self._end(event, now_ms, producer_id)
            case Tick():
                return self._tick(event, now_ms, producer_id)
            case Written(error):
                return self._written(error, now_ms)
            case MarkersWritten(prepared, partitions):
                if prepared == self.metadata:
                    self._missing.difference_update(partitions)
                return self._complete(now_ms)
            case Loaded():
                return self._send_markers(now_ms)

    def verify(self, producer_id: int, epoch: int, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        """Return an error code for each partition: 0 if it is in the producer's transaction (KIP-890)."""
        known = self.metadata
        if known.producer_id != producer_id:
            return dict.fromkeys(partitions, InvalidProducerIdMapping.code)
        if known.producer_epoch != epoch:
            return dict.fromkeys(partitions, ProducerFenced.code)
        if known.state in PREPARED:
            return dict.fromkeys(partitions, ConcurrentTransactions.code)
        return {each: 0 if each in known.partitions else TransactionAbortable.code for each in partitions}

    # Requests

    def _init(self, event: InitProducerId, now_ms: int, producer_id: int) -> list[Effect]:
        known, expected = self.metadata, event.expected
        if self.is_changing:
            return _refuse(event, ConcurrentTransactions.code)
        if expected is not None and not self._may_continue(expected):
            return _refuse(event, ProducerFenced.code)
        if known.state is ONGOING:
            concurrent = Outcome(ConcurrentTransactions.code)
            return self._fence(event, event.reply, concurrent, event.version, now_ms, producer_id)
        epoch = None if expected is None else expected[1]
        if known.is_exhausted and epoch in (None, known.producer_epoch):
            if producer_id == NO_PRODUCER_ID:
                return [NeedProducerId(event)]
            last = NO_EPOCH if epoch is None else known.producer_epoch
            target = known.with_new_id(now_ms, event.timeout_ms, producer_id, last)
        elif epoch is None:
            target = known.with_next_epoch(now_ms, event.timeout_ms, NO_EPOCH)
        elif epoch == known.producer_epoch or known.producer_epoch == NO_EPOCH:
            target = known.with_next_epoch(now_ms, event.timeout_ms, known.producer_epoch)
        elif epoch == known.last_producer_epoch:
            target = known.unchanged(now_ms, event.timeout_ms)
        else:
            return _refuse(event, ProducerFenced.code)
        return self._write(_Pending(target, event.reply))

    def _may_continue(self, expected: tuple[int, int]) -> bool:
        known, (producer_id, epoch) = self.metadata, expected
        if known.producer_epoch == NO_EPOCH or producer_id == known.producer_id:
            return True
        return producer_id == known.previous_producer_id and epoch >= LAST_EPOCH  # a repeated request

    def _add(self, event: AddPartitions, now_ms: int) -> list[Effect]:
        known = self.metadata
        if self.is_changing:
            return _refuse(event, ConcurrentTransactions.code)
        if known.producer_id != event.producer_id:
            return _refuse(event, InvalidProducerIdMapping.code)
        if known.producer_epoch != event.producer_epoch:
            return _refuse(event, ProducerFenced.code)
        if known.state is ONGOING and event.partitions <= known.partitions:
            return [Reply(event.reply, Outcome())]
        target = known.with_partitions(event.partitions, now_ms, event.client_version)
        return self._write(_Pending(target, event.reply, Outcome()))

    def _end(self, event: EndTransaction, now_ms: int, producer_id: int) -> list[Effect]:
        known = self.metadata
        has_epochs = event.client_version >= EPOCH_PER_TRANSACTION
        if has_epochs and self.is_changing:
            return _refuse(event, ConcurrentTransactions.code)
        bumped = has_epochs and known.producer_epoch == event.producer_epoch + 1
        replaced = has_epochs and self._has_replaced(event)
        if known.producer_id != event.producer_id and not replaced:
            return _refuse(event, InvalidProducerIdMapping.code)
        repeated = known.state in AT_REST and known.state is not EMPTY and (bumped or replaced)
        if known.producer_epoch != event.producer_epoch and not repeated:
            return _refuse(event, ProducerFenced.code)
        if self.is_changing:
            return _refuse(event, ConcurrentTransactions.code)
        if known.state is not ONGOING:
            what = _END_AT_REST.get((has_epochs, known.state, event.commit, repeated))
            if what is None:
                return _refuse(event, InvalidTxnState.code)
            if what is _DONE:
                return [Reply(event.reply, Outcome(0, known.producer_id, known.producer_epoch))]
        if has_epochs and known.is_exhausted and producer_id == NO_PRODUCER_ID:
            return [NeedProducerId(event)]
        version = event.client_version
        target = known.prepared(
            commit=event.commit, now_ms=now_ms, client_version=version, next_producer_id=producer_id
        )
        after = target.completed(now_ms)
        outcome = Outcome(0, after.producer_id, after.producer_epoch)
        return self._write(_Pending(target, event.reply, outcome))

    def _has_replaced(self, event: EndTransaction) -> bool:
        """Return True if an earlier one of these requests ended the transaction with the last epoch of its id."""
        known = self.metadata
        return (
            known.previous_producer_id == event.producer_id
            and event.producer_epoch == LAST_EPOCH
            and known.producer_epoch == 0
        )

    # Time

    def _tick(self, event: Tick, now_ms: int, producer_id: int) -> list[Effect]:
        known = self.metadata
        if self._pending is not None:
            return []
        if known.state in PREPARED:  # the write of its end may have failed
            return self._complete(now_ms)
        if known.is_timed_out(now_ms):
            return self._fence(event, None, None, event.version, now_ms, producer_id)
        if known.is_expired(now_ms, event.expiration_ms):
            return self._write(_Pending(known.dead(now_ms)))
        return []

    def _fence(
        self,
        event: InitProducerId | Tick,
        reply: Any,
        outcome: Outcome | None,
        version: int,
        now_ms: int,
        producer_id: int,
    ) -> list[Effect]:
        """Abort the open transaction with an epoch above the producer's, which is fenced by it."""
        has_epochs = version >= EPOCH_PER_TRANSACTION
        if has_epochs and self.metadata.is_exhausted and producer_id == NO_PRODUCER_ID:
            return [NeedProducerId(event)]
        if not has_epochs and not self._fence_failed:  # the epoch stays if the write fails, and is not raised again
            self.metadata = self.metadata.with_fence_epoch()
        target = self.metadata.fenced(now_ms).prepared(
            commit=False, now_ms=now_ms, client_version=version, next_producer_id=producer_id
        )
        return self._write(_Pending(target, reply, outcome, is_fence=True))

    # The log

    def _write(self, pending: _Pending) -> list[Effect]:
        self._pending = pending
        return [Write(pending.target)]

    def _written(self, error: int, now_ms: int) -> list[Effect]:
        pending, self._pending = self._pending, None
        assert pending is not None, "nothing was being written"
        if error:
            self._fence_failed = self._fence_failed or (
                pending.is_fence and pending.target.client_version < EPOCH_PER_TRANSACTION
            )
            if self.metadata.state in PREPARED and error == CoordinatorNotAvailable.code:
                return [CompleteLater(self.metadata)]
            return [] if pending.reply is None else [Reply(pending.reply, Outcome(error))]
        self.metadata = pending.target
        effects: list[Effect] = []
        if pending.reply is not None:
            ids = Outcome(0, self.metadata.producer_id, self.metadata.producer_epoch)
            effects.append(Reply(pending.reply, pending.outcome or ids))
        if self.metadata.state is DEAD:
            return [*effects, Forget()]
        return effects + self._send_markers(now_ms)

    def _send_markers(self, now_ms: int) -> list[Effect]:
        if self.metadata.state not in PREPARED:
            return []
        self._missing = set(self.metadata.partitions)
        return [SendMarkers(self.metadata)] if self._missing else self._complete(now_ms)

    def _complete(self, now_ms: int) -> list[Effect]:
        if self._missing or self._pending is not None or self.metadata.state not in PREPARED:
            return []
        self._fence_failed = False
        return self._write(_Pending(self.metadata.completed(now_ms)))


def _refuse(event: InitProducerId | AddPartitions | EndTransaction, code: int) -> list[Effect]:
    return [Reply(event.reply, Outcome(code))]
