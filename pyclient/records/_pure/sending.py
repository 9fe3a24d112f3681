"""What a producer does per record: find the open batch, append, and look at the outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from pyclient.records._pure.building import BatchBuilder
from pyclient.records._pure.hashing import partition_for_key
from pyclient.records._pure.record import RecordHandle
from pyclient.types import RecordMetadata

H = TypeVar("H")


class TopicLanes:
    """The open batch of each partition of one topic, and which partition takes the records without a key.

    One thread at a time.
    """

    __slots__ = ("_builders", "_sticky", "_sticky_partition", "count")

    count: int

    def __init__(self) -> None:
        self._builders: list[BatchBuilder | None] = []
        self._sticky: BatchBuilder | None = None
        self._sticky_partition = -1
        self.count = 0

    def resize(self, count: int) -> None:
        """The topic has `count` partitions; open batches of others stay where they are, for who has them."""
        self._builders.extend([None] * (count - len(self._builders)))
        self.count = count

    def open(self, partition: int, builder: BatchBuilder) -> None:
        """The partition's records go into `builder` from now on."""
        self._builders[partition] = builder
        if partition == self._sticky_partition:
            self._sticky = builder

    def close(self, partition: int) -> None:
        """The partition has no open batch."""
        self._builders[partition] = None
        if partition == self._sticky_partition:
            self._sticky = None

    def stick_to(self, partition: int) -> None:
        """Records without a key go to `partition`."""
        self._sticky_partition = partition
        self._sticky = self._builders[partition]

    def append(self, timestamp_ms: int, key: Any, value: Any, headers: Any, partition: int | None) -> Any:
        """Write a record into the open batch of its partition; None where it does not fit or nothing is open.

        Without `partition` the key's hash decides. Raises like `BatchBuilder.append`.
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
    """What the producers share: a table of lanes by topic, and the clock that stamps records."""

    _lanes: dict[str, TopicLanes]
    _append_lock: AbstractContextManager[Any] | None
    _clock_ms: Callable[[], int]

    def __new__(cls, *_: Any, **__: Any) -> Self:
        appender = super().__new__(cls)
        appender._lanes = {}
        appender._append_lock = None
        return appender

    def _stamp_with(self, time_ms: Callable[[], int], *, system: bool) -> None:
        """Timestamps come from `time_ms`; if that is the `system`'s time, the compiled twin may read it itself."""
        self._clock_ms = time_ms

    def _append(
        self, topic: str, timestamp_ms: int | None, key: Any, value: Any, headers: Any, partition: int | None
    ) -> Any:
        """Append a record if that takes nothing but an open batch with room; else None, and nothing has happened.

        `timestamp_ms` None is now. Raises what the codec raises for a record that is none.
        """
        lanes = self._lanes.get(topic) if type(topic) is str else None
        if lanes is None:
            return None
        if timestamp_ms is None:
            timestamp_ms = self._clock_ms()
        if self._append_lock is None:
            return lanes.append(timestamp_ms, key, value, headers, partition)
        with self._append_lock:
            return lanes.append(timestamp_ms, key, value, headers, partition)


class RecordSender(RecordAppender, Generic[H]):
    """`send`, as far as it is the same work for every record; `_send` is the subclass's for everything else."""

    _direct: bool = False  # records need no serializer, partitioner or interceptor
    _lane: Any = None  # only compiled

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
        """Hands one record over for delivery and returns its future, usually at once.

        It waits up to `max_block_ms` for metadata of a new topic and for buffer space together, and raises
        `KafkaTimeout` or `BufferExhausted`. `key` and `value` are bytes or None, or what the serializers take;
        `headers` a mapping or (str, bytes or None) pairs; `timestamp_ms` epoch milliseconds, by default now. Without
        `partition` the key decides as in every Kafka client (murmur2), without a key records are spread (KIP-794).
        `on_delivery(future)` is called on the client's callback thread when the outcome is known.

        Also raises `InvalidTopic`; `UnknownTopicOrPartition` if the topic has no such `partition`, `ValueError` for one
        that is no number from 0; `PartitionerError` if the partitioner fails or chooses none there is;
        `MessageTooLarge`; `SerializationError` for a key, value, header or `timestamp_ms` that cannot be written;
        `TypeError` for an `on_delivery` that cannot be called; `ClosedError`; `ForkError`; and what else the cluster
        says of the topic, like `TopicAuthorizationFailed`.
        """
        handle: Any = None
        if on_delivery is not None:
            _check_callback(on_delivery, "on_delivery")
        if self._direct and (timestamp_ms is None or (type(timestamp_ms) is int and timestamp_ms >= 0)):
            if type(headers) is dict:
                headers = list(headers.items())
            try:
                if headers is None or type(headers) is list or type(headers) is tuple:
                    handle = self._append(topic, timestamp_ms, key, value, headers, partition)
            except (TypeError, UnicodeEncodeError, OverflowError):
                handle = None  # the record is none: `_send` says so in words
        if handle is None:
            handle = self._send(topic, value, key, headers, partition, timestamp_ms)
        if on_delivery is not None:
            handle.add_done_callback(on_delivery)
        return handle  # type: ignore[no-any-return]


def _check_callback(callback: object, name: str) -> None:
    """Refuse what could only fail when it is called."""
    if not callable(callback):
        raise TypeError(f"{name}={callback!r} is not possible: it takes a function that is called with the future")


class BatchOutcome:
    """What became of a batch, as far as its records' futures look at it again and again."""

    __slots__ = (
        "_waiters", "base_offset", "callbacks", "count", "delivered", "desk", "error", "failure", "log_append_time_ms",
        "partition", "parts", "record_errors", "starts", "state", "topic",
    )  # fmt: skip

    topic: str
    partition: int
    base_offset: int
    log_append_time_ms: int
    delivered: bool
    callbacks: list[Any] | None  # for each one its record's index, itself, and its argument; None once they were taken

    def __init__(self, *_: Any, **__: Any) -> None:
        self.delivered = False
        self.callbacks = None


def _is_timeout(timeout: Any) -> bool:
    """Return True for None and a number from 0; the slow path says what is wrong with anything else."""
    return timeout is None or (type(timeout) in (int, float) and timeout >= 0)


class OutcomeHandle(RecordHandle):
    """A handle whose `batch` is a `BatchOutcome`; what is not delivered (yet) is the subclass's affair."""

    __slots__ = ()

    if TYPE_CHECKING:

        def _done(self) -> bool: ...
        def _exception(self, timeout: float | None) -> BaseException | None: ...
        def _result(self, timeout: float | None) -> RecordMetadata: ...
        def _add_done_callback(self, callback: Callable[[Any], object]) -> None: ...

    def done(self) -> bool:
        """Whether the outcome is known."""
        return True if self.batch.delivered else self._done()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Why the record was not delivered, None if it was; waits up to `timeout` seconds (None: no limit).

        Raises `KafkaTimeout` if the outcome is not known in time.
        """
        return None if self.batch.delivered and _is_timeout(timeout) else self._exception(timeout)

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Calls `callback(future)` when the outcome is known: on the client's callback thread, or the async loop."""
        _check_callback(callback, "callback")
        self._add_done_callback(callback)

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Where the record is; waits up to `timeout` seconds (None: no limit).

        Raises the delivery's error if it failed, `KafkaTimeout` if the outcome is not known in time.
        """
        outcome: BatchOutcome = self.batch
        if not outcome.delivered or not _is_timeout(timeout):
            return self._result(timeout)
        offset = outcome.base_offset + self.index if outcome.base_offset >= 0 else -1
        time = self.timestamp_ms if outcome.log_append_time_ms < 0 else outcome.log_append_time_ms
        return RecordMetadata(outcome.topic, outcome.partition, offset, time)
