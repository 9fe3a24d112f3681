"""Wait for a condition that another thread, task or process fulfils."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from pyclient import Consumer, TopicPartition

PATIENCE: Final = 120.0  # seconds; what is waited for takes milliseconds, but on a busy machine many times that


T = TypeVar("T")

NOT_REACHED: Final = "the condition was not reached in time"


def until(reached: Callable[[], T], failure: object = NOT_REACHED) -> T:
    """Block until `reached()` is true, and return it; after `PATIENCE` seconds fail with `failure`.

    `failure` is a text, or a function that returns what is shown.
    """
    deadline = time.monotonic() + PATIENCE
    while not (state := reached()):
        assert time.monotonic() < deadline, failure() if callable(failure) else failure
        time.sleep(0.002)
    return state


async def until_async(reached: Callable[[], T], failure: object = NOT_REACHED) -> T:
    """Wait like `until`, on an event loop."""
    deadline = time.monotonic() + PATIENCE
    while not (state := reached()):
        assert time.monotonic() < deadline, failure() if callable(failure) else failure
        await asyncio.sleep(0.002)
    return state


def until_decided(servers: str, places: Iterable[TopicPartition]) -> None:
    """Wait until no transaction is open in these partitions: a commit is answered before its markers are written."""
    partitions = [*places]
    with (
        Consumer(bootstrap_servers=servers, isolation_level="read_committed") as reader,
        Consumer(bootstrap_servers=servers) as other,
    ):
        until(
            lambda: reader.end_offsets(partitions) == other.end_offsets(partitions), "the last stable offset is stuck"
        )
