"""Ctrl-C while callbacks, the loop's thread or an end are waited for: what runs goes on and can be waited for again."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from pyclient import Producer
from tests.producer.test_interrupts import interrupted
from tests.waiting import PATIENCE, until

PLACES = (
    "callbacks.py", "loop_thread.py", "latch.py", "engine.py", "delivery.py", "delivery_desk.py", "delivery_future.py",
    "core.py", "lock.py", "failures.py", "threading.py",
)  # fmt: skip


def callback_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "pyclient-callbacks"]


def ends(work: Callable[[], object]) -> bool:
    """Does the work in a thread that has some time for it."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return not thread.is_alive()


@pytest.fixture
def producers(cluster: Any) -> Any:
    return lambda **options: Producer(cluster.bootstrap_servers, **options)


def test_a_close_interrupted_while_callbacks_run_waits_for_them_when_called_again(producers: Any, topic: str) -> None:
    producer, caught, ran = producers(), threading.Event(), []

    def interrupts(future: Any) -> None:
        until(lambda: producer._engine.callbacks._stopped)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        assert caught.wait(PATIENCE)
        ran.append(future)

    producer.send(topic, b"slow", partition=0, on_delivery=interrupts)
    producer.send(topic, b"behind it", partition=0, on_delivery=ran.append)
    with pytest.raises(KeyboardInterrupt):
        producer.close()
    assert ran == []
    caught.set()
    producer.close()
    assert [future.result(0).offset for future in ran] == [0, 1]
    assert callback_threads() == []


WORKS: dict[str, Callable[[Producer, Any], object]] = {
    "the first callback": lambda _, future: future.add_done_callback(lambda _: None),
    "a flush": lambda producer, _: producer.flush(60),
    "a look at the partitions": lambda producer, _: producer.partitions_for("__nothing__"),
}


@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS.keys())
def test_behind_an_interrupt_at_any_moment_callbacks_run_in_order_in_one_thread_that_ends(
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
        assert callback_threads() == []
        return more

    assert moments(more_moments_than) > 5


def test_a_close_interrupted_at_any_moment_is_done_when_called_again(producers: Any, topic: str) -> None:
    def more_moments_than(number: int) -> bool:
        producer, ran = producers(linger_ms=30), []
        futures = [producer.send(topic, b"x", partition=0, on_delivery=ran.append) for _ in range(3)]
        more = interrupted(number, producer.close, PLACES)
        assert ends(producer.close), f"moment {number}"
        assert ran == futures and all(future.exception(0) is None for future in futures), f"moment {number}"
        assert callback_threads() == [], f"moment {number}"
        until(lambda: not producer._engine.thread._thread.is_alive())
        return more

    assert moments(more_moments_than) > 50


def moments(more_than: Callable[[int], bool]) -> int:
    """How many moments there are: `more_than` tries each, and says whether it came."""
    return next(number for number in count() if not more_than(number))
