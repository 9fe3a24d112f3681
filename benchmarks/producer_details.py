"""Costs of single steps of a producer: locks, calls of `send` and of futures, wake-ups and turns of its threads.

`python -m benchmarks.producer_details [--only NAME]`

The broker is the embedded one in a process of its own. Where a step is compared with another way of doing it, the
other way is put in place for its turns.
"""

from __future__ import annotations

import asyncio
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from benchmarks.clusters import fresh_topic
from benchmarks.details import Case, Figure, least, ratio, run, span, turns
from benchmarks.timed_work import BATCH_BYTES, values
from pyclient import Producer
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.clock import SYSTEM_CLOCK
from pyclient.config.client import ClientConfig
from pyclient.net.connection import Connection
from pyclient.producer import send_many
from pyclient.producer.buffer_pool import BufferPool
from pyclient.producer.delivery import State
from pyclient.producer.lock import producer_lock
from pyclient.protocol.messages.metadata import MetadataRequest
from pyclient.records import BatchBuilder, RecordHandle
from pyclient.records.crc import crc32c

TIMESTAMP = 1_700_000_000_000
A_BATCH = 1165  # records of 100 B
OPEN_ENDED = {"linger_ms": 60_000, "batch_size": 1 << 20}
"""Options of a producer whose records stay in the open batch until a flush."""
SINGLES = 5000  # records of 100 B, which fit into such a batch


@contextmanager
def connected(partitions: int = 1, **options: Any) -> Iterator[tuple[Any, str]]:
    """Yield a producer and a topic of an embedded cluster."""
    with ExitStack() as stack:
        cluster = stack.enter_context(EmbeddedCluster(processes=True))
        topic = stack.enter_context(fresh_topic(cluster.bootstrap_servers, partitions))
        producer = stack.enter_context(Producer(cluster.bootstrap_servers, **options))
        producer.send(topic, b"warm up")
        producer.flush(30)
        yield producer, topic


def lock() -> Iterator[Figure]:
    """Measure an append to a batch, and one with a lock around it."""
    payload, buffer = values(100), bytearray(BATCH_BYTES)
    plain, own = threading.Lock(), producer_lock()

    def append() -> None:
        append = BatchBuilder(buffer, None, RecordHandle).append
        for value in payload:
            append(TIMESTAMP, None, value, None)

    def locked(lock: Any) -> None:
        append = BatchBuilder(buffer, None, RecordHandle).append
        for value in payload:
            with lock:
                append(TIMESTAMP, None, value, None)

    works = {
        "append": append,
        "append in a threading.Lock": lambda: locked(plain),
        "append in the producer's lock": lambda: locked(own),
    }
    yield from least(works, len(payload), repeats=100)


def send() -> Iterator[Figure]:
    """Measure a call of `send` into an open batch: compiled, and by the method in Python for all other records."""
    payload = values(100) * (SINGLES // 1000)

    with connected(**OPEN_ENDED) as (producer, topic):

        def measured(send: Callable[[bytes], object]) -> int:
            producer.send(topic, b"opens the batch")
            started = time.thread_time_ns()
            for value in payload:
                send(value)
            taken = time.thread_time_ns() - started
            producer.flush(30)
            return taken

        def compiled() -> int:
            producer.send(topic, b"opens the batch")
            send = producer.send
            started = time.thread_time_ns()
            for value in payload:
                send(topic, value)
            taken = time.thread_time_ns() - started
            producer.flush(30)
            return taken

        in_python = producer._send
        ways = {
            "send": compiled,
            "its way in Python": lambda: measured(lambda value: in_python(topic, value, None, None, None, None)),
            "(an empty function in place of the latter)": lambda: measured(lambda value: None),
        }
        taken = {name: min(way() for _ in range(15)) for name, way in ways.items()}
        for name, nanoseconds in taken.items():
            yield span(name, nanoseconds / SINGLES)


def outcomes() -> Iterator[Figure]:
    """Measure the time of reading an outcome, and of a callback: registered, called, and all that is done for it."""
    payload = values(100) * (SINGLES // 1000)
    with connected(**OPEN_ENDED) as (producer, topic):
        futures = [producer.send(topic, value) for value in payload]
        producer.flush(30)

        def results() -> None:
            for future in futures:
                future.result()

        def nothing(_future: object) -> None:
            pass

        def sent() -> None:
            for value in payload:
                producer.send(topic, value)
            producer.flush(30)

        def sent_with_callback() -> None:
            for value in payload:
                producer.send(topic, value, on_delivery=nothing)
            producer.flush(30)

        yield from least({"result() of a confirmed future": results}, SINGLES)
        works = {"without": sent, "with": sent_with_callback}
        taken = {name: min(each) for name, each in turns(works, 40, clock=time.process_time_ns).items()}
        yield span("send, flush, all threads", taken["without"] / SINGLES)
        yield span("a callback, in addition", (taken["with"] - taken["without"]) / SINGLES)


def batch() -> Iterator[Figure]:
    """Measure the CPU time of the sender for each batch of 128 KiB, and what the kernel takes of it."""
    count, crc_of = 4000, bytes(BATCH_BYTES)
    with connected(batch_size=BATCH_BYTES, linger_ms=100) as (producer, topic):
        payload = (values(100) * 2)[:A_BATCH]
        best: list[tuple[float, ...]] = []
        for _ in range(3):
            thread = next(each for each in threading.enumerate() if each.name.startswith("pyclient-sender"))
            before = _cpu_of(thread)
            for _ in range(count):
                producer.send_many(topic, payload)
            producer.flush(60)
            best.append(tuple(now - then for now, then in zip(_cpu_of(thread), before, strict=True)))
    user, system = min(best, key=sum)
    yield span("the sender's thread, a batch", (user + system) * 1e9 / count)
    yield span("of it in the kernel", system * 1e9 / count)
    yield from least({"(the CRC of a batch)": lambda: crc32c(crc_of)}, repeats=200)


def _cpu_of(thread: threading.Thread) -> tuple[float, float]:
    """Return the seconds of a thread outside the kernel and in it."""
    fields = Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rpartition(") ")[2].split()
    return int(fields[11]) / 100, int(fields[12]) / 100


def pace() -> Iterator[Figure]:
    """Measure the CPU time of `send_many`: as it is, with one batch in a turn, with a wake-up for each buffer."""
    payload = pa.array(values(100) * 100, pa.binary())
    release: Any = BufferPool.release

    def eager(pool: BufferPool, buffer: bytearray, *, patient: bool = False) -> None:
        release(pool, buffer)

    for partitions in (1, 12):
        with connected(partitions, batch_size=BATCH_BYTES) as (producer, topic):

            def sent(producer: Any = producer, topic: str = topic) -> None:
                for _ in range(10):
                    producer.send_many(topic, payload)
                producer.flush(60)

            def single(sent: Callable[[], None] = sent) -> None:
                with patch.object(send_many, "_TURN", 1):
                    sent()

            def waking(sent: Callable[[], None] = sent) -> None:
                with patch.object(BufferPool, "release", eager):
                    sent()

            works = {"as it is": sent, "one batch in a turn": single, "a wake-up for each buffer": waking}
            switches = {name: _switches(work) for name, work in works.items()}
            taken = turns(works, 25, clock=time.process_time_ns)
        yield span(f"{partitions} partitions: CPU a record", min(taken["as it is"]) / 10 / len(payload))
        for name in works:
            yield Figure(
                f"{partitions} partitions, {name}: switches of threads", switches[name], "in a million records"
            )
            if name != "as it is":
                yield ratio(f"{partitions} partitions, {name}: CPU", taken, name, "as it is")


def _switches(work: Callable[[], None]) -> float:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
    for _ in range(5):
        work()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - before) / 5


def failures() -> Iterator[Figure]:
    """Measure `failures` of delivered records, and the same with a look at each record."""
    payload = values(100) * 100
    with connected(batch_size=BATCH_BYTES) as (producer, topic):
        taken = []
        for _ in range(10):
            started = time.process_time_ns()
            future = producer.send_many(topic, payload)
            producer.flush(60)
            taken.append(time.process_time_ns() - started)
    yield span("send_many and flush, CPU a record", min(taken) / len(payload))

    def each_record() -> None:
        found: dict[int, BaseException] = {}
        for part in future._spans:
            for delivery, index, places in part.current():
                for inner, place in enumerate(places, index):
                    error = delivery.error_of(inner)
                    if delivery.state is not State.DELIVERED and error is not None:
                        found[part.positions[place]] = error

    works = {"failures, a record": lambda: future.failures, "with a look at each record": each_record}
    yield from least(works, len(payload))


def response() -> Iterator[Figure]:
    """Measure the CPU time of a small request whose response completes a future, and of one with a callback."""
    count, message = 2000, MetadataRequest(topics=[])

    async def all_turns(servers: str) -> dict[str, list[int]]:
        host, _, port = servers.rpartition(":")
        connection = await Connection.open(
            host, int(port), config=ClientConfig(bootstrap_servers=(servers,)), clock=SYSTEM_CLOCK
        )
        loop = asyncio.get_running_loop()

        async def futures() -> None:
            for _ in range(count):
                await connection.submit(message)

        async def callbacks() -> None:
            done, left = loop.create_future(), count

            def on_response(_response: object, error: BaseException | None) -> None:
                nonlocal left
                left -= 1
                if left and error is None:
                    connection.send(message, on_response)
                else:
                    done.set_result(error)

            connection.send(message, on_response)
            assert await done is None

        taken: dict[str, list[int]] = {"future": [], "callback": []}
        for _ in range(15):
            for name, work in (("future", futures), ("callback", callbacks)):
                started = time.thread_time_ns()
                await work()
                taken[name].append(time.thread_time_ns() - started)
        connection.end("the measurement is over")
        return taken

    with EmbeddedCluster(processes=True) as cluster:
        taken = asyncio.run(all_turns(cluster.bootstrap_servers))
    for name, each in taken.items():
        yield span(f"a small request with a {name}", min(each) / count)


CASES: dict[str, Case] = {
    "lock": lock,
    "send-calls": send,
    "outcomes": outcomes,
    "batch-of-sender": batch,
    "turns": pace,
    "failures": failures,
    "response": response,
}


if __name__ == "__main__":
    run(__doc__, CASES)
