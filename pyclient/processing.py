"""Exactly once from topics to topics: read, process, write and commit the offsets in one transaction."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from pyclient.backoff import Backoff
from pyclient.clock import Rng
from pyclient.consumer import Consumer, Records
from pyclient.errors import CommitFailed, DeserializationError, KafkaError
from pyclient.producer import Producer, ProducerRecord
from pyclient.producer.transaction_manager import TransactionState
from pyclient.records import Record
from pyclient.types import ErrorAction, OffsetAndMetadata, TopicPartition

logger: Final = logging.getLogger("pyclient.processing")

Outputs = Iterable[ProducerRecord] | ProducerRecord | None
Process = Callable[[Record[Any, Any]], Outputs]

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
            yield ProducerRecord("totals", record.value.upper(), key=record.key)

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
    work = _Work(consumer, producer, process, dead_letter_topic, stop or threading.Event())
    producer.init_transactions()
    with _ending_on(signals, work.end):
        failures = 0
        while not work.ended:
            try:
                work.step(poll_timeout)
                failures = 0
            except KafkaError as error:
                failures += 1
                again = error.action in _AGAIN or isinstance(error, CommitFailed)
                if not again or failures >= attempts:
                    raise
                logger.warning("a transaction is repeated (failure %d in a row): %s", failures, error)
                work.pause(_PAUSE.delay(failures - 1, Rng()))
    return work.processed


class _Work:
    """The state of one `process_transactionally`."""

    def __init__(
        self,
        consumer: Consumer[Any, Any],
        producer: Producer,
        process: Process,
        dead_letter_topic: str | None,
        stop: threading.Event,
    ) -> None:
        self.processed = 0
        self._consumer = consumer
        self._producer = producer
        self._process = process
        self._dead_letter_topic = dead_letter_topic
        self._stop = stop
        self._told_to_end = False
        self._begun: dict[TopicPartition, int] = {}  # where the records of a transaction without an end begin

    @property
    def ended(self) -> bool:
        """True if no further transaction is to begin."""
        return self._told_to_end or self._stop.is_set()

    def end(self) -> None:
        """End the loop after the present transaction; a signal handler may call it, as it takes no lock."""
        self._told_to_end = True

    def pause(self, seconds: float) -> None:
        """Wait, at most until `stop` is set."""
        self._stop.wait(seconds)

    def step(self, poll_timeout: float) -> None:
        """Process the records of one poll in a transaction."""
        if self._begun:
            self._rewind()
        try:
            records = self._consumer.poll(poll_timeout)
        except DeserializationError as error:
            if self._dead_letter_topic is None:
                raise
            self._bury_unread(error, self._dead_letter_topic)
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
            made = self._process(record)
            if made is None:
                return []
            return [made] if isinstance(made, ProducerRecord) else list(made)
        except Exception as error:  # the user's own code may raise anything
            if self._dead_letter_topic is None:
                raise
            place = TopicPartition(record.topic, record.partition)
            logger.warning("%s offset %d goes to %r: %r", place, record.offset, self._dead_letter_topic, error)
            headers = (*record.headers, *_headers_about(place, record.offset, error))
            return [ProducerRecord(self._dead_letter_topic, record.value, record.key, headers)]

    def _bury_unread(self, error: DeserializationError, topic: str) -> None:
        place = TopicPartition(error.topic, error.partition)
        self._begun = {place: error.offset}
        group = self._consumer.group_metadata()
        logger.warning("%s offset %d goes to %r: %s", place, error.offset, topic, error.message)
        headers = (*error.headers, *_headers_about(place, error.offset, error.__cause__ or error))
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
        for place, position in self._consumer.committed(mine).items() if mine else ():
            self._consumer.seek(place, self._begun[place] if position is None else position)
        self._begun = {}


def _headers_about(place: TopicPartition, offset: int, error: BaseException) -> list[tuple[str, bytes]]:
    return [
        ("error", repr(error).encode("utf-8", "replace")),
        ("topic", place.topic.encode()),
        ("partition", b"%d" % place.partition),
        ("offset", b"%d" % offset),
    ]


@contextmanager
def _ending_on(signals: Iterable[signal.Signals], end: Callable[[], None]) -> Iterator[None]:
    """Call `end` for these signals; elsewhere than in the main thread, which alone gets them, do nothing."""
    before: Mapping[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        before = {each: signal.signal(each, lambda number, frame: end()) for each in signals}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
