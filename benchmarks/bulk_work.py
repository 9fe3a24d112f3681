"""One client produces whole columns, in a process of its own: `send_many`, and what comes closest elsewhere.

A call takes `PER_CALL` rows, made before time is taken; every record's delivery is confirmed.
"""

from __future__ import annotations

from typing import Any

from benchmarks.produce_work import Produce, produce_confluent, run_produce
from benchmarks.producers import confirmations, confluent, ours
from benchmarks.timed_work import values

PER_CALL = 10_000


def send_many_list(servers: str, topic: str, size: int, codec: str) -> Produce:
    return _send_many(servers, topic, codec, values(size) * (PER_CALL // 1000))


def send_many_arrow(servers: str, topic: str, size: int, codec: str) -> Produce:
    import pyarrow

    return _send_many(servers, topic, codec, pyarrow.array(values(size) * (PER_CALL // 1000)))


def _send_many(servers: str, topic: str, codec: str, column: Any) -> Produce:
    producer = ours(servers, topic, codec)

    def run(count: int) -> None:
        futures = [producer.send_many(topic, column) for _ in range(count // PER_CALL)]
        producer.flush(120)
        for future in futures:
            if future.exception(0) is not None or future.delivered != PER_CALL:
                raise RuntimeError("a record was not delivered")

    return run


def produce_batch(servers: str, topic: str, size: int, codec: str) -> Produce:
    delivered, confirmed = confirmations()
    more = {"queue.buffering.max.messages": 2_000_000}
    producer = confluent(servers, topic, codec, on_delivery=delivered, more=more)
    messages = [{"value": value} for value in values(size) * (PER_CALL // 1000)]

    def run(count: int) -> None:
        before = confirmed()
        for _ in range(count // PER_CALL):
            if producer.produce_batch(topic, messages, on_delivery=delivered) != PER_CALL:
                raise RuntimeError("the queue is full")
            producer.poll(0)
        if producer.flush(120) or confirmed() - before != count:
            raise RuntimeError(f"{confirmed() - before} of {count} records confirmed")

    return run


def bare_socket(servers: str, topic: str, size: int, codec: str) -> Produce:
    """Return a function that sends batches that were built before: as quick as the broker takes them."""
    from benchmarks.bare_produce import produce_bare  # only here: it brings much with it

    return produce_bare(servers, topic, size, codec)


CLIENTS = {
    "pyclient send_many, list": send_many_list,
    "pyclient send_many, Arrow": send_many_arrow,
    "confluent produce_batch": produce_batch,
    "confluent produce": produce_confluent,
    "bare socket": bare_socket,
}

if __name__ == "__main__":
    run_produce(CLIENTS)
