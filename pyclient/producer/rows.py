"""`send_many` row by row, for producers with interceptors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyclient.clock import SYSTEM_CLOCK
from pyclient.errors import KafkaError
from pyclient.producer.batch_future import BatchFuture, Span
from pyclient.producer.column_arguments import check_lengths, plain_headers, times_of
from pyclient.producer.delivery import Delivery
from pyclient.producer.delivery_desk import DeliveryDesk
from pyclient.producer.delivery_future import DeliveryFuture
from pyclient.producer.interceptors import ProducerRecord, as_pairs
from pyclient.producer.tables import Given, is_arrow


def records_of(topic: str, given: Given) -> list[ProducerRecord]:
    """Return the arguments of `send_many` as records; raise `ValueError` if the columns differ in length."""
    headers, times = given.headers, given.timestamps_ms
    if is_arrow(times):
        times = times_of(SYSTEM_CLOCK, topic, times)
    columns = {"values": _listed(given.values), "keys": _listed(given.keys)}
    columns["headers"] = None if headers is None else list(plain_headers(topic, headers))
    columns["timestamps_ms"] = _listed(times) if isinstance(times, Iterable) else None
    check_lengths(topic, columns)
    key, header, time = columns["keys"], columns["headers"], columns["timestamps_ms"]
    return [
        ProducerRecord(
            topic,
            value,
            None if key is None else key[row],
            () if header is None else as_pairs(header[row]),
            partition,
            times if time is None else time[row],
        )
        for row, (value, partition) in enumerate(zip(columns["values"] or (), given.partitions(), strict=True))
    ]


def _listed(column: Any) -> list[Any] | None:
    if column is None:
        return None
    return list(column.to_pylist() if hasattr(column, "to_pylist") else column)


class SentRows:
    """Collects the results of the rows of a `send_many` that are sent one by one."""

    def __init__(self, desk: DeliveryDesk, topic: str, count: int) -> None:
        self._desk = desk
        self._topic = topic
        self._count = count
        self._sent: list[tuple[Delivery, int, list[int], list[int]]] = []  # batch, first index, rows, timestamps
        self._refused: dict[int, BaseException] = {}

    def sent(self, row: int, future: DeliveryFuture) -> None:
        """Add a row that was accepted."""
        if self._sent:
            batch, first, rows, times = self._sent[-1]
            if batch is future.batch and first + len(rows) == future.index:
                rows.append(row)
                times.append(future.timestamp_ms)
                return
        self._sent.append((future.batch, future.index, [row], [future.timestamp_ms]))

    def refused(self, row: int, error: KafkaError | ValueError) -> None:
        """Add a row that was not accepted."""
        self._refused[row] = error

    def future(self) -> BatchFuture:
        """Return the future of all rows; raise the first error if none was accepted."""
        spans = [Span(*sent) for sent in self._sent]
        if self._refused:
            first = next(iter(self._refused.values()))
            if not spans:
                raise first
            delivery = Delivery(self._desk, self._topic, -1)
            delivery.fail(len(self._refused), first, dict(enumerate(self._refused.values())))
            spans.append(Span(delivery, 0, list(self._refused), -1))
        return BatchFuture(self._desk, self._count, spans)
