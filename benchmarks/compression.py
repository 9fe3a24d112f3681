"""The time for which a batch's compression or decompression keeps an event loop, and the cost of an executor.

`python -m benchmarks.compression [--only NAME]`; records of 100 B as JSON. Times are CPU time of the thread.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from functools import partial

from benchmarks.details import Case, Figure, least, run, span
from pyclient.broker_embedded.log.log_validator import _DECOMPRESSED_ON_LOOP
from pyclient.records import Compression, compress, decompress

KIB = 1 << 10
CODECS = (Compression.LZ4, Compression.SNAPPY, Compression.ZSTD, Compression.GZIP)
SIZES = (16 * KIB, 128 * KIB, 1024 * KIB)


def text(size: int) -> bytes:
    """Return JSON objects of 100 B each."""
    found = bytearray()
    number = 0
    while len(found) < size:
        row = {"id": number, "user": f"user-{number * 7919 % 10_007}", "price": number * 31 % 9973 / 100}
        found += json.dumps({**row, "request": f"{number * 0x9E3779B97F4A7C15 % 2**64:032x}"}).encode()[:99] + b"\n"
        number += 1
    return bytes(found[:size])


def label(codec: Compression, size: int) -> str:
    """Return the name of a row."""
    return f"{codec.name.lower()}, {size // KIB:,} KiB"


def on_the_loop() -> Iterator[Figure]:
    """Measure the time for which a batch keeps the loop of an `AsyncProducer`."""
    for size in SIZES:
        data = text(size)
        works = {label(codec, size): partial(compress, codec, data) for codec in CODECS}
        yield from least(works, repeats=20)


def executor() -> Iterator[Figure]:
    """Measure a call in an executor that does nothing: until it is back, and the CPU time of all threads."""
    count = 2000

    async def measured() -> tuple[list[int], float]:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, int)
        taken, cpu = [], time.process_time_ns()
        for _ in range(count):
            started = time.perf_counter_ns()
            await loop.run_in_executor(None, int)
            taken.append(time.perf_counter_ns() - started)
        return sorted(taken), (time.process_time_ns() - cpu) / count

    rounds = [asyncio.run(measured()) for _ in range(7)]
    yield span("least", min(taken[0] for taken, _ in rounds))
    yield span("median of the quietest round", min(taken[count // 2] for taken, _ in rounds))
    yield span("CPU time", min(cpu for _, cpu in rounds))


def on_the_broker() -> Iterator[Figure]:
    """Measure decompression of the most that the broker decompresses on its loop."""
    works = {}
    for codec, size in _DECOMPRESSED_ON_LOOP.items():
        packed = compress(codec, text(size))
        works[label(codec, size)] = partial(decompress, codec, packed)
    yield from least(works, repeats=50)


CASES: dict[str, Case] = {
    "event-loop": on_the_loop,
    "executor": executor,
    "decompression": on_the_broker,
}


if __name__ == "__main__":
    run(__doc__, CASES)
