"""The producer's work per record in Python: find the open batch, append, and read the outcome.

Type checkers use it for the compiled `_speedups` as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from pyclient.producer.checks import check_callback
from pyclient.records import BatchBuilder, RecordHandle, partition_for_key
from pyclient.types import RecordMetadata

H = TypeVar("H")


class OpenBatches:
    """The open batch of each partition of one topic, and the partition for records without a key.

    Not thread-safe.
    """

    __slots__ = ("_builders", "_sticky", "_sticky_partition", "count")

    count: int

    def __init__(self) -> None:
        self._builders: list[BatchBuilder | None] = []
        self._sticky: BatchBuilder | None = None
        self._sticky_partition = -1
        self.count = 0

    def resize(self, count: int) -> None:
        """Set the number of partitions; open batches of removed partitions are kept."""
        self._builders.extend([None] * (count - len(self._builders)))
        self.count = count

    def open(self, partition: int, builder: BatchBuilder) -> None:
        """Append the partition's records to `builder` from now on."""
        self._builders[partition] = builder
        if partition == self._sticky_partition:
            self._sticky = builder

    def close(self, partition: int) -> None:
        """Remove the partition's open batch."""
        self._builders[partition] = None
        if partition == self._sticky_partition:
            self._sticky = None

    def stick_to(self, partition: int) -> None:
        """Append records without a key to `partition`."""
        self._sticky_partition = partition
        self._sticky = self._builders[partition]

    def append(self, timestamp_ms: int, key: Any, value: Any, headers: Any, partition: int | None) -> Any:
        """Append a record to the open batch of its partition; None if it does not fit or no batch is open.

        Without `partition` the key's hash decides. Errors as `BatchBuilder.append`.
        """
        if partition is None:
            if key is None:
                builder = self._sticky
            elif self.count:
                builder = self._builders[partition_for_key(key, self.count)]
            else:
                builder = None
        else:
            builder = self._builders[partition] if type(partition) is int and 0 <= partition < self.count else None
        return None if builder is None else builder.append(timestamp_ms, key, value, headers)


class RecordAppender:
    """Base of the producers: open batches by topic, and the clock for timestamps."""

    _open_batches: dict[str, OpenBatches]
    _append_lock: AbstractContextManager[Any] | None
    _clock_ms: Callable[[], int]

    def __new__(cls, *_: Any, **__: Any) -> Self:
        appender = super().__new__(cls)
        appender._open_batches = {}
        appender._append_lock = None
        return appender

    def _stamp_with(self, time_ms: Callable[[], int], *, system: bool) -> None:
        """Take timestamps from `time_ms`; if it is the `system`'s time, the compiled codec reads the clock directly."""
        self._clock_ms = time_ms

    def _append(
        self, topic: str, timestamp_ms: int | None, key: Any, value: Any, headers: Any, partition: int | None
    ) -> Any:
        """Append a record if its partition has an open batch with room; else return None without any effect.

        `timestamp_ms` None means now. Raise the codec's errors for an invalid record.
        """
        open_batches = self._open_batches.get(topic) if type(topic) is str else None
        if open_batches is None:
            return None
        if timestamp_ms is None:
            timestamp_ms = self._clock_ms()
        if self._append_lock is None:
            return open_batches.append(timestamp_ms, key, value, headers, partition)
        with self._append_lock:
            return open_batches.append(timestamp_ms, key, value, headers, partition)


class RecordSender(RecordAppender, Generic[H]):
    """`send` for records that fit an open batch; the subclass's `_send` handles all other cases."""

    _direct: bool = False  # records need no serializer, partitioner or interceptor
    _fast_path: Any = None  # only compiled

    if TYPE_CHECKING:

        def _send(
            self, topic: str, value: Any, key: Any, headers: Any, partition: int | None, timestamp_ms: int | None
        ) -> H: ...

    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: Iterable[tuple[str, bytes | None]] | Mapping[str, bytes | None] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: Callable[[H], object] | None = None,
    ) -> H:
        """Queue one record for delivery and return its future, usually without blocking.

        Block up to `max_block_ms` for metadata of a new topic and for buffer space together, then raise `KafkaTimeout`
        or `BufferExhausted`. `key` and `value` are bytes or None, or any type that the serializers accept; `headers` a
        mapping or (str, bytes or None) pairs; `timestamp_ms` epoch milliseconds, by default now. Without `partition`
        the key decides as in every Kafka client (murmur2); records without a key are distributed (KIP-794).
        `on_delivery(future)` is called on the client's callback thread when the outcome is known.

        Also raise `InvalidTopic`; `UnknownTopicOrPartition` if the topic has no such `partition`, `ValueError` if it is
        not a number from 0; `PartitionerError` if the partitioner fails or returns an invalid partition;
        `MessageTooLarge`; `SerializationError` for a key, value, header or `timestamp_ms` that cannot be encoded;
        `TypeError` if `on_delivery` is not callable; `ClosedError`; `ForkError`; and the cluster's errors for the
        topic, e.g. `TopicAuthorizationFailed`.
        """
        handle: Any = None
        if on_delivery is not None:
            check_callback(on_delivery, "on_delivery")
        if self._direct and (timestamp_ms is None or (type(timestamp_ms) is int and timestamp_ms >= 0)):
            if type(headers) is dict:
                headers = list(headers.items())
            try:
                if headers is None or type(headers) is list or type(headers) is tuple:
                    handle = self._append(topic, timestamp_ms, key, value, headers, partition)
            except (TypeError, UnicodeEncodeError, OverflowError):
                handle = None  # an invalid record: `_send` raises the error
        if handle is None:
            handle = self._send(topic, value, key, headers, partition, timestamp_ms)
        if on_delivery is not None:
            handle.add_done_callback(on_delivery)
        return handle  # type: ignore[no-any-return]


class BatchOutcome:
    """The outcome of a batch: the fields that its records' futures read often."""

    __slots__ = (
        "base_offset", "callbacks", "context", "count", "delivered", "error", "failure",
        "log_append_time_ms", "partition", "parts", "record_errors", "starts", "state", "topic", "waiters",
    )  # fmt: skip

    topic: str
    partition: int
    base_offset: int
    log_append_time_ms: int
    delivered: bool
    callbacks: list[Any] | None  # three items each: record index, callback, its argument; None once taken

    def __init__(self, *_: Any, **__: Any) -> None:
        self.delivered = False
        self.callbacks = None


def _is_timeout(timeout: Any) -> bool:
    """Return True for None and a number from 0; for other values the slow path raises the error."""
    return timeout is None or (type(timeout) in (int, float) and timeout >= 0)


class OutcomeHandle(RecordHandle):
    """A handle whose `batch` is a `BatchOutcome`; the subclass handles batches that are not delivered."""

    __slots__ = ()

    if TYPE_CHECKING:

        def _done(self) -> bool: ...
        def _exception(self, timeout: float | None) -> BaseException | None: ...
        def _result(self, timeout: float | None) -> RecordMetadata: ...
        def _add_done_callback(self, callback: Callable[[Any], object]) -> None: ...

    def done(self) -> bool:
        """Return True if the outcome is known."""
        return True if self.batch.delivered else self._done()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the delivery's error, None if it succeeded; block up to `timeout` seconds (None: no limit).

        Raise `KafkaTimeout` if the outcome is not known in time.
        """
        return None if self.batch.delivered and _is_timeout(timeout) else self._exception(timeout)

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Call `callback(future)` when the outcome is known, on the client's callback thread or the event loop."""
        check_callback(callback, "callback")
        self._add_done_callback(callback)

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Return the record's metadata; block up to `timeout` seconds (None: no limit).

        Raise the delivery's error if it failed, `KafkaTimeout` if the outcome is not known in time.
        """
        outcome: BatchOutcome = self.batch
        if not outcome.delivered or not _is_timeout(timeout):
            return self._result(timeout)
        offset = outcome.base_offset + self.index if outcome.base_offset >= 0 else -1
        time = self.timestamp_ms if outcome.log_append_time_ms < 0 else outcome.log_append_time_ms
        return RecordMetadata(outcome.topic, outcome.partition, offset, time)
