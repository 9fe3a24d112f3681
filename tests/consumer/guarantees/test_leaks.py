"""Consumers that are opened and closed leave nothing: no file, no thread, no memory."""

from __future__ import annotations

import gc
import os
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.consumer.consumer_faces import Faces, read

NewTopic = Callable[..., str]
Produce = Callable[..., None]

PAGE = os.sysconf("SC_PAGE_SIZE")


def resident() -> int:
    """Bytes of memory that this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def handles() -> tuple[int, int]:
    gc.collect()
    return len(os.listdir("/proc/self/fd")), threading.active_count()


@pytest.mark.parametrize("consumers", ["sync-eager", "sync-consumer", "async-eager", "async-consumer"], indirect=True)
@pytest.mark.parametrize(
    "times",
    [pytest.param(25, id="25"), pytest.param(1000, id="1000", marks=[pytest.mark.slow, pytest.mark.timeout(900)])],
)
def test_opening_and_closing_leaves_nothing_behind(
    times: int, consumers: Faces, new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic()
    produce(topic, b"x")

    def once() -> None:
        with consumers(topic, group_id=f"g-{uuid.uuid4().hex[:8]}") as consumer:
            read(consumer, 1)
        consumers.forget(consumer)

    for _ in range(3):
        once()
    before, memory = handles(), resident()
    for _ in range(times):
        once()
    for _ in range(200):  # the broker's side of the connections closes a moment later
        if handles() <= before:
            break
        time.sleep(0.02)
    now = handles()
    assert now[0] <= before[0]
    assert now[1] <= before[1]
    grown = resident() - memory  # of client and broker, which keeps what it has to know of each group
    assert grown < 4_000_000 + times * 40_000, f"{grown / times:.0f} bytes each"
