"""Concurrent closes: of one producer by two callers, and of all producers at the interpreter's exit."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from pyclient import AsyncProducer, Producer, errors
from tests.producer.network import HOLD, PASS, PRODUCE
from tests.producer.parts import is_closing
from tests.producer.producer_clients import begin
from tests.producer.programs import run
from tests.waiting import PATIENCE, until

HELD = {"linger_ms": 0, "request_timeout_ms": 600_000, "delivery_timeout_ms": 700_000}


async def one_in_flight(producer, topic, network):
    """Return the future of a record whose response is held, after one that is delivered."""
    await (await producer.send(topic, b"first", partition=0))
    network.response = lambda api: HOLD if api == PRODUCE else PASS
    return await producer.send(topic, b"held", partition=0)


def test_second_async_close_waits_for_the_first_and_health_still_works(cluster, topic, network):
    async def scenario():
        producer = AsyncProducer(cluster.bootstrap_servers, **HELD)
        future = await one_in_flight(producer, topic, network)
        closes = [asyncio.create_task(producer.close(60)) for _ in range(2)]
        for _ in range(10):
            await asyncio.sleep(0)
        assert not any(close.done() for close in closes)
        assert producer.closed and "closed" in repr(producer)
        health = producer.health()
        assert health["state"] == "closed" and health["batches_unconfirmed"] == 1
        assert producer.metrics()["batches_unconfirmed"] == 1
        network.response = lambda api: PASS
        network.release()
        await asyncio.gather(*closes)
        assert (await future).offset == 1
        assert producer.health()["batches_unconfirmed"] == 0 and producer.metrics()["records_delivered"] == 2

    asyncio.run(scenario())


def test_cancelled_close_does_not_cancel_the_concurrent_one(cluster, topic, network):
    async def scenario():
        producer = AsyncProducer(cluster.bootstrap_servers, **HELD)
        future = await one_in_flight(producer, topic, network)
        first, second = [asyncio.create_task(producer.close(60)) for _ in range(2)]
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert not second.done()
        network.response = lambda api: PASS
        network.release()
        await second
        assert (await future).offset == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("timeout", [0, 0.5, 1e30, float("inf")])
def test_a_close_and_a_flush_take_any_number_of_seconds(cluster, topic, timeout):
    producer = Producer(cluster.bootstrap_servers)
    future = producer.send(topic, b"x", on_delivery=lambda _: None)
    if timeout > 0:
        try:
            producer.flush(timeout)
        except errors.KafkaTimeout:  # to connect takes a busy machine longer than half a second
            assert timeout < 1
    try:
        producer.close(timeout)
    except errors.DeliveryFailed:
        assert timeout < 1
    assert producer.closed and future.done()
    assert timeout < 1 or future.exception() is None


def test_close_in_a_callback_leaves_the_work_to_the_close_in_progress(cluster, topic):
    producer, closed = Producer(cluster.bootstrap_servers), []

    def close_too(_):
        until(lambda: is_closing(producer))
        producer.close()
        closed.append(producer)

    producer.send(topic, b"x", partition=0, on_delivery=close_too)
    closing = threading.Thread(target=producer.close, daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive() and closed == [producer] and producer.closed


def test_close_with_a_timeout_ends_in_time_despite_a_longer_close(make, topic, network):
    client = make(**HELD)
    begin(client, topic)
    network.response = lambda api: HOLD if api == PRODUCE else PASS
    future = client.send(topic, b"held", partition=0)
    failed = []

    def close(timeout):
        try:
            client.close(timeout)
        except errors.DeliveryFailed as error:
            failed.append(error)

    patient = threading.Thread(target=close, args=(600,), daemon=True)
    patient.start()
    until(lambda: client.health()["state"] == "closed")
    started = time.monotonic()
    close(0.2)
    assert time.monotonic() - started < PATIENCE
    assert future.done()
    patient.join(PATIENCE)
    assert not patient.is_alive()
    assert isinstance(client.exception(future), errors.ClosedError)
    assert len(failed) == 1  # one of them raises it


def test_interpreter_exit_waits_for_all_producers_with_one_deadline(cluster, topic, log):
    out = run(
        """
        import atexit, sys, time
        begun = []
        atexit.register(lambda: print(time.monotonic() - begun[0]))  # the last to be called
        from pyclient import Producer
        from pyclient.producer import thread_runner
        from tests.producer.parts import client_of
        thread_runner.EXIT_SECONDS = 2.0
        kept = []
        for number in range(21):
            producer = Producer(sys.argv[1], linger_ms=30_000)
            producer.partitions_for(sys.argv[2])
            if number != 2:
                client_of(producer).sender.drain = lambda *_: None
            kept.append((producer, producer.send(sys.argv[2], b"%d" % number, partition=0)))
        atexit.register(lambda: begun.append(time.monotonic()))
        """,
        cluster.bootstrap_servers,
        topic,
    )
    assert 2 <= float(out) < 20  # one after the other they take 40
    assert [record.value for record in log()[0]] == [b"2"]
