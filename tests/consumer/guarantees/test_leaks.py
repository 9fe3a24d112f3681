"""Opening and closing consumers leaks nothing: no file, no thread, no memory."""

from __future__ import annotations

import gc
import os
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyclient.broker_embedded.log.compaction.compactor  # noqa: F401 - a broker of other tests loads it in between
from pyclient import Admin, NewTopic, Producer
from pyclient.broker_embedded import EmbeddedCluster
from tests.consumer.consumer_factory import ConsumerFactory, read

PAGE = os.sysconf("SC_PAGE_SIZE")
TOPIC = "t"
WARM = 150  # times after which most arenas of the allocator are there


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """A broker in a process of its own, so that this process has the consumers' memory only."""
    with EmbeddedCluster(processes=True) as cluster:
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(TOPIC, partitions=1)])
        with Producer(cluster.bootstrap_servers) as producer:
            producer.send(TOPIC, b"x").result(30)
        yield cluster


def resident() -> int:
    """Return this process's resident memory in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def handles() -> tuple[int, int]:
    """Open files, and threads; but for those that asyncio looks names up with, and a broker of other tests its disk."""
    gc.collect()
    threads = [each for each in threading.enumerate() if not each.name.startswith(("asyncio_", "pyclient-log-disk"))]
    return len(os.listdir("/proc/self/fd")), len(threads)


def ours() -> int:
    """Count this library's live objects; modules loaded meanwhile do not count."""
    gc.collect()
    return sum(str(type(each).__module__).startswith("pyclient.") for each in gc.get_objects())


@pytest.mark.parametrize("consumers", ["sync-eager", "sync-consumer", "async-eager", "async-consumer"], indirect=True)
@pytest.mark.parametrize(
    "times",
    [pytest.param(25, id="25"), pytest.param(1000, id="1000", marks=[pytest.mark.slow, pytest.mark.timeout(900)])],
)
def test_open_and_close_leak_nothing(times: int, consumers: ConsumerFactory) -> None:
    def once() -> None:
        with consumers(TOPIC, group_id=f"g-{uuid.uuid4().hex[:8]}") as consumer:
            read(consumer, 1)
        consumers.forget(consumer)

    for _ in range(min(times, WARM)):
        once()
    before = handles(), ours(), resident()
    for _ in range(times):
        once()
    deadline = time.monotonic() + 30
    while left := more_than(before, times):
        assert time.monotonic() < deadline, left
        time.sleep(0.02)  # between two looks: what was aborted is closed a moment later


def more_than(before: tuple[tuple[int, int], int, int], times: int) -> str:
    """Return the surplus; empty if there is none."""
    (files, threads), objects, memory = before
    now = handles()
    if now[0] > files or now[1] > threads:
        return f"{now} files and threads, there were {files, threads}: {threading.enumerate()}"
    if (more := ours() - objects) >= 10 + times // 10:  # one consumer is some 80
        return f"{more} objects"
    grown = resident() - memory
    return f"{grown} bytes, {grown / times:.0f} each" if grown >= 4_000_000 + times * 2_000 else ""
