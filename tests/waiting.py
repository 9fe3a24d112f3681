"""Wait for a condition that another thread fulfils."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from pyclient import Consumer, TopicPartition

PATIENCE: Final = 120.0  # seconds; what is waited for takes milliseconds, but on a busy machine many times that


def until(reached: Callable[[], object], failure: str = "the condition was not reached in time") -> None:
    """Block until `reached()` is true; after `PATIENCE` seconds fail with the text `failure`."""
    deadline = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < deadline, failure
        time.sleep(0.002)


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
