"""The growth of a producer's memory when records are sent faster than they are confirmed, in a separate process.

The growth is that of the resident set's highest point over what the process has after its first record.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from benchmarks import producers
from benchmarks.produce_work import Produce, run_produce
from benchmarks.timed_work import values

BUFFER_MEMORY = 16 * 1024 * 1024
PER_CALL = 10_000


def futures_held(servers: str, topic: str, size: int, codec: str) -> Produce:
    producer, payload = _producer(servers, topic, codec), values(size)

    def run(count: int) -> dict[str, float]:
        idle = restart_peak()
        futures = [producer.send(topic, payload[n % 1000]) for n in range(count)]
        producer.flush(120)
        return {"growth": peak() - idle - sys.getsizeof(futures), "held": len(futures)}

    return run


def futures_dropped(servers: str, topic: str, size: int, codec: str) -> Produce:
    producer, payload = _producer(servers, topic, codec), values(size)

    def run(count: int) -> dict[str, float]:
        idle = restart_peak()
        for n in range(count):
            producer.send(topic, payload[n % 1000])
        producer.flush(120)
        return {"growth": peak() - idle, "held": 0}

    return run


def columns(servers: str, topic: str, size: int, codec: str) -> Produce:
    producer, payload = _producer(servers, topic, codec), values(size) * (PER_CALL // 1000)

    def run(count: int) -> dict[str, float]:
        idle = restart_peak()
        for _ in range(count // PER_CALL):
            producer.send_many(topic, payload)
        producer.flush(120)
        return {"growth": peak() - idle, "held": 0}

    return run


def _producer(servers: str, topic: str, codec: str) -> Any:
    return producers.ours(servers, topic, codec, buffer_memory=BUFFER_MEMORY)


def confluent(servers: str, topic: str, size: int, codec: str) -> Produce:
    more = {"queue.buffering.max.messages": 2_000_000, "queue.buffering.max.kbytes": BUFFER_MEMORY // 1024}
    producer = producers.confluent(servers, topic, codec, more=more)
    payload = values(size)

    def run(count: int) -> dict[str, float]:
        idle = restart_peak()
        for n in range(count):
            while True:
                try:
                    producer.produce(topic, payload[n % 1000])
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.flush(120)
        return {"growth": peak() - idle, "held": 0}

    return run


def restart_peak() -> int:
    """Reset the peak resident set size; return the current one in bytes."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def peak() -> int:
    """Return the most bytes that were resident since `restart_peak`."""
    return _status("VmHWM")


def _status(name: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


CLIENTS = {
    "pyclient, futures held": futures_held,
    "pyclient, futures dropped": futures_dropped,
    "pyclient, send_many": columns,
    "confluent-kafka": confluent,
}

if __name__ == "__main__":
    run_produce(CLIENTS)
