"""Guarantee 7: the memory of a producer, and that of a held future, is bounded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.producer import programs

pytestmark = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux reports peaks of memory")

BUFFER = 4 * 1024 * 1024
SLACK = 32 * 1024 * 1024  # bytes over buffer_memory
HELD = 80  # bytes for each record whose future is held
RECORDS = 800_000  # of 100 bytes: twice the bound if they all stayed

PROGRAM = """
    import asyncio, json, sys
    from pathlib import Path
    from pyclient import AsyncProducer, Producer

    servers, topic, way, codec, buffer, count = sys.argv[1:]
    count = int(count)

    def resident(name):
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

    options = {"buffer_memory": int(buffer), "compression_type": codec, "max_block_ms": 120_000}
    values = [b"%099d" % number + b"x" for number in range(1000)]
    held = []

    def begin():
        Path("/proc/self/clear_refs").write_text("5")  # resets the peaks
        return resident("VmRSS")

    def print_peak(producer, before):
        grown = resident("VmHWM") - before - (sys.getsizeof(held) if held else 0)
        print(json.dumps([grown, len(held), producer.metrics()["records_delivered"]]))

"""

SYNC = """
    with Producer(servers, **options) as producer:
        producer.send(topic, values[0]).result(60)
        before = begin()
        if way == "columns":
            for _ in range(count // 1000):
                producer.send_many(topic, values)
        elif way == "held":
            held = [producer.send(topic, values[number % 1000]) for number in range(count)]
        else:
            for number in range(count):
                producer.send(topic, values[number % 1000])
        producer.flush(120)
        print_peak(producer, before)
"""

ASYNC = """
    async def main():
        async with AsyncProducer(servers, **options) as producer:
            await (await producer.send(topic, values[0]))
            before = begin()
            if way == "columns":
                for _ in range(count // 1000):
                    await producer.send_many(topic, values)
            elif way == "held":
                for number in range(count):
                    held.append(await producer.send(topic, values[number % 1000]))
            else:
                for number in range(count):
                    await producer.send(topic, values[number % 1000])
            await producer.flush(120)
            print_peak(producer, before)

    asyncio.run(main())
"""


def grown(cluster, topic, client, way, codec):
    """Send all records in a separate process; return its peak growth in bytes, without the list of held futures."""
    arguments = (cluster.bootstrap_servers, topic, way, codec, str(BUFFER), str(RECORDS))
    grown, held, delivered = json.loads(programs.run(PROGRAM + client, *arguments))
    assert delivered == RECORDS + 1
    assert held == (RECORDS if way == "held" else 0)
    return grown


CLIENTS = pytest.mark.parametrize(
    ("client", "codec"),
    [(SYNC, "none"), pytest.param(SYNC, "lz4", marks=pytest.mark.slow), (ASYNC, "none")],
    ids=["sync-none", "sync-lz4", "async-none"],
)


@pytest.mark.compiled
@CLIENTS
def test_memory_is_bounded_by_the_buffer_and_80_bytes_per_future(cluster, topic, client, codec):
    """Guarantee 7: `buffer_memory` and 32 MB, and 80 bytes for each record whose future is held.

    The latter is measured against a program that holds none: within the slack, some bytes more would not be seen.
    """
    dropped = grown(cluster, topic, client, "dropped", codec)
    assert dropped <= BUFFER + SLACK
    assert grown(cluster, topic, client, "held", codec) - dropped <= HELD * RECORDS


@pytest.mark.compiled
@CLIENTS
def test_memory_of_send_many_is_bounded_by_the_buffer(cluster, topic, client, codec):
    """Guarantee 7, for `send_many`."""
    assert grown(cluster, topic, client, "columns", codec) <= BUFFER + SLACK
