"""An `AsyncProducer` runs on its user's loop: no thread except the one that resolves host names."""

from __future__ import annotations

import _thread
import asyncio
import threading

import pytest

from pyclient import AsyncProducer
from pyclient.config import parse_address
from tests.producer.network import CUT, PASS, PRODUCE
from tests.waiting import PATIENCE


@pytest.fixture
def started(monkeypatch):
    """Return the list of threads that this one starts, from before there is a producer until the test ends.

    The broker's are started by the broker's own.
    """
    mine, threads, start = threading.current_thread(), [], threading.Thread.start

    def note(thread):
        if threading.current_thread() is mine:
            threads.append(thread)
        start(thread)

    def note_nameless(*arguments):
        if threading.current_thread() is mine:
            threads.append(arguments)
        return begin(*arguments)

    begin = _thread.start_new_thread
    monkeypatch.setattr(threading.Thread, "start", note)
    monkeypatch.setattr(_thread, "start_new_thread", note_nameless)
    return threads


async def use(servers, topic, network, called):
    """Use all methods of a producer, and make it reconnect."""
    loop, mine = asyncio.get_running_loop(), threading.current_thread()
    outcomes = []
    network.request = lambda api: outcomes.pop() if api == PRODUCE and outcomes else PASS
    loop.run_in_executor = lambda *_: pytest.fail("something waits for an executor")
    async with AsyncProducer(servers, compression_type="lz4", retry_backoff_ms=1, reconnect_backoff_ms=1) as producer:
        for round_ in range(2):
            for _ in range(50):
                await producer.send(
                    topic, b"x", on_delivery=lambda _: called.append(threading.current_thread() is mine)
                )
            await (await producer.send_many(topic, [b"x"] * 100))
            assert await producer.partitions_for(topic) == [0, 1, 2]
            await producer.flush(PATIENCE)
            await producer.purge()
            if not round_:
                outcomes.append(CUT)
    assert not outcomes
    del loop.run_in_executor  # asyncio.run's own end uses it


@pytest.fixture
def called():
    """Return for each callback if it ran in the loop's thread."""
    return []


def test_an_async_producer_needs_no_thread_and_no_executor(cluster, topic, network, started, called):
    """Everything runs on the caller's loop, callbacks and compression, too: with numeric addresses no thread is ever
    started."""
    before = {thread for thread in threading.enumerate() if thread.name.startswith("pyclient-")}
    asyncio.run(use(cluster.bootstrap_servers, topic, network, called))
    assert started == []
    assert called == [True] * 100
    after = {thread for thread in threading.enumerate() if thread.name.startswith("pyclient-")}
    assert {thread.name for thread in after - before} <= {"pyclient-log-disk"}  # the broker's, in this process


def test_a_host_name_is_looked_up_in_a_thread_that_ends(cluster, topic, network, started, called):
    """The system's resolver only blocks. What Metadata says is numeric here, so there is one name to look up."""
    _, port = parse_address(cluster.bootstrap_servers)
    asyncio.run(use(f"localhost:{port}", topic, network, called))
    assert started and {thread.name for thread in started} == {"pyclient-dns-localhost"}
    for thread in started:
        thread.join(PATIENCE)  # it has answered, and ends
        assert not thread.is_alive()
    assert called == [True] * 100
