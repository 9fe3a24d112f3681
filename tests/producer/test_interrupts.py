"""An interrupt at each point at which Python runs signal handlers leaves memory and batches consistent.

Those points are the start of a function and the return of a compiled one, which a profile function sees and may raise
at. Between a `with` and its body there is none: Python 3.14 had one until it was fixed (CPython's issue 148874), and
no program that takes locks by `with` could cope with it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import count
from types import FrameType
from typing import Any

import pytest

from pyclient import Producer, errors
from tests.net.connections import lose_the_timer
from tests.producer.parts import client_of, runner_of

BATCH = 500
OFF_THE_FAST_PATH = {"h": b"v"}  # see test_fast_path.py for what is on it
PLACES = (
    "producer/client.py", "record_accumulator.py", "buffer_pool.py", "producer_batch.py", "delivery.py", "send_many.py",
    "fast_path.py", "sender_thread.py", "connection.py", "stream.py", "idempotence.py",
    "thread_runner.py", "loop_thread.py",
)  # fmt: skip


class Interrupt:
    """Raises `KeyboardInterrupt` at the point of this number, counted inside the given modules."""

    def __init__(self, number: int, places: tuple[str, ...]) -> None:
        self.left = number
        self.places = places
        self.raised = False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event not in ("call", "c_return") or not frame.f_code.co_filename.endswith(self.places):
            return
        if event == "c_return" and argument.__name__ == "__enter__":
            return
        if within(frame, "__del__"):  # where Python prints it and goes on
            return
        if self.left:
            self.left -= 1
            return
        self.raised = True
        raise KeyboardInterrupt


def within(frame: FrameType | None, name: str) -> bool:
    """Return True if the frame belongs to a function of this name, or was called by one."""
    while frame is not None and frame.f_code.co_name != name:
        frame = frame.f_back
    return frame is not None


def interrupted(number: int, work: Callable[[], object], places: tuple[str, ...] = PLACES) -> bool:
    """Run the work with an interrupt at its point `number`; return False if it has fewer points."""
    interrupt = Interrupt(number, places)
    sys.setprofile(interrupt)
    try:
        work()
    except KeyboardInterrupt:
        assert interrupt.raised
    finally:
        sys.setprofile(None)
    return interrupt.raised


WORKS: dict[str, Callable[[Producer, str], object]] = {
    "a new batch": lambda producer, topic: producer.send(topic, b"x", headers=OFF_THE_FAST_PATH, partition=0),
    "a record larger than a batch": lambda producer, topic: producer.send(
        topic, bytes(3 * BATCH), headers=OFF_THE_FAST_PATH, partition=0
    ),
    "many": lambda producer, topic: producer.send_many(topic, [bytes(200)] * 5, partition=0),
}


@pytest.mark.parametrize("linger_ms", [0, 60_000])
@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS.keys())
def test_an_interrupt_at_any_moment_loses_no_memory_and_blocks_no_flush(
    cluster: Any, topic: str, work: Callable[[Producer, str], object], linger_ms: int
) -> None:
    with Producer(
        cluster.bootstrap_servers,
        linger_ms=linger_ms,
        batch_size=BATCH,
        buffer_memory=20 * BATCH,
        max_request_size=8_000,
    ) as producer:
        producer.send(topic, b"first", partition=0)
        producer.flush(60)
        for number in count():
            if not interrupted(number, lambda: work(producer, topic)):
                break
            producer.flush(60)
            health = producer.health()
            assert (health["buffer_bytes_used"], health["batches_unconfirmed"]) == (0, 0), f"moment {number}"
            producer.send(topic, b"it goes on", partition=0)
            producer.flush(60)
        assert number > 20


def test_record_left_to_the_loop_completes_once_after_any_interrupt(
    cluster: Any, topic: str, log: Callable[[], dict[int, list[Any]]]
) -> None:
    """The thread that sends it may not write it: the connection has no timer that would find a late answer."""
    with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
        producer.send(topic, b"first", partition=0).result(60)
        client = client_of(producer)
        [connection] = client.loop.connections.values()

        for number in count():
            runner_of(producer).thread.run(lose_the_timer, connection)
            more = interrupted(number, lambda: WORKS["a new batch"](producer, topic))
            producer.flush(60)
            metrics, queue = producer.metrics(), client.topics[topic].queues[0]
            assert (metrics["requests_in_flight"], metrics["buffer_bytes_used"]) == (0, 0), f"moment {number}"
            assert queue.on_wire == 0 and not queue.outstanding, f"moment {number}"
            if not more:
                break
        assert number > 20
    assert 1 < len(log()[0]) <= number + 2


def test_an_interrupted_purge_leaves_no_record_without_an_outcome(cluster: Any, topic: str) -> None:
    with Producer(cluster.bootstrap_servers, linger_ms=60_000, batch_size=BATCH) as producer:
        producer.send(topic, b"first", partition=0)
        producer.flush(60)
        for number in count():
            futures = [producer.send(topic, bytes(300), partition=partition) for partition in range(3)]
            more = interrupted(number, producer.purge)
            producer.purge()
            assert all(isinstance(future.exception(60), errors.ClosedError) for future in futures), number
            producer.flush(60)
            if not more:
                break
        assert number > 5
