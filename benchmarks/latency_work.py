"""How long until a record is confirmed, at a steady rate with linger 0: an open loop in a process of its own.

Time counts from when a record was due, not from when the client got round to taking it. Delivery is seen by the
callback, or by a thread that waits for the futures one after the other.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from benchmarks.produce_work import Produce, run_produce
from benchmarks.timed_work import BATCH_BYTES, values

RATE = 1_000  # records a second


def by_callback(servers: str, topic: str, size: int, codec: str) -> Produce:
    producer = _producer(servers, topic, codec)
    payload = values(size)[0]

    def send(delivered: Callable[[object], None]) -> None:
        producer.send(topic, payload, on_delivery=delivered)

    return lambda count: open_loop(count, send, time.sleep)


def by_future(servers: str, topic: str, size: int, codec: str) -> Produce:
    producer = _producer(servers, topic, codec)
    payload = values(size)[0]
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def watch() -> None:
        while True:
            future, delivered = waiting.get()
            future.result(30)
            delivered(None)

    threading.Thread(target=watch, daemon=True).start()

    def send(delivered: Callable[[object], None]) -> None:
        waiting.put((producer.send(topic, payload), delivered))

    return lambda count: open_loop(count, send, time.sleep)


def _producer(servers: str, topic: str, codec: str) -> Any:
    from pyclient import Producer

    producer = Producer(servers, compression_type=codec, linger_ms=0, batch_size=BATCH_BYTES)
    producer.send(topic, b"warm up").result(30)
    return producer


def confluent_thread(servers: str, topic: str, size: int, codec: str) -> Produce:
    """confluent-kafka with a thread that does nothing but poll."""
    producer = _confluent(servers, topic, codec)
    payload = values(size)[0]

    def poll() -> None:
        while True:
            producer.poll(0.1)

    threading.Thread(target=poll, daemon=True).start()

    def send(delivered: Callable[[object], None]) -> None:
        producer.produce(topic, payload, on_delivery=lambda error, message: delivered(_checked(error)))

    return lambda count: open_loop(count, send, time.sleep)


def confluent_inline(servers: str, topic: str, size: int, codec: str) -> Produce:
    """confluent-kafka polled by the sending thread whenever it has nothing to send."""
    producer = _confluent(servers, topic, codec)
    payload = values(size)[0]

    def send(delivered: Callable[[object], None]) -> None:
        producer.produce(topic, payload, on_delivery=lambda error, message: delivered(_checked(error)))

    def idle(seconds: float) -> None:
        producer.poll(seconds)  # whole milliseconds: below one it does not wait

    return lambda count: open_loop(count, send, idle)


def _confluent(servers: str, topic: str, codec: str) -> Any:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": servers,
            "compression.type": codec,
            "linger.ms": 0,
            "batch.size": BATCH_BYTES,
            "acks": "all",
            "enable.idempotence": True,
        }
    )
    producer.produce(topic, b"warm up")
    producer.flush(30)
    return producer


def _checked(error: Any) -> None:
    if error is not None:
        raise RuntimeError(error)


def open_loop(
    count: int, send: Callable[[Callable[[object], None]], None], idle: Callable[[float], object]
) -> dict[str, float]:
    """Sends one record every `1 / RATE` seconds, however the last one fares; milliseconds at which halves and 99 % of
    them were confirmed."""
    seen: list[float] = []
    done = threading.Event()
    now = time.perf_counter
    begin = now() + 0.01

    def due_at(due: float) -> Callable[[object], None]:
        def delivered(_: object) -> None:
            seen.append(now() - due)
            if len(seen) == count:
                done.set()

        return delivered

    for number in range(count):
        due = begin + number / RATE
        while (left := due - now()) > 0:
            idle(left)
        send(due_at(due))
    while not done.is_set():
        idle(0.001)
    seen.sort()
    return {f"p{share}": seen[count * share // 100] * 1000 for share in (50, 90, 99)}


CLIENTS = {
    "pyclient, callback": by_callback,
    "pyclient, future": by_future,
    "confluent, polling thread": confluent_thread,
    "confluent, polled inline": confluent_inline,
}

if __name__ == "__main__":
    run_produce(CLIENTS)
