"""TransactionManager: the states of a producer's transactions (KIP-98, KIP-360, KIP-890), without I/O.

`TRANSITIONS` has every change of state. The user's calls and the sender's reports are events; `next_request` returns
the request that is due, one at a time, and `answered` or `lost` takes its end. Times are monotonic seconds.

With transaction.version 2 (KIP-890) leaders add partitions to the transaction by themselves, and the answer to EndTxn
has the epoch of the next transaction. Otherwise partitions and groups are added by requests, and the epoch is raised by
InitProducerId only where it has to be: once a request that may still arrive late could harm the next transaction. Those
are a batch that was numbered and not confirmed, and an EndTxn whose answer was lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

from pyclient import errors
from pyclient.errors import (
    KafkaError,
    KafkaTimeout,
    TransactionAborted,
    TransactionOutcomeUnknown,
    TransactionStateError,
)
from pyclient.producer.idempotence import ProducerIds
from pyclient.producer.transaction_requests import (
    GROUP,
    MOVED,
    TRANSACTION,
    Consequence,
    OffsetsToCommit,
    TransactionRequest,
    acting,
    add_offsets,
    add_partitions,
    codes_of,
    commit_offsets,
    consequence_for_records,
    consequence_of,
    end_transaction,
    error_for,
    init_producer_id,
    offset_codes,
)
from pyclient.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from pyclient.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from pyclient.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from pyclient.protocol.messages.init_producer_id import InitProducerIdResponse
from pyclient.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse
from pyclient.types import ErrorAction, GroupMetadata, OffsetAndMetadata, TopicPartition

IMPLICIT_PARTITIONS: Final = 2  # transaction.version from which leaders add partitions (KIP-890, part 2)
_FIRST_PAUSE: Final = 0.002
"""Seconds after the first CONCURRENT_TRANSACTIONS: the markers of the last transaction are usually written by then."""
_LONGEST_PAUSE: Final = 0.02
"""Seconds between two attempts while markers are written: as long as Java's client always waits."""


def pause_for_markers(attempts: int) -> float:
    """Return the seconds to wait after CONCURRENT_TRANSACTIONS, which ended `attempts` earlier attempts as well."""
    return min(_FIRST_PAUSE * 2.0 ** min(attempts, 10), _LONGEST_PAUSE)


class TransactionState(Enum):
    """The states of a transactional producer."""

    UNINITIALIZED = "not initialized"
    INITIALIZING = "being initialized"
    READY = "without a transaction"
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "in a transaction that can only be aborted"
    OUTCOME_UNKNOWN = "without an answer to the commit"
    RESOLVING = "asking for the outcome of the last commit"
    FATAL_ERROR = "unusable"


class TransactionEvent(Enum):
    """The events that change the state."""

    INITIALIZE = "init_transactions()"
    INITIALIZED = "the coordinator assigned producer id and epoch"
    BEGIN = "begin_transaction()"
    COMMIT = "commit_transaction()"
    ABORT = "abort_transaction()"
    ENDED = "the transaction has ended, and the next one may use the present epoch"
    ENDED_WITH_EPOCH = "the transaction has ended, and its epoch with it"
    FAILED = "the transaction cannot be committed"
    NO_ANSWER = "the wait for the answer to the commit has timed out"
    GIVEN_UP = "the wait for the abort has timed out"
    RESOLVE = "the outcome of the last commit is asked for before the next transaction"
    FATAL = "the producer cannot go on"


_S, _E = TransactionState, TransactionEvent

TRANSITIONS: Final[Mapping[TransactionState, Mapping[TransactionEvent, TransactionState]]] = MappingProxyType(
    {
        _S.UNINITIALIZED: {_E.INITIALIZE: _S.INITIALIZING},
        _S.INITIALIZING: {_E.INITIALIZED: _S.READY, _E.FATAL: _S.FATAL_ERROR},
        _S.READY: {_E.BEGIN: _S.IN_TRANSACTION},
        _S.IN_TRANSACTION: {
            _E.COMMIT: _S.COMMITTING,
            _E.ABORT: _S.ABORTING,
            _E.FAILED: _S.ABORTABLE_ERROR,
            _E.FATAL: _S.FATAL_ERROR,
        },
        _S.COMMITTING: {
            _E.ENDED: _S.READY,
            _E.ENDED_WITH_EPOCH: _S.INITIALIZING,
            _E.FAILED: _S.ABORTABLE_ERROR,
            _E.NO_ANSWER: _S.OUTCOME_UNKNOWN,
            _E.FATAL: _S.FATAL_ERROR,
        },
        _S.ABORTING: {
            _E.ENDED: _S.READY,
            _E.ENDED_WITH_EPOCH: _S.INITIALIZING,
            _E.GIVEN_UP: _S.ABORTABLE_ERROR,
            _E.FATAL: _S.FATAL_ERROR,
        },
        _S.ABORTABLE_ERROR: {_E.ABORT: _S.ABORTING, _E.FATAL: _S.FATAL_ERROR},
        _S.OUTCOME_UNKNOWN: {_E.COMMIT: _S.COMMITTING, _E.RESOLVE: _S.RESOLVING},
        _S.RESOLVING: {_E.ENDED_WITH_EPOCH: _S.INITIALIZING, _E.FATAL: _S.FATAL_ERROR},
        _S.FATAL_ERROR: {},
    }
)

_NEXT_STEP: Final[Mapping[TransactionState, str]] = {
    _S.UNINITIALIZED: "call init_transactions() first, once",
    _S.INITIALIZING: "init_transactions() is not done: call it again to wait for it",
    _S.READY: "call begin_transaction() first",
    _S.IN_TRANSACTION: "commit_transaction() or abort_transaction() comes first",
    _S.COMMITTING: "commit_transaction() is not done: call it again to wait for it",
    _S.ABORTING: "abort_transaction() is not done: call it again to wait for it",
    _S.ABORTABLE_ERROR: "call abort_transaction()",
    _S.OUTCOME_UNKNOWN: "call commit_transaction() again, or begin_transaction() to go on",
    _S.RESOLVING: "call begin_transaction() again to wait for it",
    _S.FATAL_ERROR: "close the producer",
}

OPEN: Final = frozenset({_S.IN_TRANSACTION, _S.COMMITTING, _S.ABORTING, _S.ABORTABLE_ERROR})
"""The states with a transaction that has not ended."""
_ENDING: Final = frozenset({_S.COMMITTING, _S.ABORTING, _S.RESOLVING})
_FAILED: Final = frozenset({_S.ABORTABLE_ERROR, _S.ABORTING, _S.FATAL_ERROR})


class TransactionManager:
    """The state of the transactions of one producer; `ids` are the producer id and epoch of its batches.

    `cluster_version` is the cluster's transaction.version, as its owner last saw it; each transaction keeps to that of
    its begin. `delay(attempt)` returns the seconds before a retry. The owner holds the producer's lock.
    """

    def __init__(self, transactional_id: str, timeout_ms: int, ids: ProducerIds, delay: Callable[[int], float]) -> None:
        self.transactional_id = transactional_id
        self.state = TransactionState.UNINITIALIZED
        self.error: KafkaError | None = None  # why the transaction, or the producer, failed
        self.last_failure: KafkaError | None = None  # of a request that is sent again
        self.cluster_version = 0
        self.version = 0
        self.ids = ids
        self.retry_at = 0.0
        self._timeout_ms = timeout_ms
        self._delay = delay
        self._attempts = 0
        self._in_flight: TransactionRequest | None = None
        self._partitions: set[tuple[str, int]] = set()  # of the transaction
        self._new_partitions: dict[tuple[str, int], None] = {}  # to be added by AddPartitionsToTxn
        self._groups: set[str] = set()  # added by AddOffsetsToTxn
        self._offsets: deque[OffsetsToCommit] = deque()
        self._commit = False  # what EndTxn asks for
        self._may_be_begun = False  # the coordinator may know the transaction
        self._begun = False  # it certainly does
        self._end_was_sent = False  # an earlier EndTxn may have been taken, though no answer says so
        self._next_epoch_needed = False
        self._new_id_needed = False

    def __repr__(self) -> str:
        return f"<TransactionManager {self.transactional_id!r} {self.state.value}>"

    # -- calls of the user: each raises before anything is sent if it does not fit the state

    def initialize(self) -> None:
        """Ask for a producer id, which fences other producers with this transactional id."""
        if self.state is TransactionState.OUTCOME_UNKNOWN:
            self.resolve()
        elif self.state not in (TransactionState.INITIALIZING, TransactionState.RESOLVING):
            self._call(TransactionEvent.INITIALIZE)

    def resolve(self) -> None:
        """Ask for the outcome of the last commit, and for another epoch."""
        self._commit = True
        self._call(TransactionEvent.RESOLVE)

    def begin(self) -> None:
        """Begin a transaction; no request is sent before the first record or offset."""
        self._call(TransactionEvent.BEGIN)
        self.version = self.cluster_version

    def commit(self) -> None:
        """Commit once all records are delivered; wait for the present commit if it is not done."""
        if self.state is not TransactionState.COMMITTING:
            self._call(TransactionEvent.COMMIT)
            self._commit = True

    def abort(self) -> None:
        """Abort once no record is in flight; wait for the present abort if it is not done."""
        if self.state is not TransactionState.ABORTING:
            self._call(TransactionEvent.ABORT)
            self._commit = False
            self._drop_requests()

    def add_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata) -> OffsetsToCommit:
        """Commit a group's offsets with the transaction."""
        self._expect(TransactionState.IN_TRANSACTION, "send_offsets_to_transaction()")
        pending = OffsetsToCommit(group, dict(offsets), done=not offsets)
        if offsets:
            self._offsets.append(pending)
        return pending

    def check_send(self) -> None:
        """Raise if no record may be sent now."""
        if self.state is not TransactionState.IN_TRANSACTION:
            self._expect(TransactionState.IN_TRANSACTION, "a send")

    def give_up(self, error: KafkaTimeout) -> KafkaError:
        """Stop waiting for the call that is under way; return the error to raise for `error`."""
        state = self.state
        if state is TransactionState.COMMITTING and self._end_is_out:
            self._end_was_sent = True  # an answer to the request in flight comes too late to be taken
            self._become(TransactionEvent.NO_ANSWER)
            unknown = TransactionOutcomeUnknown(
                f"transactional id {self.transactional_id!r}: its coordinator was asked to commit, and no answer came: "
                f"{error}; {_NEXT_STEP[self.state]}"
            )
            unknown.__cause__ = error
            return unknown
        if state in (TransactionState.IN_TRANSACTION, TransactionState.COMMITTING):
            self._fail(error)
            return acting(error, ErrorAction.ABORT)
        if state is TransactionState.ABORTING:
            self._become(TransactionEvent.GIVEN_UP)
        return error

    # -- reports of the sender

    def may_send(self, topic: str, partition: int) -> bool:
        """Return True if a batch of this partition may be sent now; else it is added to the transaction first."""
        if self.state not in (TransactionState.IN_TRANSACTION, TransactionState.COMMITTING):
            return False
        place = (topic, partition)
        if place in self._partitions:
            return True
        if self.version < IMPLICIT_PARTITIONS:
            self._new_partitions[place] = None
            return False
        self._partitions.add(place)
        self._may_be_begun = True
        return True

    def batch_failed(self, error: KafkaError) -> None:
        """Take the failure of a batch: the transaction cannot be committed any more."""
        consequence = consequence_for_records(error)
        if consequence is Consequence.FATAL and self.state in OPEN:
            self._fatal(error)
        elif self.state in (TransactionState.IN_TRANSACTION, TransactionState.COMMITTING):
            self._new_id_needed = self._new_id_needed or consequence is Consequence.NEW_ID
            self._fail(error)

    def lost_a_batch(self) -> None:
        """Take that a numbered batch was given up, which may still arrive: its epoch ends with the transaction."""
        self._next_epoch_needed = True

    @property
    def unsent_fail(self) -> KafkaError | None:
        """The error of records that are not sent any more; None if they are sent."""
        if self.state not in _FAILED:
            return None
        if self.state is TransactionState.FATAL_ERROR and self.error is not None:
            return self.error
        why = "" if self.error is None else f", because of {self.error!r}"
        return TransactionAborted(f"the record was not sent: its transaction is aborted{why}")

    # -- requests

    def next_request(self, now: float, *, quiet: bool) -> TransactionRequest | None:
        """Return the request to send now; `quiet`: no record waits or is in flight. It is then `answered` or `lost`."""
        if self._in_flight is not None or now < self.retry_at:
            return None
        if quiet and self._ends_without_request:
            self._ended()
        self._in_flight = self._next(quiet)
        return self._in_flight

    @property
    def _ends_without_request(self) -> bool:
        """True if the coordinator does not know the transaction, or would refuse its producer id."""
        if self.state is TransactionState.ABORTING:
            return not self._may_be_begun or self._new_id_needed
        unfinished = self._new_partitions or self._offsets
        return self.state is TransactionState.COMMITTING and not self._may_be_begun and not unfinished

    @property
    def _end_is_out(self) -> bool:
        """True if the coordinator may have taken, or may still take, an EndTxn that it has not answered."""
        request = self._in_flight
        return self._end_was_sent or (request is not None and isinstance(request.message, EndTxnRequest))

    def _next(self, quiet: bool) -> TransactionRequest | None:
        state, name, ids = self.state, self.transactional_id, self.ids
        if state is TransactionState.INITIALIZING:
            keep = ids.known and not self._new_id_needed
            return init_producer_id(name, self._timeout_ms, ids if keep else None)
        if state in (TransactionState.IN_TRANSACTION, TransactionState.COMMITTING):
            if self._new_partitions:
                return add_partitions(name, ids, self._new_partitions)
            if self._offsets:
                pending = self._offsets[0]
                implicit = self.version >= IMPLICIT_PARTITIONS
                if not implicit and pending.group.group_id not in self._groups:
                    return add_offsets(name, ids, pending.group.group_id)
                self._may_be_begun = True
                return commit_offsets(name, ids, pending, adds_group=implicit)
        ending = quiet and state in (TransactionState.COMMITTING, TransactionState.ABORTING)
        if ending or state is TransactionState.RESOLVING:
            return end_transaction(name, ids, commit=self._commit, next_epoch=self.version >= IMPLICIT_PARTITIONS)
        return None

    def lost(self, request: TransactionRequest, error: KafkaError, now: float, *, written: bool) -> None:
        """Take that a request ended without an answer; `written`: the coordinator may have received it."""
        if not self._ends(request):
            return
        if written:
            self._may_be_begun = True
            if isinstance(request.message, EndTxnRequest):
                self._end_was_sent = self._next_epoch_needed = True  # it may even arrive during the next transaction
        if error.retriable:
            self.last_failure = error
            self._retry(now)
        elif request.kind == GROUP and self.state in (TransactionState.IN_TRANSACTION, TransactionState.COMMITTING):
            self._fail(error)
        elif request.kind == TRANSACTION:
            self._fatal(error)

    def answered(self, request: TransactionRequest, response: Any, now: float) -> bool:
        """Take the answer to a request; return True if its coordinator has to be looked up again."""
        if not self._ends(request):
            return False
        self._may_be_begun = True
        codes = [code for _place, code in codes_of(response)]
        worst = max((code for code in codes if code), key=_severity, default=0)
        complete = self._taken(request, response, worst)
        if worst and consequence_of(worst) is not Consequence.RETRY:
            self._refused(request, worst, response)
        elif worst or not complete:
            self._end_was_sent = self._end_was_sent or isinstance(request.message, EndTxnRequest)
            self.last_failure = error_for(worst, request, response, self.transactional_id) if worst else None
            self._retry(now, soon=worst == errors.ConcurrentTransactions.code)
        return any(code in MOVED for code in codes)

    def _ends(self, request: TransactionRequest) -> bool:
        """Note the end of the request in flight; return False if its end changes nothing any more."""
        if self._in_flight is not request:
            return False
        self._in_flight = None
        if isinstance(request.message, EndTxnRequest) and self.state not in _ENDING:
            self._next_epoch_needed = True
            return False
        return self.state is not TransactionState.FATAL_ERROR

    def _taken(self, request: TransactionRequest, response: Any, worst: int) -> bool:
        """Apply what a response says is done; return False if something of the request is not done."""
        message = request.message
        if isinstance(response, TxnOffsetCommitResponse):
            return self._took_offsets(response)
        if isinstance(message, AddPartitionsToTxnRequest):
            self._took_partitions(response)
            return not worst and not self._new_partitions.keys() & _places_of(message)
        if worst:
            return False
        self._attempts = 0
        if isinstance(response, InitProducerIdResponse):
            self.ids.obtained(response.producer_id, response.producer_epoch)
            self._forget_transaction()
            self._become(TransactionEvent.INITIALIZED)
        elif isinstance(response, EndTxnResponse):
            if response.producer_id >= 0:  # KIP-890: late requests of this transaction have an old epoch now
                self.ids.obtained(response.producer_id, response.producer_epoch)
                self._next_epoch_needed = self._new_id_needed = False
            self._ended()
        elif isinstance(message, AddOffsetsToTxnRequest):
            self._begun = True
            self._groups.add(message.group_id)
        return True

    def _took_partitions(self, response: AddPartitionsToTxnResponse) -> None:
        for topic in response.results_by_topic_v3_and_below:
            for result in topic.results_by_partition:
                if not result.partition_error_code:
                    self._begun = True
                    self._partitions.add((topic.name, result.partition_index))
                    self._new_partitions.pop((topic.name, result.partition_index), None)

    def _took_offsets(self, response: TxnOffsetCommitResponse) -> bool:
        if not self._offsets:  # the transaction failed meanwhile
            return True
        pending = self._offsets[0]
        for place, code in offset_codes(response).items():
            if not code:
                self._begun = True
                pending.offsets.pop(place, None)
        if not pending.offsets:
            pending.done = True
            self._offsets.popleft()
        return pending.done

    def _refused(self, request: TransactionRequest, code: int, response: Any) -> None:
        consequence = consequence_of(code)
        error = error_for(code, request, response, self.transactional_id)
        if isinstance(request.message, EndTxnRequest):
            self._end_refused(code, error)
        elif self.state is TransactionState.INITIALIZING or consequence is Consequence.FATAL:
            self._fatal(error)
        else:
            self._new_id_needed = self._new_id_needed or consequence is Consequence.NEW_ID
            if self.state in (TransactionState.IN_TRANSACTION, TransactionState.COMMITTING):
                self._fail(error)

    def _end_refused(self, code: int, error: KafkaError) -> None:
        consequence, self._end_was_sent = consequence_of(code), False
        if consequence is Consequence.NEW_ID:
            self._new_id_needed = True
            if self.state is TransactionState.COMMITTING:
                self._fail(error)
            else:
                self._ended()
        elif code == errors.InvalidTxnState.code and not self._commit and not self._begun:
            self._next_epoch_needed = True  # the coordinator does not know the transaction: nothing is to be aborted
            self._ended()
        elif consequence is Consequence.ABORT and self.state is TransactionState.COMMITTING:
            self._fail(error)
        elif consequence is Consequence.ABORT and self.state is TransactionState.RESOLVING and self._commit:
            self._commit = False
        else:
            self._fatal(error)

    # -- changes of state

    def _ended(self) -> None:
        again = self._next_epoch_needed or self._new_id_needed or self.state is TransactionState.RESOLVING
        self._become(TransactionEvent.ENDED_WITH_EPOCH if again else TransactionEvent.ENDED)
        self._drop_requests()
        if not again:
            self._forget_transaction()

    def _forget_transaction(self) -> None:
        self._partitions.clear()
        self._groups.clear()
        self._may_be_begun = self._begun = self._end_was_sent = False
        self._next_epoch_needed = self._new_id_needed = False
        self.error = None

    def _drop_requests(self) -> None:
        self._new_partitions.clear()
        self._offsets.clear()

    def _retry(self, now: float, *, soon: bool = False) -> None:
        delay = self._delay(self._attempts)
        self.retry_at = now + (min(pause_for_markers(self._attempts), delay) if soon else delay)
        self._attempts += 1

    def _fail(self, error: KafkaError) -> None:
        self.error = error
        self._drop_requests()
        self._become(TransactionEvent.FAILED)

    def _fatal(self, error: KafkaError) -> None:
        self.error = acting(error, error.action if error.action in _FINAL else ErrorAction.RESTART)
        self._drop_requests()
        self._become(TransactionEvent.FATAL)

    def _become(self, event: TransactionEvent) -> None:
        self.state = TRANSITIONS[self.state][event]
        self.retry_at, self._attempts, self.last_failure = 0.0, 0, None

    def _call(self, event: TransactionEvent) -> None:
        if event not in TRANSITIONS[self.state]:
            raise self._wrong_call(event.value)
        self._become(event)

    def _expect(self, state: TransactionState, call: str) -> None:
        if self.state is not state:
            raise self._wrong_call(call)

    def _wrong_call(self, call: str) -> KafkaError:
        if self.error is not None and self.state is TransactionState.FATAL_ERROR:
            return acting(self.error, self.error.action)
        if self.error is not None and self.state is TransactionState.ABORTABLE_ERROR:
            return acting(self.error, ErrorAction.ABORT)
        return TransactionStateError(
            f"transactional id {self.transactional_id!r}: {call} is not possible while the producer is "
            f"{self.state.value}: {_NEXT_STEP[self.state]}"
        )


_FINAL: Final = frozenset({ErrorAction.RESTART, ErrorAction.CONFIGURE})
_SEVERITY: Final = {
    each: rank
    for rank, each in enumerate((Consequence.RETRY, Consequence.ABORT, Consequence.NEW_ID, Consequence.FATAL))
}


def _severity(code: int) -> tuple[int, bool]:
    """Order codes by their consequence; those that give no reason, as another partition has it, come last."""
    return _SEVERITY[consequence_of(code)], code != errors.OperationNotAttempted.code


def _places_of(message: AddPartitionsToTxnRequest) -> set[tuple[str, int]]:
    return {(topic.name, partition) for topic in message.v3_and_below_topics for partition in topic.partitions}
