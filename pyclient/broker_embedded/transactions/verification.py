"""Verify, before a batch begins a transaction in a partition, that the partition belongs to it (KIP-890).

Without it a batch that arrives after the end of its transaction would begin one that no client ends, and readers of
committed data would wait there for ever.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.controller.topics import TRANSACTIONS_TOPIC
from pyclient.broker_embedded.transactions.promise import Promise
from pyclient.errors import (
    BrokerError,
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidTxnState,
    NotCoordinator,
    NotEnoughReplicas,
    ProducerFenced,
    TransactionAbortable,
    TransactionalIdAuthorizationFailed,
    from_code,
)
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyclient.broker_embedded.log.unified_log import UnifiedLog
    from pyclient.broker_embedded.services import BrokerServices
    from pyclient.varint import Buffer

ADDS_SINCE: Final = 12
"""The version of Produce from which on a write adds its partition to the transaction."""

_ABORTABLE_SINCE: Final = 11
_PRODUCER: Final = Struct(">qh")
_PRODUCER_AT: Final = 43
_COORDINATOR: Final = frozenset({CoordinatorLoadInProgress.code, CoordinatorNotAvailable.code, NotCoordinator.code})


def producer_of(batch: Buffer) -> tuple[int, int]:
    """Return the producer id and epoch in the header of a batch; (-1, -1) for one that is too short."""
    if len(batch) < _PRODUCER_AT + _PRODUCER.size:
        return -1, -1
    producer_id, epoch = _PRODUCER.unpack_from(batch, _PRODUCER_AT)
    return producer_id, epoch


def verify(
    services: BrokerServices,
    transactional_id: str,
    producer: tuple[int, int],
    partitions: Iterable[TopicPartition],
    *,
    adds: bool,
    before_attempt: Callable[[], object],
) -> Promise[dict[TopicPartition, int]]:
    """Ask the coordinator of the id whether partitions are in the producer's transaction, or (`adds`) to add them.

    Return an error code for each. A partition is added again for a short time while the producer's previous transaction
    is being completed, which the producer does not wait for. `before_attempt` is called before each request.
    """
    wanted = frozenset(partitions)
    if not adds:
        before_attempt()
        if not services.configs.current.boolean("transaction.partition.verification.enable"):
            return Promise.of(dict.fromkeys(wanted, 0))
        return _ask(services, transactional_id, producer, wanted, adds=False)
    codes: Promise[dict[TopicPartition, int]] = Promise()
    last = services.clock.monotonic() + services.configs.current.seconds("add.partitions.to.txn.retry.backoff.max.ms")
    pause = services.configs.current.seconds("add.partitions.to.txn.retry.backoff.ms")

    def attempt() -> None:
        before_attempt()
        _ask(services, transactional_id, producer, wanted, adds=True).then(answered)

    def answered(found: dict[TopicPartition, int]) -> None:
        if ConcurrentTransactions.code in found.values() and services.clock.monotonic() < last:
            services.timers.schedule(pause, attempt)
        else:
            codes.set(found)

    attempt()
    return codes


def _ask(
    services: BrokerServices,
    transactional_id: str,
    producer: tuple[int, int],
    wanted: frozenset[TopicPartition],
    *,
    adds: bool,
) -> Promise[dict[TopicPartition, int]]:
    coordinator = _coordinator_of(services, transactional_id)
    if coordinator != services.node_id and services.inter_broker_requests is not None:
        return services.inter_broker_requests.verify(coordinator, transactional_id, producer, wanted, adds=adds)
    if not adds:
        return Promise.of(services.transactions.verify(transactional_id, *producer, wanted))
    codes: Promise[dict[TopicPartition, int]] = Promise()
    added = services.transactions.add_partitions(transactional_id, *producer, wanted, client_version=2)
    added.then(lambda outcome: codes.set(dict.fromkeys(wanted, outcome.error)))
    return codes


def _coordinator_of(services: BrokerServices, transactional_id: str) -> int:
    """Return the node that coordinates an id, -1 if none does now."""
    try:
        index = services.transactions.partition_of(transactional_id)
    except NotCoordinator:
        return -1
    partition = services.image.partition(TRANSACTIONS_TOPIC, index)
    return -1 if partition is None else partition.leader


class VerifiedWrites:
    """The partitions of one Produce request that may begin a transaction, and the reasons why others may not."""

    __slots__ = ("_guards", "_refused", "version")

    def __init__(self, guards: Mapping[TopicPartition, int], codes: Mapping[TopicPartition, int], version: int) -> None:
        self.version = version
        self._guards = guards
        self._refused = {partition: _error(partition, code, version) for partition, code in codes.items() if code}

    @property
    def transaction_version(self) -> int:
        """Return the version of the transaction: 2 if the request adds partitions."""
        return 2 if self.version >= ADDS_SINCE else 0

    def check(self, log: UnifiedLog, batch: Buffer) -> None:
        """Raise the `BrokerError` for a batch that may not be appended now."""
        partition = TopicPartition(log.topic, log.partition)
        refused = self._refused.get(partition)
        if refused is not None:
            raise refused
        producer_id, epoch = producer_of(batch)
        if log.producers.is_in_transaction(producer_id, epoch):
            return
        if self._guards.get(partition) != log.producers.guard(producer_id):  # it ended meanwhile
            raise _error(partition, TransactionAbortable.code, self.version)


def verify_writes(
    services: BrokerServices, transactional_id: str, batches: Mapping[TopicPartition, Buffer], version: int
) -> Promise[VerifiedWrites]:
    """Verify the partitions of a Produce request in which the producer has no open transaction yet.

    Raise `TransactionalIdAuthorizationFailed` for batches of several producers.
    """
    producers = {producer_of(batch) for batch in batches.values()}
    if len(producers) > 1:
        raise TransactionalIdAuthorizationFailed(f"transactional id {transactional_id!r}: batches of several producers")
    logs: dict[TopicPartition, UnifiedLog] = {}
    for partition in batches:
        (producer,) = producers
        try:
            log, _epoch = services.partitions.leader(*partition)
        except BrokerError:  # the append fails, too, and reports it
            continue
        if not log.producers.is_in_transaction(*producer):
            logs[partition] = log
    if not logs:
        return Promise.of(VerifiedWrites({}, {}, version))
    (producer,) = producers
    verified: Promise[VerifiedWrites] = Promise()
    guards: dict[TopicPartition, int] = {}

    def note_guards() -> None:
        guards.update((partition, log.producers.guard(producer[0])) for partition, log in logs.items())

    codes = verify(services, transactional_id, producer, logs, adds=version >= ADDS_SINCE, before_attempt=note_guards)
    codes.then(lambda found: verified.set(VerifiedWrites(guards, found, version)))
    return verified


def _error(partition: TopicPartition, code: int, version: int) -> BrokerError:
    """Return the error of a write for the producer, which may know fewer errors than coordinators have."""
    what = f"{partition}: the write is not part of the producer's open transaction"
    if code == ProducerFenced.code:
        return InvalidProducerEpoch(f"{partition}: a newer producer has the transactional id")
    if code == TransactionAbortable.code and version < _ABORTABLE_SINCE:
        return InvalidTxnState(what)
    if code in _COORDINATOR or (code == ConcurrentTransactions.code and version < ADDS_SINCE):
        return NotEnoughReplicas(f"{partition}: the transaction's coordinator cannot verify the write now: try again")
    return from_code(code, what)
