"""Guarantee 27: repeated opening, failing and closing leaks no files, threads or memory."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import threading

import pytest

from pyclient import AsyncProducer, Producer, errors
from pyclient.producer.delivery import Delivery
from tests.producer.network import DROP, PASS, PRODUCE
from tests.waiting import until, until_async

pytestmark = pytest.mark.slow
TIMES = 1000
FAILING = 200  # of those whose records fail
PATIENCE = 30.0
WARM = 150  # times after which every arena of the allocator is there
TRIM = getattr(ctypes.CDLL(None), "malloc_trim", lambda pad: 0)
GROWTH = 8_000  # KiB; with one leaked producer in a hundred it is more


def resident():
    """Return this process's memory in KiB, without freed memory that the C library keeps."""
    TRIM(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def files():
    """Return the number of open files, except those in the broker's directory, which opens indexes as logs grow."""
    return sum(not is_of_a_log(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd"))


def is_of_a_log(place):
    try:
        return "/pyclient-cluster-" in os.readlink(place)
    except FileNotFoundError:  # the listing's own
        return False


def threads():
    """Return the number of threads, except the one that the broker starts when it first waits for its disk."""
    return sum(thread.name != "pyclient-log-disk" for thread in threading.enumerate())


def deliveries():
    """Return the number of living `Delivery` objects."""
    return sum(isinstance(thing, Delivery) for thing in gc.get_objects())


class Flat:
    """The resources in use at the beginning."""

    def __init__(self):
        gc.collect()
        self.files, self.threads, self.resident = files(), threads(), resident()
        self.deliveries = deliveries()

    def check(self):
        """Assert that no more is in use; the broker's ends of connections, and ending threads, may take a moment."""
        until(lambda: not self.left(), self.left)

    def left(self):
        """Return the resources of which too many are in use."""
        gc.collect()
        left = [] if deliveries() <= self.deliveries else [f"{deliveries()} deliveries"]
        if files() > self.files or threads() > self.threads:
            left += [files(), threading.enumerate()]
        return left + [grown for grown in [resident() - self.resident] if grown >= GROWTH]


async def over_and_over(once, times):
    """Assert that memory, threads and files are flat over so many calls on this loop."""
    for _ in range(WARM):
        await once()
    flat = Flat()
    for _ in range(times):
        await once()
    await until_async(lambda: not flat.left(), flat.left)


def test_a_thousand_producers_opened_and_closed_leave_nothing(cluster, topic):
    """Guarantee 27: files, threads and memory are flat over 1,000 producers that deliver a record each."""

    def once():
        with Producer(cluster.bootstrap_servers) as producer:
            producer.send(topic, b"x", partition=0, on_delivery=lambda future: None).result(60)

    for _ in range(WARM):
        once()
    flat = Flat()
    for _ in range(TIMES):
        once()
    flat.check()


def test_a_thousand_async_producers_opened_and_closed_leave_nothing(cluster, topic):
    """Guarantee 27, on one event loop."""

    async def once():
        async with AsyncProducer(cluster.bootstrap_servers) as producer:
            await (await producer.send(topic, b"x", partition=0, on_delivery=lambda future: None))

    asyncio.run(over_and_over(once, TIMES))


def test_producers_whose_records_fail_leave_nothing(cluster, topic, network):
    """Guarantee 27, with failed records of which some are observed, some raised, and some not observed."""

    def once():
        producer = Producer(cluster.bootstrap_servers, linger_ms=0)
        producer.send(topic, b"x", partition=0).result(60)
        network.request = lambda api: DROP if api == PRODUCE else PASS
        future = producer.send(topic, b"lost", partition=0)
        producer.send(topic, b"lost, not observed", partition=1)
        with pytest.raises(errors.DeliveryFailed):
            producer.close(0.001)
        with pytest.raises(errors.ClosedError):
            future.result(0)
        network.release()

    for _ in range(WARM):
        once()
    flat = Flat()
    for _ in range(FAILING):
        once()
    flat.check()


def test_async_producers_whose_records_fail_leave_nothing(cluster, topic, network):
    """Guarantee 27, on one event loop."""

    async def once():
        producer = AsyncProducer(cluster.bootstrap_servers, linger_ms=0)
        await (await producer.send(topic, b"x", partition=0))
        network.request = lambda api: DROP if api == PRODUCE else PASS
        future = await producer.send(topic, b"lost", partition=0)
        await producer.send(topic, b"lost, not observed", partition=1)
        with pytest.raises(errors.DeliveryFailed):
            await producer.close(0.001)
        with pytest.raises(errors.ClosedError):
            await future
        network.release()

    asyncio.run(over_and_over(once, FAILING))
