"""Codes about idempotent and transactional producers."""

from __future__ import annotations

from pyclient.errors.base import BrokerError
from pyclient.types import ErrorAction

__all__ = [
    "ConcurrentTransactions",
    "DuplicateSequenceNumber",
    "InvalidProducerEpoch",
    "InvalidProducerIdMapping",
    "InvalidTransactionTimeout",
    "InvalidTxnState",
    "OperationNotAttempted",
    "OutOfOrderSequenceNumber",
    "ProducerFenced",
    "TransactionAbortable",
    "TransactionCoordinatorFenced",
    "TransactionalIdNotFound",
    "UnknownProducerId",
    "UnstableOffsetCommit",
]


class OutOfOrderSequenceNumber(BrokerError):
    """A producer's sequence number does not follow the last one."""

    code = 45
    action = ErrorAction.RESTART


class DuplicateSequenceNumber(BrokerError):
    """The sequence number was written before."""

    code = 46


class InvalidProducerEpoch(BrokerError):
    """A newer producer with the same id has taken over."""

    code = 47
    action = ErrorAction.RESTART


class InvalidTxnState(BrokerError):
    """The transaction is in a state that does not allow this."""

    code = 48
    action = ErrorAction.RESTART


class InvalidProducerIdMapping(BrokerError):
    """The producer id does not belong to this transactional id."""

    code = 49
    action = ErrorAction.RESTART


class InvalidTransactionTimeout(BrokerError):
    """The transaction timeout is larger than the broker allows."""

    code = 50
    action = ErrorAction.CONFIGURE


class ConcurrentTransactions(BrokerError):
    """Another operation on the transaction is still going on."""

    code = 51
    retriable = True


class TransactionCoordinatorFenced(BrokerError):
    """A newer transaction coordinator has taken over."""

    code = 52
    action = ErrorAction.RESTART


class OperationNotAttempted(BrokerError):
    """The broker did not attempt the operation."""

    code = 55


class UnknownProducerId(BrokerError):
    """The broker has no state for this producer id."""

    code = 59
    action = ErrorAction.RESTART


class UnstableOffsetCommit(BrokerError):
    """An offset has a transaction that is not decided yet."""

    code = 88
    retriable = True


class ProducerFenced(BrokerError):
    """A newer producer with the same transactional id has taken over."""

    code = 90
    action = ErrorAction.RESTART


class TransactionalIdNotFound(BrokerError):
    """The coordinator does not know this transactional id."""

    code = 105


class TransactionAbortable(BrokerError):
    """The transaction cannot go on and has to be aborted."""

    code = 120
    action = ErrorAction.ABORT
