"""The transaction coordinator: transactional ids of the partitions of `__transaction_state` that this node leads."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyclient.broker_embedded.groups.partitioning import partition_in
from pyclient.broker_embedded.transactions.events import (
    AddPartitions,
    CompleteLater,
    EndTransaction,
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
)
from pyclient.broker_embedded.transactions.events import Written as WrittenEvent
from pyclient.broker_embedded.transactions.log_records import decode, encode
from pyclient.broker_embedded.transactions.marker_sender import RETRY_SECONDS, MarkerSender
from pyclient.broker_embedded.transactions.promise import Promise
from pyclient.broker_embedded.transactions.state import AT_REST, DEAD, TransactionMetadata
from pyclient.broker_embedded.transactions.transaction import Transaction
from pyclient.config.options import LONG_MAX
from pyclient.errors import (
    BrokerError,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionTimeout,
    KafkaStorageError,
    MessageTooLarge,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    ProtocolError,
    RecordListTooLarge,
    RequestTimedOut,
    TransactionalIdNotFound,
    UnknownServerError,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from pyclient.records import build_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyclient.broker_embedded.transactions.events import Event
    from pyclient.broker_embedded.transactions.runtime import TimerHandle, TransactionRuntime
    from pyclient.types import TopicPartition

_log = logging.getLogger("pyclient.broker_embedded")

_COORDINATOR_ERRORS: Final[dict[int, int]] = {
    UnknownTopicOrPartition.code: CoordinatorNotAvailable.code,
    NotEnoughReplicas.code: CoordinatorNotAvailable.code,
    NotEnoughReplicasAfterAppend.code: CoordinatorNotAvailable.code,
    RequestTimedOut.code: CoordinatorNotAvailable.code,
    NotLeaderOrFollower.code: NotCoordinator.code,
    KafkaStorageError.code: NotCoordinator.code,
    MessageTooLarge.code: UnknownServerError.code,
    RecordListTooLarge.code: UnknownServerError.code,
}
"""The coordinator error for each error of a write to `__transaction_state`, as in Kafka."""


@dataclass(slots=True, eq=False)
class TransactionEntry:
    """A transactional id, its partition of `__transaction_state`, and the leader epoch in which this node has it."""

    transaction: Transaction
    partition: int
    epoch: int

    @property
    def metadata(self) -> TransactionMetadata:
        """The state of the id in the log."""
        return self.transaction.metadata


class TransactionCoordinator:
    """Transactional ids, as the request handlers use them. Not thread-safe: one event loop."""

    def __init__(self, runtime: TransactionRuntime) -> None:
        self.runtime = runtime
        self._sender = MarkerSender(runtime)
        self._entries: dict[str, TransactionEntry] = {}
        self._loaded: dict[int, int] = {}  # partition -> leader epoch
        self._loading: set[int] = set()
        self._timers: dict[str, TimerHandle] = {}

    def __repr__(self) -> str:
        return f"<TransactionCoordinator ids={len(self._entries)} partitions={sorted(self._loaded)}>"

    def __iter__(self) -> Iterator[TransactionEntry]:
        return iter(list(self._entries.values()))

    # Partitions of __transaction_state

    def load(self, partition: int, epoch: int) -> None:
        """Replay a partition that this node now leads in `epoch`, and complete what was decided."""
        self.unload(partition)
        self._loading.add(partition)
        try:
            found = self._replay(partition)
        finally:
            self._loading.discard(partition)
        self._loaded[partition] = epoch
        loaded = [TransactionEntry(Transaction(metadata), partition, epoch) for metadata in found.values()]
        self._entries.update((entry.metadata.transactional_id, entry) for entry in loaded)
        if not self._timers:
            self._schedule("abort", self._abort_seconds, self._abort_timed_out)
            self._schedule("remove", self._remove_seconds, self._remove_expired)
        for entry in loaded:
            self._give(entry, Loaded())

    def unload(self, partition: int) -> None:
        """Stop coordinating a partition's ids; requests that wait are answered with NOT_COORDINATOR."""
        self._loaded.pop(partition, None)
        for entry in self:
            if entry.partition == partition:
                del self._entries[entry.metadata.transactional_id]
                reply = entry.transaction.waiting_reply
                if reply is not None:
                    reply.set(Outcome(NotCoordinator.code))

    def close(self) -> None:
        """Cancel all timers and answer waiting requests with NOT_COORDINATOR."""
        for partition in list(self._loaded):
            self.unload(partition)
        for timer in self._timers.values():
            timer.cancel()

    @property
    def loaded_partitions(self) -> frozenset[int]:
        """Return the partitions of `__transaction_state` that this node coordinates."""
        return frozenset(self._loaded)

    @property
    def is_loading(self) -> bool:
        """Return True while a partition is read."""
        return bool(self._loading)

    def partition_of(self, transactional_id: str) -> int:
        """Return the partition of `__transaction_state` that stores the id.

        Raise `NotCoordinator` if the topic does not exist: only FindCoordinator creates it.
        """
        return partition_in("__transaction_state", transactional_id, self.runtime.partition_count())

    def _replay(self, partition: int) -> dict[str, TransactionMetadata]:
        found: dict[str, TransactionMetadata] = {}
        for key, value in self.runtime.read_partition(partition):
            try:
                record = None if key is None else decode(key, value)
            except (ProtocolError, UnsupportedVersion) as error:  # an unreadable record affects only its own id
                _log.error("__transaction_state-%d: skipped a record that cannot be read: %s", partition, error)
                continue
            if record is None:
                continue
            if record.metadata is None:
                found.pop(record.transactional_id, None)
            else:
                found[record.transactional_id] = record.metadata
        return found

    # Requests

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: tuple[int, int] | None
    ) -> Promise[Outcome]:
        """Serve InitProducerId; the first one of an id creates it. `expected` is the (id, epoch) of the request."""
        longest = self.runtime.config.transaction_max_timeout_ms
        try:
            if not transactional_id:
                raise InvalidRequest("a transactional id must not be empty")
            if not 0 < timeout_ms <= longest:
                raise InvalidTransactionTimeout(f"transaction.timeout.ms is {timeout_ms}: it must be 1 to {longest}")
            partition, epoch = self._led(transactional_id)
        except BrokerError as error:
            return Promise.of(Outcome(error.code))
        reply: Promise[Outcome] = Promise()
        event = InitProducerId(
            reply=reply, timeout_ms=timeout_ms, expected=expected, version=self.runtime.transaction_version
        )
        entry = self._entries.get(transactional_id)
        if entry is not None:
            self._give(entry, event)
            return reply

        def create(error: int, producer_id: int) -> None:
            if error or self._loaded.get(partition) != epoch:
                reply.set(Outcome(error or NotCoordinator.code))
                return
            created = self._entries.get(transactional_id)
            if created is None:
                metadata = TransactionMetadata(
                    transactional_id=transactional_id,
                    producer_id=producer_id,
                    timeout_ms=timeout_ms,
                    last_update_ms=self.runtime.clock.time_ms(),
                )
                created = TransactionEntry(Transaction(metadata), partition, epoch)
                self._entries[transactional_id] = created
            self._give(created, event)

        self.runtime.new_producer_id(create)
        return reply

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: frozenset[TopicPartition],
        *,
        client_version: int = 0,
    ) -> Promise[Outcome]:
        """Serve AddPartitionsToTxn and AddOffsetsToTxn."""
        reply: Promise[Outcome] = Promise()
        event = AddPartitions(
            reply=reply,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            partitions=partitions,
            client_version=client_version,
        )
        return self._ask(transactional_id, event, reply)

    def end(
        self, transactional_id: str, producer_id: int, producer_epoch: int, *, commit: bool, client_version: int
    ) -> Promise[Outcome]:
        """Serve EndTxn: answered when the outcome is decided in the log. The markers follow."""
        reply: Promise[Outcome] = Promise()
        event = EndTransaction(
            reply=reply,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            commit=commit,
            client_version=client_version,
        )
        return self._ask(transactional_id, event, reply)

    def _ask(self, transactional_id: str, event: Event, reply: Promise[Outcome]) -> Promise[Outcome]:
        try:
            self._give(self._known(transactional_id), event)
        except BrokerError as error:
            reply.set(Outcome(error.code))
        return reply

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: frozenset[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return an error code for each partition: 0 if it is in the producer's open transaction."""
        try:
            return self._known(transactional_id).transaction.verify(producer_id, producer_epoch, partitions)
        except BrokerError as error:
            return dict.fromkeys(partitions, error.code)

    def describe(self, transactional_id: str) -> TransactionMetadata:
        """Return the state of an id. Raise `TransactionalIdNotFound`, `InvalidRequest` or a coordinator's error."""
        if not transactional_id:
            raise InvalidRequest("a transactional id must not be empty")
        self._led(transactional_id)
        entry = self._entries.get(transactional_id)
        if entry is None or entry.metadata.state is DEAD:
            raise TransactionalIdNotFound(f"transactional id {transactional_id!r} does not exist")
        return entry.metadata

    def _known(self, transactional_id: str) -> TransactionEntry:
        if not transactional_id:
            raise InvalidRequest("a transactional id must not be empty")
        self._led(transactional_id)
        entry = self._entries.get(transactional_id)
        if entry is None:
            raise InvalidProducerIdMapping(f"transactional id {transactional_id!r} has no producer id")
        return entry

    def _led(self, transactional_id: str) -> tuple[int, int]:
        """Return the partition of an id, with the leader epoch. Raise if this node does not coordinate it (yet)."""
        partition = self.partition_of(transactional_id)
        epoch = self._loaded.get(partition)
        if epoch is not None:
            return partition, epoch
        if partition in self._loading:
            raise CoordinatorLoadInProgress(f"__transaction_state-{partition} is being loaded")
        raise NotCoordinator(f"__transaction_state-{partition} is not led by this broker")

    # Effects

    def _give(self, entry: TransactionEntry, event: Event, producer_id: int = -1) -> None:
        """Give an event to a transactional id, and carry out the effects in their order."""
        now_ms = self.runtime.clock.time_ms()
        for effect in entry.transaction.receive(event, now_ms, producer_id=producer_id):
            match effect:
                case Reply(to, outcome):
                    to.set(outcome)
                case Write(metadata):
                    self._write(entry, metadata)
                case SendMarkers(prepared):
                    self._sender.send(
                        prepared,
                        entry.epoch,
                        wanted=partial(self._is_current, entry),
                        done=partial(self._marked, entry, prepared),
                    )
                case CompleteLater(prepared):
                    self.runtime.schedule(RETRY_SECONDS, partial(self._marked, entry, prepared))
                case NeedProducerId(again):
                    self.runtime.new_producer_id(partial(self._got_producer_id, entry, again))
                case Forget():
                    self._entries.pop(entry.metadata.transactional_id, None)

    def _is_current(self, entry: TransactionEntry) -> bool:
        return self._entries.get(entry.metadata.transactional_id) is entry

    def _write(self, entry: TransactionEntry, metadata: TransactionMetadata) -> None:
        """Append a state. It fails if it is not committed within the transaction's timeout, as in Kafka."""
        kept = None if metadata.state is DEAD else metadata
        limit_ms = self.runtime.config.request_timeout_ms if kept is None else metadata.timeout_ms
        record = encode(metadata.transactional_id, kept, version=self.runtime.transaction_version)
        batch = build_batch([record], timestamp_ms=self.runtime.clock.time_ms())
        code: Promise[int] = Promise()  # set once: a write that is committed too late does not answer the next one
        self.runtime.append(entry.partition, entry.epoch, batch, code.set)
        if code.value is None:
            timer = self.runtime.schedule(limit_ms / 1000, partial(self._expire, entry, limit_ms, code))
            code.then(lambda _code: timer.cancel())
        code.then(partial(self._written, entry))

    def _expire(self, entry: TransactionEntry, limit_ms: int, code: Promise[int]) -> None:
        if self._is_current(entry):
            _log.warning(
                "__transaction_state-%d: a record of transactional id %r is not committed after %d ms: are enough "
                "replicas in sync?", entry.partition, entry.metadata.transactional_id, limit_ms,
            )  # fmt: skip
        code.set(RequestTimedOut.code)

    def _written(self, entry: TransactionEntry, code: int) -> None:
        if self._is_current(entry):
            self._give(entry, WrittenEvent(_COORDINATOR_ERRORS.get(code, code)))

    def _marked(self, entry: TransactionEntry, prepared: TransactionMetadata, *partitions: TopicPartition) -> None:
        if self._is_current(entry):
            self._give(entry, MarkersWritten(prepared, frozenset(partitions)))

    def _got_producer_id(self, entry: TransactionEntry, event: Any, error: int, producer_id: int) -> None:
        reply = getattr(event, "reply", None)
        if not error and self._is_current(entry):
            self._give(entry, event, producer_id)
        elif reply is not None:
            reply.set(Outcome(error or NotCoordinator.code))

    # Time

    def _schedule(self, name: str, seconds: float, work: Any) -> None:
        def run() -> None:
            self._schedule(name, seconds, work)
            work()

        self._timers[name] = self.runtime.schedule(seconds, run)

    @property
    def _abort_seconds(self) -> float:
        return self.runtime.config.transaction_abort_timed_out_transaction_cleanup_interval_ms / 1000

    @property
    def _remove_seconds(self) -> float:
        return self.runtime.config.transaction_remove_expired_transaction_cleanup_interval_ms / 1000

    def _abort_timed_out(self) -> None:
        event = Tick(expiration_ms=LONG_MAX, version=self.runtime.transaction_version)
        for entry in self:
            self._give(entry, event)

    def _remove_expired(self) -> None:
        event = Tick(
            expiration_ms=self.runtime.config.transactional_id_expiration_ms, version=self.runtime.transaction_version
        )
        for entry in self:
            if entry.metadata.state in AT_REST:  # what is open has its own interval
                self._give(entry, event)
