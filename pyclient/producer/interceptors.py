"""Interceptors: users' code that is called for every record before it is sent, and with its outcome (KIP-42)."""

from __future__ import annotations

import dataclasses
import inspect
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pyclient.errors import SerializationError
from pyclient.producer.delivery import Delivery
from pyclient.producer.futures import DeliveryFuture
from pyclient.types import RecordMetadata

logger: Final = logging.getLogger("pyclient.producer")

Pairs = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A record as it was given to `send`, before serializers and partitioner; None for arguments not given.

    It is immutable: `record.replace(headers=(*record.headers, ("trace", b"1")))` returns a changed copy.
    """

    topic: str
    value: Any = None
    key: Any = None
    headers: Pairs = ()
    partition: int | None = None
    timestamp_ms: int | None = None

    def replace(self, **changes: Any) -> ProducerRecord:
        """Return a copy with these fields changed."""
        return dataclasses.replace(self, **changes)


class ProducerInterceptor:
    """Base class for `interceptors=[...]`; any object with one of the methods will do.

    Several are called in order, each with the record that the one before it returned. Exceptions are logged, and
    affect neither the record nor the other interceptors.
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        """Return the record to send, this or another; None for this one.

        Called in the thread of `send`, or of `send_many` for each record.
        """
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None, headers: Pairs) -> None:
        """Handle a record's outcome; called before the record's own callbacks, on the same thread or event loop.

        If it failed, `error` is set and the offset is -1, as is the partition if none was chosen yet. For a record
        that `send` itself refuses it is called in the thread of that call. The call does not count as observing the
        failure: `flush` and `close` still raise for the record.
        """


OnSend = Callable[[ProducerRecord], ProducerRecord | None]
Interceptor = ProducerInterceptor | OnSend


def interceptors_of(given: Any) -> tuple[Any, ...]:
    """Return the option's value, one interceptor or several, as a tuple; raise `ValueError` for anything else."""
    items = tuple(given) if isinstance(given, Iterable) else (given,)
    for item in items:
        methods = [getattr(item, name, None) for name in ("on_send", "on_acknowledgement")]
        if isinstance(item, type) or not (callable(item) or any(map(callable, methods))):
            raise ValueError(f"{item!r} is no interceptor")
        if any(map(inspect.iscoroutinefunction, [item, *methods])):
            raise ValueError(f"{item!r} is a coroutine function; interceptors are plain functions, for asyncio, too")
    return items


class Interceptors:
    """All interceptors of one producer, called in order."""

    def __init__(self, interceptors: Sequence[Any]) -> None:
        self._before: list[OnSend] = []
        self._after: list[Callable[[RecordMetadata, BaseException | None, Pairs], object]] = []
        for one in interceptors:
            on_send, on_acknowledgement = getattr(one, "on_send", None), getattr(one, "on_acknowledgement", None)
            if on_send is None and on_acknowledgement is None:
                on_send = one
            if on_send is not None:
                self._before.append(on_send)
            if on_acknowledgement is not None:
                self._after.append(on_acknowledgement)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Pass the record through the interceptors and return the result."""
        for intercept in self._before:
            try:
                record = _checked(intercept(record), record)
            except Exception:  # the user's own code may raise anything
                logger.exception(
                    "the interceptor %r raised; the record for topic %r is sent without it", intercept, record.topic
                )
        return record

    def watch(self, record: ProducerRecord, future: DeliveryFuture) -> None:
        """Call `on_acknowledgement` once the accepted record is complete."""
        if self._after:
            future.add_done_callback(partial(self._completed, record.headers))

    def refused(self, record: ProducerRecord, error: BaseException) -> None:
        """Call `on_acknowledgement` for a record that was not accepted."""
        partition = -1 if record.partition is None else record.partition
        timestamp_ms = -1 if record.timestamp_ms is None else record.timestamp_ms
        self._acknowledged(RecordMetadata(record.topic, partition, -1, timestamp_ms), error, record.headers)

    def _completed(self, headers: Pairs, future: DeliveryFuture) -> None:
        delivery: Delivery = future.batch
        delivery, index = delivery.locate(future.index)
        self._acknowledged(delivery.metadata_of(index, future.timestamp_ms), delivery.peek(index), headers)

    def _acknowledged(self, metadata: RecordMetadata, error: BaseException | None, headers: Pairs) -> None:
        for on_acknowledgement in self._after:
            try:
                on_acknowledgement(metadata, error, headers)
            except Exception:  # the user's own code may raise anything
                logger.exception("the interceptor %r raised", on_acknowledgement)


def _checked(returned: Any, record: ProducerRecord) -> ProducerRecord:
    """Return the record that an interceptor returned, or `record` for None; raise `TypeError` for anything else."""
    if returned is None:
        return record
    if not isinstance(returned, ProducerRecord):
        raise TypeError(f"on_send returns a ProducerRecord or None, not {returned!r}")
    headers = returned.headers
    return returned if type(headers) is tuple else returned.replace(headers=as_pairs(headers))


def as_pairs(headers: Any) -> Pairs:
    """Return headers, pairs or a mapping, as a tuple of pairs; raise `SerializationError` for anything else."""
    if headers is None:
        return ()
    try:
        return tuple(headers.items() if hasattr(headers, "items") else headers)
    except TypeError as error:
        raise SerializationError(f"headers are a mapping or (name, value) pairs, not {headers!r}") from error
