"""Interrupted waits for callbacks, the loop's thread or its end: the work continues, and a repeated wait succeeds."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from pyclient import Producer
from pyclient.net.latch import acquire
from pyclient.producer import thread_runner
from tests.producer.background import in_background
from tests.producer.network import HOLD, PASS, PRODUCE, FaultyNetwork
from tests.producer.parts import client_of, runner_of
from tests.producer.test_interrupts import Interrupt, interrupted
from tests.waiting import PATIENCE, until

PLACES = (
    "callbacks.py", "loop_thread.py", "latch.py", "thread_runner.py", "delivery.py", "futures.py", "producer/client.py",
    "lock.py", "threading.py",
)  # fmt: skip


def callback_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "pyclient-callbacks"]


def ends(work: Callable[[], object]) -> bool:
    """Run the work in a thread, with a time limit."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return not thread.is_alive()


@pytest.fixture
def producers(cluster: Any) -> Any:
    return lambda **options: Producer(cluster.bootstrap_servers, **options)


def test_close_interrupted_in_callbacks_waits_for_them_when_repeated(producers: Any, topic: str) -> None:
    producer, caught, ran = producers(), threading.Event(), []

    def interrupts(future: Any) -> None:
        until(lambda: runner_of(producer).callbacks.post is None)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        assert caught.wait(PATIENCE)
        ran.append(future)

    producer.send(topic, b"slow", partition=0, on_delivery=interrupts)
    producer.send(topic, b"after it", partition=0, on_delivery=ran.append)
    with pytest.raises(KeyboardInterrupt):
        producer.close()
    assert ran == []
    caught.set()
    producer.close()
    assert [future.result(0).offset for future in ran] == [0, 1]
    until(lambda: callback_threads() == [], "the thread of the callbacks goes on")


WORKS: dict[str, Callable[[Producer, Any], object]] = {
    "the first callback": lambda _, future: future.add_done_callback(lambda _: None),
    "a flush": lambda producer, _: producer.flush(60),
    "a look at the partitions": lambda producer, _: producer.partitions_for("__nothing__"),
}


@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS.keys())
def test_callbacks_run_in_order_in_one_thread_after_any_interrupt(
    producers: Any, topic: str, work: Callable[[Producer, Any], object]
) -> None:
    def more_moments_than(number: int) -> bool:
        producer, seen = producers(linger_ms=0), []
        future = producer.send_many(topic, [b"x"] * 3, partition=0)
        future.result(PATIENCE)
        if work is WORKS["a flush"]:
            producer.send(topic, b"x", partition=0, on_delivery=lambda _: None)
        more = interrupted(number, lambda: work(producer, future), PLACES)
        futures = [producer.send(topic, b"y", partition=0, on_delivery=seen.append) for _ in range(3)]
        producer.flush(PATIENCE)
        assert seen == futures, f"moment {number}"
        assert callback_threads() == ["pyclient-callbacks"], f"moment {number}"
        assert producer.partitions_for(topic) == [0, 1, 2], f"moment {number}"
        assert ends(producer.close), f"moment {number}"
        until(lambda: callback_threads() == [], f"moment {number}")
        return more

    assert moments(more_moments_than) > 5


def test_close_interrupted_at_any_moment_completes_when_repeated(producers: Any, topic: str) -> None:
    def more_moments_than(number: int) -> bool:
        producer, ran = producers(linger_ms=30), []
        futures = [producer.send(topic, b"x", partition=0, on_delivery=ran.append) for _ in range(3)]
        more = interrupted(number, producer.close, PLACES)
        assert ends(producer.close), f"moment {number}"
        assert ran == futures and all(future.exception(0) is None for future in futures), f"moment {number}"
        until(lambda: callback_threads() == [], f"moment {number}")
        thread = runner_of(producer).thread
        assert not thread.running and thread.stop(PATIENCE), f"moment {number}"
        return more

    assert moments(more_moments_than) > 50


def test_memory_granted_to_a_twice_interrupted_waiter_is_recovered(
    producers: Any, topic: str, network: FaultyNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a Ctrl-C just when it was granted, and by another while the first one is cleaned up after."""

    def more_moments_than(number: int) -> bool:
        again = Interrupt(number, (*PLACES, "buffer_pool.py"))

        def interrupted_acquire(lock: Any, timeout: float | None) -> bool:
            assert acquire(lock, timeout)
            sys.setprofile(again)
            raise KeyboardInterrupt

        network.response = lambda api: PASS
        producer = producers(linger_ms=0, batch_size=1000, buffer_memory=1000, max_block_ms=10_000)
        producer.send(topic, b"first", partition=0).result(PATIENCE)
        network.response = lambda api: HOLD if api == PRODUCE else PASS
        producer.send(topic, b"in the way", partition=0)
        until(lambda: client_of(producer).sender.total_in_flight)  # before, the next record could join its batch
        pool = client_of(producer).accumulator.pool
        memory = in_background(lambda: (until(lambda: pool.waiting), network.release()))
        with monkeypatch.context() as patch:
            patch.setattr(thread_runner, "acquire", interrupted_acquire)
            with pytest.raises(KeyboardInterrupt):
                try:
                    producer.send(topic, b"waits for memory", partition=0)
                finally:
                    sys.setprofile(None)
        memory.result(PATIENCE)
        producer.send(topic, b"it goes on", partition=0).result(PATIENCE)
        producer.flush(PATIENCE)
        assert (pool.available, pool.unowned, pool.waiting) == (1000, None, 0), f"moment {number}"
        producer.close()
        return again.raised

    assert moments(more_moments_than) > 5


def moments(more_than: Callable[[int], bool]) -> int:
    """Return the number of points; `more_than` tries each, and returns False if there are fewer."""
    return next(number for number in count() if not more_than(number))
