"""A program: open and close consumers, and print what they leave behind. Of its own, so that memory is theirs only."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import uuid
from pathlib import Path

from tests.consumer.consumer_factory import PATIENCE, ConsumerFactory, read
from tests.consumer.guarantees.conftest import WAYS

PAGE = os.sysconf("SC_PAGE_SIZE")
WARM = 150  # times after which most arenas of the allocator are there


def resident() -> int:
    """Return this process's resident memory in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def handles() -> tuple[int, int]:
    """Return the numbers of open files, and of threads except those in which asyncio resolves names."""
    gc.collect()
    threads = [each for each in threading.enumerate() if not each.name.startswith("asyncio_")]
    return len(os.listdir("/proc/self/fd")), len(threads)


def ours() -> int:
    """Return the number of this library's live objects."""
    gc.collect()
    return sum(str(type(each).__module__).startswith("pyclient.") for each in gc.get_objects())


def surplus(before: tuple[tuple[int, int], int, int], times: int) -> str:
    """Return what there is more of than before; empty if nothing."""
    (files, threads), objects, memory = before
    now = handles()
    if now[0] > files or now[1] > threads:
        return f"{now} files and threads, there were {files, threads}: {threading.enumerate()}"
    if (more := ours() - objects) >= 10 + times // 10:  # one consumer is some 80
        return f"{more} objects"
    grown = resident() - memory
    return f"{grown} bytes, {grown / times:.0f} each" if grown >= 4_000_000 + times * 2_000 else ""


def main(servers: str, topic: str, api: str, way: str, times: int) -> str:
    """Return what is left after opening and closing so many consumers, each of which reads a record; empty: nothing."""
    protocol, options = WAYS[way]
    with ConsumerFactory(api, servers, protocol, **options) as consumers:

        def once() -> None:
            with consumers(topic, group_id=f"g-{uuid.uuid4().hex[:8]}") as consumer:
                read(consumer, 1)
            consumers.forget(consumer)

        for _ in range(min(times, WARM)):
            once()
        before = handles(), ours(), resident()
        for _ in range(times):
            once()
        deadline = time.monotonic() + PATIENCE
        while (left := surplus(before, times)) and time.monotonic() < deadline:
            time.sleep(0.02)  # aborted connections are closed a moment later
    return left


if __name__ == "__main__":
    servers, topic, api, way, times = sys.argv[1:]
    sys.exit(main(servers, topic, api, way, int(times)) or None)
