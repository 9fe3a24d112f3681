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
from benchmarks.producers import confluent, ours
from benchmarks.timed_work import values

RATE = 1_000  # records a second


def by_callback(servers: str, topic: str, size: int, codec: str) -> Produce:
    producer = ours(servers, topic, codec, linger_ms=0)
    payload = values(size)[0]

    def send(delivered: Callable[[object], None]) -> None:
        producer.send(topic, payload, on_delivery=delivered)

    return lambda count: open_loop(count, send, time.sleep)


def by_future(servers: str, topic: str, size: int, codec: str) -> Produce:
    producer = ours(servers, topic, codec, linger_ms=0)
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


def confluent_thread(servers: str, topic: str, size: int, codec: str) -> Produce:
    """confluent-kafka with a thread that does nothing but poll."""
    producer = confluent(servers, topic, codec, linger_ms=0)
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
    producer = confluent(servers, topic, codec, linger_ms=0)
    payload = values(size)[0]

    def send(delivered: Callable[[object], None]) -> None:
        producer.produce(topic, payload, on_delivery=lambda error, message: delivered(_checked(error)))

    def idle(seconds: float) -> None:
        producer.poll(seconds)  # whole milliseconds: below one it does not wait

    return lambda count: open_loop(count, send, idle)


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
