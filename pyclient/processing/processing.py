# Generated from pyclient/processing/async_processing.py by `make sync-clients`; edit that file instead.
"""`process_transactionally`: the synchronous API."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterable
from typing import Any, Final

from pyclient.backoff import Backoff
from pyclient.consumer import Consumer, Records
from pyclient.errors import CommitFailed, DeserializationError, KafkaError
from pyclient.net.surroundings import SURROUNDINGS
from pyclient.processing.endings import Ending, ending_on, pause
from pyclient.processing.outputs import Process, headers_about, outputs_of
from pyclient.producer import Producer, ProducerRecord
from pyclient.producer.transaction_manager import TransactionState
from pyclient.records import Record
from pyclient.types import ErrorAction, OffsetAndMetadata, TopicPartition

logger: Final = logging.getLogger("pyclient.processing")

_AGAIN: Final = frozenset({ErrorAction.ABORT, ErrorAction.RETRY})
_PAUSE: Final = Backoff(0.1, 5.0)


def process_transactionally(
    consumer: Consumer[Any, Any],
    producer: Producer,
    process: Process,
    *,
    dead_letter_topic: str | None = None,
    poll_timeout: float = 1.0,
    attempts: int = 10,
    stop: threading.Event | None = None,
    signals: Iterable[signal.Signals] = (signal.SIGTERM,),
) -> int:
    """Process the consumer's records until `stop` is set or a signal comes; return how many were processed.

        def process(record):
            yield ProducerRecord("totals", total_of(record.value), key=record.key)

        process_transactionally(consumer, producer, process, dead_letter_topic="orders.dead")

    All records of a poll, what `process` returns or yields for them, and the new offsets are one transaction, so a
    crash, a rebalance or a retry at any moment neither loses nor repeats an effect for readers of committed records.
    The consumer has a group, `enable_auto_commit=False` and `isolation_level="read_committed"`; `max_poll_records` is
    the most records of a transaction. The producer has a `transactional_id`, of which each running instance has its
    own; it is initialized here. Leave decoding to `process`, so that what cannot be decoded is kept as bytes.

    A record for which `process` raises, and one that cannot be deserialized, goes to the `dead_letter_topic` as it was
    read, with the headers `error`, `topic`, `partition` and `offset`; without that topic the transaction is aborted and
    the error raised. After an error of Kafka that aborts the transaction its records are processed again, up to
    `attempts` times in a row. Other errors are raised: `ProducerFenced`, for example, if another instance uses the
    transactional id. A signal (`signals`, in the main thread only) ends the loop after the present transaction.
    """
    stop = stop or threading.Event()
    ending = Ending(stop)
    work = _Work(consumer, producer, process, dead_letter_topic)
    rng = SURROUNDINGS.get().new_rng()
    producer.init_transactions()
    with ending_on(signals, ending.signal):
        failures = 0
        while not ending.has_come:
            try:
                work.step(poll_timeout)
                failures = 0
            except KafkaError as error:
                failures += 1
                again = error.action in _AGAIN or isinstance(error, CommitFailed)
                if not again or failures >= attempts:
                    raise
                logger.warning("a transaction is repeated (failure %d in a row): %s", failures, error)
                pause(stop, _PAUSE.delay(failures - 1, rng))
    return work.processed


class _Work:
    """The state of one loop of transactions."""

    def __init__(
        self,
        consumer: Consumer[Any, Any],
        producer: Producer,
        process: Process,
        dead_letter_topic: str | None,
    ) -> None:
        self.processed = 0
        self._consumer = consumer
        self._producer = producer
        self._process = process
        self._dead_letter_topic = dead_letter_topic
        self._begun: dict[TopicPartition, int] = {}  # where the records of a transaction without an end begin

    def step(self, poll_timeout: float) -> None:
        """Process the records of one poll in a transaction."""
        if self._begun:
            self._rewind()
        try:
            records = self._consumer.poll(poll_timeout)
        except DeserializationError as error:
            if self._dead_letter_topic is None:
                raise
            self._send_unread_to_dead_letters(error, self._dead_letter_topic)
            return
        if records:
            self._begun = {place: part[0].offset for place, part in records.by_partition().items()}
            self._transact(records)
            self._begun = {}
            self.processed += len(records)

    def _transact(self, records: Records[Any, Any]) -> None:
        group = self._consumer.group_metadata()
        with self._producer.transaction():
            for record in records:
                for output in self._outputs_of(record):
                    self._send(output)
            self._producer.send_offsets_to_transaction(records.next_offsets(), group)

    def _outputs_of(self, record: Record[Any, Any]) -> list[ProducerRecord]:
        try:
            return outputs_of(self._process, record)
        except Exception as error:  # the user's own code may raise anything
            if self._dead_letter_topic is None:
                raise
            place = TopicPartition(record.topic, record.partition)
            logger.warning("%s offset %d goes to %r: %r", place, record.offset, self._dead_letter_topic, error)
            headers = (*record.headers, *headers_about(place, record.offset, error))
            return [ProducerRecord(self._dead_letter_topic, record.value, record.key, headers)]

    def _send_unread_to_dead_letters(self, error: DeserializationError, topic: str) -> None:
        place = TopicPartition(error.topic, error.partition)
        self._begun = {place: error.offset}
        group = self._consumer.group_metadata()
        logger.warning("%s offset %d goes to %r: %s", place, error.offset, topic, error.message)
        headers = (*error.headers, *headers_about(place, error.offset, error.__cause__ or error))
        with self._producer.transaction():
            self._send(ProducerRecord(topic, error.value, error.key, headers))
            self._producer.send_offsets_to_transaction({place: OffsetAndMetadata(error.next_offset)}, group)
        self._begun = {}
        self._consumer.seek(place, error.next_offset)
        self.processed += 1

    def _send(self, record: ProducerRecord) -> None:
        self._producer.send(
            record.topic, record.value, key=record.key, headers=record.headers or None,
            partition=record.partition, timestamp_ms=record.timestamp_ms,
        )  # fmt: skip

    def _rewind(self) -> None:
        """Read the records of a transaction that failed again, from what is committed."""
        state = self._producer.health()["transaction_state"]
        if state == TransactionState.ABORTABLE_ERROR.value:
            self._producer.abort_transaction()
        elif state != TransactionState.READY.value:  # the outcome of the commit is not known
            self._producer.init_transactions()
        mine = [place for place in self._begun if place in self._consumer.assignment()]
        found = self._consumer.committed(mine) if mine else {}
        for place, position in found.items():
            self._consumer.seek(place, self._begun[place] if position is None else position)
        self._begun = {}
