"""The end of the interpreter, of a loop, and of producers that were not closed."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
import warnings

import pytest

from pyclient import AsyncProducer, Producer, errors
from tests.garbage import Cycle, loop_threads_first
from tests.producer.network import HOLD, PASS, PRODUCE
from tests.producer.parts import client_of
from tests.producer.programs import run
from tests.waiting import until


def test_interpreter_exit_delivers_what_was_accepted(cluster, topic, log):
    run(
        """
        import sys
        from pyclient import Producer
        producer = Producer(sys.argv[1], linger_ms=30_000, request_timeout_ms=5000)
        for number in range(1000):
            producer.send(sys.argv[2], b"%d" % number, partition=0)
        """,
        cluster.bootstrap_servers,
        topic,
    )
    assert [record.value for record in log()[0]] == [b"%d" % number for number in range(1000)]


def test_interpreter_exit_logs_records_that_could_not_be_delivered(cluster, topic):
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            textwrap.dedent(
                """
                import sys
                from pyclient import Producer
                from pyclient.producer import thread_runner
                from tests.producer.parts import client_of
                thread_runner.EXIT_SECONDS = 0.5
                producer = Producer(sys.argv[1], linger_ms=30_000, request_timeout_ms=5000)
                producer.partitions_for(sys.argv[2])
                client_of(producer).sender.drain = lambda *_: None
                kept = producer.send(sys.argv[2], b"x")
                """
            ),
            cluster.bootstrap_servers,
            topic,
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0 and "at the interpreter's exit: 1 record was not delivered" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_forgotten_producer_warns_and_still_delivers(cluster, topic, log):
    producer = Producer(cluster.bootstrap_servers, linger_ms=100)
    future = producer.send(topic, b"x", partition=0)
    with pytest.warns(ResourceWarning, match="<Producer .* was not closed"):
        del producer
        gc.collect()
    assert future.result(60).offset == 0


def test_a_producer_in_a_cycle_still_delivers_whatever_is_collected_first(cluster, topic, log):
    with loop_threads_first("pyclient.producer.thread_runner"):
        cycle = Cycle(Producer(cluster.bootstrap_servers, linger_ms=100))
        future = cycle.held.send(topic, b"x", partition=0)
        with pytest.warns(ResourceWarning, match="<Producer .* was not closed"):
            del cycle
            gc.collect()
    assert future.result(60).offset == 0


def test_a_forgotten_async_producer_warns_and_still_delivers(cluster, topic, log):
    import asyncio

    from pyclient import AsyncProducer

    async def main():
        producer = AsyncProducer(cluster.bootstrap_servers, linger_ms=100)
        future = await producer.send(topic, b"x", partition=0)
        with pytest.warns(ResourceWarning, match="<AsyncProducer .* was not closed"):
            del producer
            gc.collect()
        return await future

    assert asyncio.run(main()).offset == 0


UNCLOSED = """
import asyncio, sys
from pyclient import AsyncProducer
from pyclient.producer import async_runner
from tests.producer.parts import client_of

async def main():
    producer = AsyncProducer(sys.argv[1], linger_ms=3000)
    for number in range(500):
        await producer.send(sys.argv[2], b"%d" % number, partition=0)
    if sys.argv[3] == "kept":
        kept.append(producer)
    if sys.argv[3] == "undelivered":
        async_runner.EXIT_SECONDS = 0.3
        client_of(producer).sender.drain = lambda *_: None

kept = []
asyncio.run(main())
"""


@pytest.mark.parametrize("fate", ["dropped", "kept", "undelivered"])
def test_unclosed_async_producer_delivers_or_logs_when_its_loop_ends(cluster, topic, log, fate):
    done = subprocess.run(
        [sys.executable, "-c", UNCLOSED, cluster.bootstrap_servers, topic, fate],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0
    if fate == "undelivered":
        assert "500 records were not delivered" in done.stderr
    else:
        assert done.stderr == ""
        assert [record.value for record in log()[0]] == [b"%d" % number for number in range(500)]


def test_open_and_close_leave_no_threads_or_files(cluster, topic):
    def once():
        with Producer(cluster.bootstrap_servers) as producer:
            producer.send(topic, b"x", partition=0, on_delivery=lambda future: None).result(60)

    for _ in range(3):
        once()
    gc.collect()
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for _ in range(25):
        once()
    gc.collect()
    # the broker's ends of the connections, and threads that end, take a moment
    until(
        lambda: threading.active_count() <= threads and len(os.listdir("/proc/self/fd")) <= files,
        lambda: (threading.enumerate(), os.listdir("/proc/self/fd")),
    )


def test_failed_futures_leave_no_objects(cluster, topic, network):
    from pyclient.producer.delivery import Delivery

    with Producer(cluster.bootstrap_servers, request_timeout_ms=200, delivery_timeout_ms=400) as producer:
        deadline = time.monotonic() + 60
        while (late := producer.send(topic, b"").exception(60)) is not None:  # so short a time may not do at first
            assert time.monotonic() < deadline, late
        network.request = lambda api: HOLD if api == PRODUCE else PASS
        for _ in range(3):
            future = producer.send(topic, b"x")
            with pytest.raises(errors.KafkaTimeout):
                future.result(60)
            try:
                raise future.exception()
            except errors.KafkaTimeout as error:
                kept = error
        del future, kept
        network.release()
    gc.collect()
    assert not [thing for thing in gc.get_objects() if isinstance(thing, Delivery) and thing.topic == topic]


def test_close_that_does_not_wait_for_a_callback_warns(cluster, topic, caplog):
    goes_on, ended = threading.Event(), threading.Event()
    producer = Producer(cluster.bootstrap_servers)
    producer.send(topic, b"x", on_delivery=lambda future: (goes_on.wait(60), ended.set())).result(60)
    producer.close(0)
    assert "closed while a callback still ran" in caplog.text
    goes_on.set()
    assert ended.wait(60)


def test_closed_producers_do_not_warn(cluster, topic):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        producer = Producer(cluster.bootstrap_servers)
        producer.send(topic, b"").result(60)
        producer.close()
        del producer
        gc.collect()


def test_async_flush_lets_callbacks_observe_failures_before_it_raises(cluster, topic, network):
    async def scenario():
        async with AsyncProducer(cluster.bootstrap_servers, linger_ms=0) as producer:
            for partition in (0, 1):
                await (await producer.send(topic, b"first", partition=partition))
            network.response = lambda api: HOLD if api == PRODUCE else PASS
            seen = []
            for partition in (0, 1):
                future = await producer.send(topic, b"held", partition=partition)
                future.add_done_callback(lambda future: seen.append(future.exception(0)))
            flush = asyncio.create_task(producer.flush())
            await asyncio.sleep(0)
            client_of(producer).abort(errors.ClosedError("at once"))  # all of them in one turn of the loop
            await flush
            assert [str(error) for error in seen] == [f"{topic}-0: at once", f"{topic}-1: at once"]
            network.release()

    asyncio.run(scenario())
