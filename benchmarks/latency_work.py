"""Time until a record is confirmed, at a steady rate with linger 0: an open loop in a separate process.

For each line of its input it sends the records of a turn and prints as JSON how many milliseconds each of them took.
Time counts from when a record was due, not from when the client got round to taking it. Delivery is seen by the
callback, or by a thread that waits for the futures one after the other.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from benchmarks.producers import confluent, ours
from benchmarks.timed_work import arguments, values

RATE = 1_000  # records a second

Turn = Callable[[int], list[float]]
"""Sends a number of records, and returns the milliseconds until each was confirmed."""


def by_callback(servers: str, topic: str, size: int, codec: str) -> Turn:
    producer = ours(servers, topic, codec, linger_ms=0)
    payload = values(size)[0]

    def send(delivered: Callable[[object], None]) -> None:
        producer.send(topic, payload, on_delivery=delivered)

    return lambda count: open_loop(count, send, time.sleep)


def by_future(servers: str, topic: str, size: int, codec: str) -> Turn:
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


def confluent_thread(servers: str, topic: str, size: int, codec: str) -> Turn:
    """Return turns of confluent-kafka with a thread that does nothing but poll."""
    producer = confluent(servers, topic, codec, linger_ms=0)
    payload = values(size)[0]

    def poll() -> None:
        while True:
            producer.poll(0.1)

    threading.Thread(target=poll, daemon=True).start()

    def send(delivered: Callable[[object], None]) -> None:
        producer.produce(topic, payload, on_delivery=lambda error, message: delivered(_checked(error)))

    return lambda count: open_loop(count, send, time.sleep)


def confluent_inline(servers: str, topic: str, size: int, codec: str) -> Turn:
    """Return turns of confluent-kafka polled by the sending thread whenever it has nothing to send."""
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
) -> list[float]:
    """Send one record every `1 / RATE` seconds, however the last one fares; return each one's milliseconds."""
    seen: list[float] = []
    done = threading.Event()
    now = time.perf_counter
    begin = now() + 0.01

    def due_at(due: float) -> Callable[[object], None]:
        def delivered(_: object) -> None:
            seen.append((now() - due) * 1000)
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
    return seen


CLIENTS = {
    "pyclient, callback": by_callback,
    "pyclient, future": by_future,
    "confluent, polling thread": confluent_thread,
    "confluent, polled inline": confluent_inline,
}


def main() -> None:
    """Run a turn for each line of the input."""
    given = arguments(CLIENTS).parse_args()
    turn = CLIENTS[given.client](given.servers, given.topic, given.size, given.codec)
    for _ in sys.stdin:
        print(json.dumps(turn(given.count)), flush=True)


if __name__ == "__main__":
    main()
