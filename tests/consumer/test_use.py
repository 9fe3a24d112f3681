"""Use and misuse of a consumer: wakeups, threads, forks, program exit, invalid input."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from pyclient import AsyncConsumer, Consumer, errors
from pyclient.broker_embedded import EmbeddedCluster
from tests.consumer.consumer_factory import ConsumerFactory, partitions, read, values
from tests.forks import fork

NewTopic = Callable[..., str]
Produce = Callable[..., None]


@contextlib.contextmanager
def soon(function: Callable[[], object], *, after: float = 0.05) -> Iterator[None]:
    """Call the function from another thread while the block runs."""
    timer = threading.Timer(after, function)
    timer.start()
    try:
        yield
    finally:
        timer.join()


# ---- wake-ups


def test_wakeup_from_another_thread_ends_a_poll(
    consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic()
    consumer = consumers()
    consumer.assign(partitions(topic, 0))
    with soon(consumer.wakeup), pytest.raises(errors.Wakeup):
        consumer.poll(60)
    produce(topic, b"x")
    assert values(consumer.poll(30)) == [b"x"]


def test_wakeup_that_comes_early_ends_the_next_wait_and_only_that(
    consumers: ConsumerFactory, new_topic: NewTopic
) -> None:
    consumer = consumers()
    consumer.assign(partitions(new_topic(), 0))
    consumer.wakeup()
    with pytest.raises(errors.Wakeup):
        consumer.poll(60)
    assert len(consumer.poll(0.01)) == 0
    consumer.wakeup()
    with pytest.raises(errors.Wakeup):
        consumer.end_offsets(consumer.assignment())


def test_wakeup_ends_a_call_that_waits_for_the_broker(consumers: ConsumerFactory) -> None:
    consumer = consumers(bootstrap_servers="127.0.0.1:1", group_id="g")
    consumer.assign([("t", 0)])
    with soon(consumer.wakeup), pytest.raises(errors.Wakeup):
        consumer.position(("t", 0), timeout=60)


def test_wakeup_of_a_closed_consumer_is_a_no_op(consumers: ConsumerFactory) -> None:
    consumer = consumers()
    consumer.close()
    consumer.wakeup()


# ---- one at a time


def test_two_threads_at_once_are_refused_clearly(cluster: EmbeddedCluster, new_topic: NewTopic) -> None:
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.assign(partitions(new_topic(), 0))
        outcome: list[BaseException] = []
        polling = threading.Event()

        def poll() -> None:
            polling.set()
            while not outcome:
                try:
                    consumer.poll(60)
                except errors.ConcurrentUse:  # the other thread is inside its call, which is over at once
                    continue
                except BaseException as error:
                    outcome.append(error)

        thread = threading.Thread(target=poll, name="other")
        thread.start()
        polling.wait()
        refused = None
        while refused is None:  # until the other thread is inside its poll
            try:
                consumer.seek_to_beginning()
            except errors.ConcurrentUse as error:
                refused = error
        assert "other" in str(refused)
        assert "wakeup()" in str(refused)
        consumer.wakeup()
        thread.join()
        assert [type(error) for error in outcome] == [errors.Wakeup]
        consumer.poll(0.01)  # one after the other is fine


def test_two_tasks_at_once_are_refused_clearly(cluster: EmbeddedCluster, new_topic: NewTopic) -> None:
    topic = new_topic()

    async def main() -> None:
        async with AsyncConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
            consumer.assign(partitions(topic, 0))
            polling = asyncio.create_task(consumer.poll(60))
            await asyncio.sleep(0)
            with pytest.raises(errors.ConcurrentUse):
                await consumer.poll(0.01)
            polling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await polling
            assert len(await consumer.poll(0.01)) == 0

    asyncio.run(main())


def test_cancelling_a_poll_loses_no_record(cluster: EmbeddedCluster, new_topic: NewTopic, produce: Produce) -> None:
    topic = new_topic()
    produce(topic, *[b"%d" % n for n in range(50)])

    async def main() -> list[bytes]:
        seen: list[bytes] = []
        async with AsyncConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign(partitions(topic, 0))
            for pause in [0, 0, 0.001, 0.002, 0.005, 0.01] * 20:
                task = asyncio.create_task(consumer.poll(30, max_records=3))
                await asyncio.sleep(pause)  # at many moments
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    seen += [record.value for record in await task]
                if len(seen) == 50:
                    break
            while len(seen) < 50:
                seen += [record.value for record in await consumer.poll(30)]
        return seen

    assert asyncio.run(main()) == [b"%d" % n for n in range(50)]


# ---- processes and signals


def test_forked_child_is_refused_and_the_parent_continues(
    cluster: EmbeddedCluster, new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic()
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions(topic, 0))
        consumer.poll(0.01)
        refused: list[Callable[[], object]] = [
            consumer.poll,
            consumer.wakeup,
            consumer.assignment,
            consumer.subscription,
            consumer.paused,
            consumer.lag,
            consumer.health,
            consumer.commit,
            consumer.commit_async,
            consumer.committed,
            consumer.seek_to_end,
            consumer.unsubscribe,
            consumer.__iter__().__next__,
            partial(consumer.subscribe, topic),
        ]
        child = fork()
        if child == 0:
            status = 1
            with contextlib.suppress(BaseException):
                for call in refused:
                    with pytest.raises(errors.ForkError):
                        call()
                assert repr(consumer).endswith("of another process>")
                consumer.close()
                status = 0
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert "another process" not in repr(consumer)
        produce(topic, b"x")
        assert values(consumer.poll(30)) == [b"x"]


def test_async_consumer_is_refused_in_a_child_as_well(
    cluster: EmbeddedCluster, new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic()

    async def child_is_refused(consumer: AsyncConsumer[Any, Any]) -> bool:
        calls: list[Callable[[], Any]] = [
            consumer.poll,
            consumer.commit,
            consumer.committed,
            consumer.__aiter__().__anext__,
        ]
        for call in calls:
            with pytest.raises(errors.ForkError):
                await call()
        for ask in (consumer.assignment, consumer.lag, consumer.health, consumer.wakeup):
            with pytest.raises(errors.ForkError):
                ask()
        await consumer.close()
        return True

    async def main() -> list[Any]:
        options = {"bootstrap_servers": cluster.bootstrap_servers, "auto_offset_reset": "earliest"}
        async with AsyncConsumer(config=options) as consumer:
            consumer.assign(partitions(topic, 0))
            await consumer.poll(0.01)
            child = fork()
            if child == 0:
                refused = False
                with contextlib.suppress(BaseException):
                    refused = await child_is_refused(consumer)
                os._exit(0 if refused else 1)
            _, status = await asyncio.to_thread(os.waitpid, child, 0)
            assert os.waitstatus_to_exitcode(status) == 0
            await asyncio.to_thread(produce, topic, b"x")
            return values(await consumer.poll(30))

    assert asyncio.run(main()) == [b"x"]


def test_program_without_close_ends_soon_and_its_member_leaves(
    cluster: EmbeddedCluster, new_topic: NewTopic, produce: Produce, consumers: ConsumerFactory
) -> None:
    topic = new_topic()
    produce(topic, b"0", b"1")

    def left_by_program() -> list[bytes]:
        group = f"g-{uuid.uuid4().hex[:8]}"
        program = (
            "from pyclient import Consumer\n"
            f"c = Consumer({topic!r}, bootstrap_servers={cluster.bootstrap_servers!r}, group_id={group!r},"
            " auto_offset_reset='earliest')\n"
            "while not c.poll(30, max_records=1): pass\n"
            "while not c.poll(30, max_records=1): pass\n"
        )
        done = subprocess.run([sys.executable, "-c", program], timeout=120, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return values(read(consumers(topic, group_id=group), 1))

    # the last poll may not have been dealt with, so it was not committed; a busy machine may not commit within 2 s
    assert any(left_by_program() == [b"1"] for _ in range(3))


# ---- input that cannot be


def test_poll_without_a_subscription_raises_with_a_hint(consumers: ConsumerFactory) -> None:
    with pytest.raises(errors.NotAssigned, match=r"subscribe\(\) or assign\(\)"):
        consumers().poll()


def test_options_are_checked_at_once() -> None:
    with pytest.raises(errors.ConfigError, match="bootstrap_servers"):
        Consumer("t")
    with pytest.raises(errors.ConfigError, match="did you mean max_poll_records"):
        Consumer("t", bootstrap_servers="h:1", max_pol_records=1)  # type: ignore[call-arg]
    with pytest.raises(errors.ConfigError, match="value_deserializer"):
        Consumer("t", bootstrap_servers="h:1", value_deserializer="json")  # type: ignore[arg-type]
    with pytest.raises(errors.ConfigError, match="given twice"):
        Consumer("t", bootstrap_servers="h:1", group_id="g", config={"group.id": "h"})
