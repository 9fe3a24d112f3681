"""Costs of single parts of the broker, without a running one: matching, sessions, recovery, compaction, long arrays.

`python -m benchmarks.broker_parts [--only NAME]`
"""

from __future__ import annotations

import asyncio
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
import uuid
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import re2

from benchmarks.broker_steps import LogDirectory, Measured, Steps, fill
from benchmarks.details import Case, Figure, least, run, span
from pyclient.broker_embedded.groups.consumer.patterns import Regex
from pyclient.broker_embedded.log.compaction.offset_map import OffsetMap
from pyclient.broker_embedded.log.file_records import FileRecords
from pyclient.broker_embedded.log.filesystem import RealFileSystem
from pyclient.broker_embedded.log.manager import _PARTS
from pyclient.broker_embedded.replication.fetch_sessions import MOST_IN_ALL, FetchSessions, wanted_of
from pyclient.net import frames
from pyclient.protocol import codec
from pyclient.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pyclient.records import build_batch, stamp_offsets

KIB = 1 << 10
LOGS = 2000
MOST_KEYS = 600_000
_TOPIC_ID = uuid.UUID(int=7)
_FETCH_VERSION = 11
_FRAMES = 400


def expressions() -> Iterator[Figure]:
    """Measure RE2 on the name of one topic, and compiling its pattern."""
    names = [f"orders.region-{number}.v1" for number in range(1000)]
    long = "abc" * 83  # a name of 249 characters, as long as they may be
    works = {
        "orders.*": ("orders.*", names),
        "orders\\.(region|place)-[0-9]+\\.v[12]": ("orders\\.(region|place)-[0-9]+\\.v[12]", names),
        "hostile, 700 times (a?b?c?d?)*x": ("|".join(["(a?b?c?d?)*x"] * 700), [long] * 20),
        "hostile, (.*.*.*)*x": ("(.*.*.*)*x", [long] * 20),
        "hostile, (a character of three){1,30} {1,30} times": ("([a-c]{1,30}){1,30}x", [long] * 20),
    }
    for name, (pattern, topics) in works.items():
        compiled = min(_compiling(pattern) for _ in range(5))
        work = partial(_match_each, Regex(pattern).matches, topics)
        yield from least({f"{name}: a name of {len(topics[0])} characters": work}, len(topics))
        yield span(f"{name}: compiled", compiled)


def _match_each(matches: Callable[[str], bool], topics: list[str]) -> int:
    return sum(map(matches, topics))


def _compiling(pattern: str) -> int:
    re2.purge()
    started = time.thread_time_ns()
    Regex(pattern)
    return time.thread_time_ns() - started


def sessions() -> Iterator[Figure]:
    """Measure the memory, in MB, of as many partitions as all fetch sessions may have."""
    each = MOST_IN_ALL // 5
    partitions = [
        FetchPartition(partition=number, fetch_offset=number * 1000, partition_max_bytes=1 << 20)
        for number in range(each)
    ]
    topics = [FetchTopic(topic="a-topic", partitions=partitions)]
    message = FetchRequest(replica_id=-1, max_wait_ms=500, min_bytes=1, session_epoch=0, topics=topics)
    request = codec.encode(message, _FETCH_VERSION)
    kept = FetchSessions(1000, Random(7))
    tracemalloc.start()
    for number in range(5):
        wanted = _result(wanted_of(codec.decode(FetchRequest, _FETCH_VERSION, request)))
        assert kept.open(wanted, uses_topic_ids=False, now=0.0, owner=number) is not None
    yield Figure(f"{MOST_IN_ALL:,} partitions", tracemalloc.get_traced_memory()[0] / 1e6, "MB")
    tracemalloc.stop()


def _result(steps: Generator[Any, Any, Any]) -> Any:
    """Run steps to their end and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def items() -> Iterator[Figure]:
    """Measure the work on long arrays between two pauses: 32 items are encoded or decoded."""
    partitions = [
        FetchPartition(partition=number, fetch_offset=number * 1000, partition_max_bytes=1 << 20)
        for number in range(10_000)
    ]
    fetch = FetchRequest(
        replica_id=-1, max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic="a", partitions=partitions)]
    )
    topics = MetadataRequest(topics=[MetadataRequestTopic(name=f"a-topic-{number}") for number in range(10_000)])
    for name, message, version in (("Fetch", fetch, _FETCH_VERSION), ("Metadata", topics, 9)):
        data = codec.encode(message, version)
        encode, decode = codec.encoder_in_steps(type(message), version), codec.decoder_in_steps(type(message), version)
        yield span(f"{name}: 32 items encoded", min(_median_step(encode(message)) for _ in range(9)))
        yield span(f"{name}: 32 items decoded", min(_median_step(decode(data, 0)) for _ in range(9)))


def _median_step(steps: Generator[Any, Any, Any]) -> float:
    taken = []
    while True:
        started = time.thread_time_ns()
        try:
            next(steps)
        except StopIteration:
            return statistics.median(taken)
        taken.append(time.thread_time_ns() - started)


def offset_map() -> Iterator[Figure]:
    """Measure resident bytes of a key in the map of compaction, and its longest addition, when a table grows."""
    keys = [b"a-long-key-of-a-record-%09d" % number for number in range(MOST_KEYS)]
    before, sizes = _resident(), []
    found = OffsetMap(len(keys))
    for number, key in enumerate(keys):
        found.put(key, number)
        if number >= 50_000 and not number % 10_000:
            sizes.append((_resident() - before) / number)
    yield Figure("least memory of a key", min(sizes), "bytes")
    yield Figure("most memory of a key", max(sizes), "bytes")
    longest: dict[str, list[int]] = {"one table": [], "the map's tables": []}
    for _ in range(7):
        table: dict[bytes, int] = {}
        longest["one table"].append(_longest(table.__setitem__, keys))
        longest["the map's tables"].append(_longest(OffsetMap(len(keys)).put, keys))
    for name, taken in longest.items():
        yield span(f"longest addition of {len(keys):,}, {name}", min(taken))


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _longest(put: Callable[[bytes, int], object], keys: list[bytes]) -> int:
    longest = 0
    for number, key in enumerate(keys):
        started = time.thread_time_ns()
        put(key, number)
        longest = max(longest, time.thread_time_ns() - started)
    return longest


def headers() -> Iterator[Figure]:
    """Measure the walk over the batches of a segment: by their positions only, and with their headers decoded."""
    count = 20_000
    with tempfile.TemporaryDirectory(prefix="pyclient-bench-") as folder:
        data = bytearray()
        batch = bytearray(build_batch([(None, b"x" * 100)] * 10, timestamp_ms=1_700_000_000_000))
        for number in range(count):
            stamp_offsets(batch, 0, number * 10, 0)
            data += batch
        path = f"{folder}/00000000000000000000.log"
        with open(path, "wb") as file:
            file.write(data)
        records = FileRecords(RealFileSystem().file(path), 0, len(data))
        works: dict[str, Callable[[], object]] = {
            "positions, a batch": lambda: sum(1 for _ in records.batch_positions(0)),
            "headers, a batch": lambda: sum(1 for _ in records.walk(0)),
        }
        yield from least(works, count)


def recovery() -> Iterator[Figure]:
    """Measure the share of a core that opening logs after a crash takes: without pauses, and with those of a broker."""
    with tempfile.TemporaryDirectory(prefix="pyclient-bench-") as folder:
        directory = LogDirectory(folder, 0)
        manager = directory.manager()
        for number in range(LOGS):
            fill(manager.create("a-topic", _TOPIC_ID, number, manager.defaults), 1, 3, 100)
        manager.close(clean=False)
        manager = directory.manager()
        manager.recovery_queue.request_all()

        async def opened() -> tuple[float, float]:
            background = Measured(asyncio.get_running_loop(), manager.disk_thread, Steps())
            cpu, started = time.thread_time_ns(), time.perf_counter_ns()
            background.run("opening logs", manager.recovery_queue.steps())
            await background.over.wait()
            return (time.thread_time_ns() - cpu) / LOGS, (time.perf_counter_ns() - started) / LOGS

        cpu, passed = asyncio.run(opened())
        manager.disk_thread.wake = None
        manager.close(clean=False)
    pause = 0.05e9
    yield span("CPU time of the loop, a log", cpu)
    yield Figure("without pauses", cpu / passed * 100, "% of a core")
    yield Figure("with pauses of 50 ms", cpu / (passed + pause) * 100, "% of a core")


def modules() -> Iterator[Figure]:
    """Measure the import of the modules of log compaction, by a broker that serves: all, and the longest of them."""
    program = f"""
import importlib, time
import pyclient.broker_embedded.broker, pyclient.broker_embedded.log.manager, pyclient.broker_embedded.log.unified_log
taken = []
for name in {_PARTS!r}:
    started = time.thread_time_ns()
    importlib.import_module(name)
    taken.append(time.thread_time_ns() - started)
print(sum(taken), max(taken))
"""
    found = []
    for _ in range(15):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        found.append([int(each) for each in done.stdout.split()])
    yield span("all", min(each[0] for each in found))
    yield span("the longest one", min(each[1] for each in found))


def frames_in_series() -> Iterator[Figure]:
    """Measure receiving a frame of 128 KiB: into a reused buffer from its first byte, and with a copy of its head."""
    frame = (128 * KIB).to_bytes(4, "big") + bytes(128 * KIB)

    def received() -> int:
        left, right = socket.socketpair()
        writer = threading.Thread(target=lambda: [left.sendall(frame) for _ in range(_FRAMES)])
        seen = 0

        def on_frame(_frame: memoryview) -> None:
            nonlocal seen
            seen += 1

        assembler = frames.FrameAssembler(1 << 20, on_frame)
        writer.start()
        started = time.thread_time_ns()
        while seen < _FRAMES:
            assembler.received(right.recv_into(assembler.space()))
        taken = time.thread_time_ns() - started
        writer.join()
        left.close()
        right.close()
        return taken

    taken: dict[str, list[int]] = {"into a reused buffer": [], "with copies of heads": []}
    for _ in range(15):
        taken["into a reused buffer"].append(received())
        with patch.object(frames, "_ALIKE_BYTES", range(0)):
            taken["with copies of heads"].append(received())
    for name, each in taken.items():
        yield span(name, min(each) / _FRAMES)


CASES: dict[str, Case] = {
    "expressions": expressions,
    "sessions": sessions,
    "items": items,
    "offset-map": offset_map,
    "headers": headers,
    "recovery-pauses": recovery,
    "compaction-modules": modules,
    "frames": frames_in_series,
}


if __name__ == "__main__":
    run(__doc__, CASES)
