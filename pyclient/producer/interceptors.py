"""Interceptors: users' code that sees every record before it is sent, and its outcome when it is known (KIP-42)."""

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
from pyclient.producer.delivery_future import DeliveryFuture
from pyclient.types import RecordMetadata

logger: Final = logging.getLogger("pyclient.producer")

Pairs = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A record as it was given to `send`, before serializers and partitioner; None where nothing was given.

    It cannot be changed: `record.replace(headers=(*record.headers, ("trace", b"1")))` makes another.
    """

    topic: str
    value: Any = None
    key: Any = None
    headers: Pairs = ()
    partition: int | None = None
    timestamp_ms: int | None = None

    def replace(self, **changes: Any) -> ProducerRecord:
        """The same record but for these fields."""
        return dataclasses.replace(self, **changes)


class ProducerInterceptor:
    """What `interceptors=[...]` takes; a subclass overrides what it needs. Any object with one of the methods will do.

    Several are asked in their order, each about what the one before it made of the record. What one raises is logged,
    and hurts neither the record nor the other interceptors.
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        """Called in the thread of `send`, or of `send_many` for each record.

        Returns the record that goes on, this or another; None for this one.
        """
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None, headers: Pairs) -> None:
        """The record's outcome is known; called where callbacks run, before the record's own ones.

        If it failed, `error` says why, the offset is -1, and so is the partition if it did not get that far. A record
        that `send` itself refuses is told of in the thread of that call. That an interceptor was told does not count
        as somebody having looked: `flush` and `close` raise for the record all the same.
        """


OnSend = Callable[[ProducerRecord], ProducerRecord | None]
Interceptor = ProducerInterceptor | OnSend


def interceptors_of(given: Any) -> tuple[Any, ...]:
    """The value of the option: some interceptors, or one; `ValueError` for what is none."""
    items = tuple(given) if isinstance(given, Iterable) else (given,)
    for item in items:
        methods = [getattr(item, name, None) for name in ("on_send", "on_acknowledgement")]
        if isinstance(item, type) or not (callable(item) or any(map(callable, methods))):
            raise ValueError(f"{item!r} is none")
        if any(map(inspect.iscoroutinefunction, [item, *methods])):
            raise ValueError(f"{item!r} is a coroutine; interceptors are plain functions, for asyncio, too")
    return items


class Interceptors:
    """All interceptors of one producer, one after the other."""

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
        """What the interceptors make of the record."""
        for intercept in self._before:
            try:
                record = _checked(intercept(record), record)
            except Exception:  # the user's own code may raise anything
                logger.exception(
                    "the interceptor %r raised; the record for %r goes on without it", intercept, record.topic
                )
        return record

    def watch(self, record: ProducerRecord, future: DeliveryFuture) -> None:
        """The record was accepted: its outcome will be told."""
        if self._after:
            future.add_done_callback(partial(self._settled, record.headers))

    def refused(self, record: ProducerRecord, error: BaseException) -> None:
        """The record was not accepted."""
        partition = -1 if record.partition is None else record.partition
        timestamp_ms = -1 if record.timestamp_ms is None else record.timestamp_ms
        self._acknowledged(RecordMetadata(record.topic, partition, -1, timestamp_ms), error, record.headers)

    def _settled(self, headers: Pairs, future: DeliveryFuture) -> None:
        delivery: Delivery = future.batch
        delivery, index = delivery.locate(future.index)
        self._acknowledged(delivery.metadata_of(index, future.timestamp_ms), delivery.peek(index), headers)

    def _acknowledged(self, metadata: RecordMetadata, error: BaseException | None, headers: Pairs) -> None:
        for tell in self._after:
            try:
                tell(metadata, error, headers)
            except Exception:  # the user's own code may raise anything
                logger.exception("the interceptor %r raised", tell)


def _checked(returned: Any, record: ProducerRecord) -> ProducerRecord:
    """What an interceptor returned as the record that goes on; `TypeError` if it is none."""
    if returned is None:
        return record
    if not isinstance(returned, ProducerRecord):
        raise TypeError(f"on_send returns a ProducerRecord or None, not {returned!r}")
    headers = returned.headers
    return returned if type(headers) is tuple else returned.replace(headers=as_pairs(headers))


def as_pairs(headers: Any) -> Pairs:
    """Headers as a tuple of pairs, from a mapping too; `SerializationError` for what is neither."""
    if headers is None:
        return ()
    try:
        return tuple(headers.items() if hasattr(headers, "items") else headers)
    except TypeError as error:
        raise SerializationError(f"headers are a mapping or (name, value) pairs, not {headers!r}") from error
