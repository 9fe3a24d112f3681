"""The outputs of a user's function for a record, and the headers of a record that goes to a dead-letter topic."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from inspect import isawaitable
from typing import Any

from pyclient.producer import ProducerRecord
from pyclient.records import Record
from pyclient.types import TopicPartition

Outputs = Iterable[ProducerRecord] | ProducerRecord | None
Process = Callable[[Record[Any, Any]], Outputs]
AsyncProcess = Callable[[Record[Any, Any]], Outputs | Awaitable[Outputs] | AsyncIterable[ProducerRecord]]


def outputs_of(process: Process, record: Record[Any, Any]) -> list[ProducerRecord]:
    """Return the records that `process` returns or yields for `record`."""
    return _listed(process(record))


async def async_outputs_of(process: AsyncProcess, record: Record[Any, Any]) -> list[ProducerRecord]:
    """Return the records that `process`, which may be a coroutine function, returns or yields for `record`."""
    made = process(record)
    if isinstance(made, AsyncIterable):
        return [each async for each in made]
    return _listed(await made if isawaitable(made) else made)


def headers_about(place: TopicPartition, offset: int, error: BaseException) -> list[tuple[str, bytes]]:
    """Return headers that say which record of which partition failed, and why."""
    return [
        ("error", repr(error).encode("utf-8", "replace")),
        ("topic", place.topic.encode()),
        ("partition", b"%d" % place.partition),
        ("offset", b"%d" % offset),
    ]


def _listed(made: Outputs) -> list[ProducerRecord]:
    if made is None:
        return []
    return [made] if isinstance(made, ProducerRecord) else list(made)
