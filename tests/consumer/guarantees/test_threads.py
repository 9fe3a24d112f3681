"""A consumer serves one thread, or task, at a time: others are refused at once, without harm."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyclient import Consumer, errors
from pyclient.broker_embedded import EmbeddedCluster
from tests.consumer.consumer_factory import values

NewTopic = Callable[..., str]
Produce = Callable[..., None]


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Switch threads as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@pytest.mark.usefixtures("quick_switches")
def test_concurrent_calls_work_or_are_refused_and_records_come_once(
    cluster: EmbeddedCluster, new_topic: NewTopic, produce: Produce, group: str
) -> None:
    topic = new_topic(2)
    for partition in range(2):
        produce(topic, *[b"%d" % n for n in range(60)], partition=partition)
    seen: list[list[bytes]] = []
    refused: list[errors.ConcurrentUse] = []
    others: list[BaseException] = []
    options = {"group_id": group, "auto_offset_reset": "earliest"}
    with Consumer(topic, bootstrap_servers=cluster.bootstrap_servers, config=options) as consumer:
        calls: list[Callable[[], Any]] = [
            lambda: seen.append(values(consumer.poll(0.01, max_records=3))),
            consumer.commit,
            consumer.commit_async,
            consumer.lag,
            consumer.assignment,
            consumer.health,
            consumer.committed,
        ]
        while not consumer.assignment():
            seen.append(values(consumer.poll(0.05, max_records=3)))
        stop = threading.Event()

        def keep_calling(call: Callable[[], Any]) -> None:
            while not stop.wait(0.0002):  # the broker's thread wants its turn, too
                try:
                    call()
                except errors.ConcurrentUse as error:
                    refused.append(error)
                except BaseException as error:
                    others.append(error)
                    return

        threads = [
            threading.Thread(target=keep_calling, args=(call,), name=f"caller {n}") for n, call in enumerate(calls)
        ]
        for thread in threads:
            thread.start()
        while sum(map(len, seen)) < 120 and not others:
            threads[0].join(0.01)
        stop.set()
        for thread in threads:
            thread.join()
    assert others == []
    assert refused
    assert "caller" in str(refused[0])
    assert sorted(value for batch in seen for value in batch) == sorted([b"%d" % n for n in range(60)] * 2)


@pytest.mark.usefixtures("quick_switches")
def test_close_from_another_thread_is_refused_but_wakeup_is_not(
    cluster: EmbeddedCluster, new_topic: NewTopic, group: str
) -> None:
    consumer = Consumer(new_topic(), bootstrap_servers=cluster.bootstrap_servers, group_id=group)
    outcome: list[BaseException] = []

    def poll() -> None:
        while not outcome:
            try:
                consumer.poll(60)
            except errors.ConcurrentUse:  # the other thread was first, with a `pause` that is over at once
                continue
            except errors.Wakeup as error:
                outcome.append(error)

    thread = threading.Thread(target=poll)
    thread.start()
    while True:
        try:
            consumer.pause()
        except errors.ConcurrentUse:
            break
    with pytest.raises(errors.ConcurrentUse):
        consumer.close()
    assert not consumer.closed
    consumer.wakeup()
    thread.join()
    assert len(outcome) == 1
    consumer.close()
    assert consumer.closed
