"""Guarantees 1, 2, 5, 6 and 7: buffers, close, time limits, and `maybe_persisted` of failures."""

from __future__ import annotations

import asyncio
import threading
import time
import zlib

import pytest

from pyclient import AsyncProducer, Producer, errors
from pyclient.broker_embedded import EmbeddedCluster
from tests.producer.log import read_log
from tests.producer.network import CUT, DROP, HOLD, PASS, PRODUCE
from tests.producer.producer_clients import begin


def checked(name, number):
    """Return a value that names its topic and carries the CRC of the rest."""
    body = f"{name} {number} ".encode().ljust(590, b"%d" % (number % 10))
    return body + b" %08x" % zlib.crc32(body)


def has_valid_crc(value, name):
    body, _, crc = value.rpartition(b" ")
    return body.startswith(name.encode() + b" ") and int(crc, 16) == zlib.crc32(body)


def test_pooled_buffer_is_not_reused_while_its_request_is_in_flight(make, cluster, topic, network):
    """Guarantee 1: Produce to A stalls past the delivery timeout while B goes on through a tiny pool; released, every
    value in A and B carries its own topic's CRC, and the pool is full again."""
    a, b = f"{topic}-a", f"{topic}-b"
    network.look_like_two_brokers(cluster.bootstrap_servers, lambda name, _: name == b)
    client = make(batch_size=700, buffer_memory=4 * 700, linger_ms=0, request_timeout_ms=100_000)
    for name in (a, b):
        client.result(client.send(name, checked(name, 0), partition=0))
    held = threading.Event()
    network.request = lambda api: HOLD if api == PRODUCE and not held.is_set() and not held.set() else PASS
    stalled = client.send(a, checked(a, 1), partition=0)
    assert held.wait(60)
    with client.producer_client.lock:
        for batch in client.producer_client.accumulator.incomplete:
            batch.deadline = 0.0  # the delivery timeout is over while the request is under way, for long enough
    client.producer_client.loop.wake()
    error = client.exception(stalled)
    assert isinstance(error, errors.DeliveryTimeout) and error.maybe_persisted
    assert client.health()["buffer_bytes_used"] == 700, "the buffer of the request that is under way is not free"
    written = [client.send(b, checked(b, number), partition=0) for number in range(1, 40)]
    network.release()
    assert [client.exception(future) for future in written] == [None] * 39
    after = client.send(a, checked(a, 2), partition=0)
    assert client.exception(after) is None
    client.flush()
    assert client.health()["buffer_bytes_used"] == 0
    for name, count in ((a, 3), (b, 40)):
        values = [record.value for record in read_log(cluster.bootstrap_servers, name)[0]]
        assert all(has_valid_crc(value, name) for value in values)
        assert values == [checked(name, number) for number in range(count)], "the late request did arrive"


# -- 2: close, flush and exit lose no record silently


def test_a_hundred_thousand_sends_and_a_close_lose_nothing(cluster, topic):
    """Guarantee 2: 100,000 sends and then close(): what was confirmed is what was sent, in the log in order."""
    values = [b"%d" % number for number in range(100_000)]
    with Producer(cluster.bootstrap_servers) as producer:
        futures = [producer.send(topic, value, partition=0) for value in values]
    assert [future.result(0).offset for future in futures] == list(range(100_000))

    async def asynchronously():
        producer = AsyncProducer(cluster.bootstrap_servers)
        sent = [await producer.send(topic, value, partition=1) for value in values]
        await producer.close()
        return sent

    futures = asyncio.run(asynchronously())
    assert [future.result(0).offset for future in futures] == list(range(100_000))
    log = read_log(cluster.bootstrap_servers, topic)
    assert [record.value for record in log[0]] == values == [record.value for record in log[1]]


def test_close_ends_in_time_while_the_cluster_is_down(make, topic):
    """Guarantee 2: close(timeout=2) takes at most 2.5 s, every future fails clearly, and send raises at once."""
    took = []
    for _ in range(15):  # a busy machine may delay one
        with EmbeddedCluster() as own:
            client = make(own.bootstrap_servers, request_timeout_ms=20_000)
            client.result(client.send(topic, b"first"))
        futures = [client.send(topic, b"%d" % number, partition=0) for number in range(100)]
        started = time.monotonic()
        with pytest.raises(errors.DeliveryFailed, match="100 records were not delivered"):
            client.close(timeout=2)
        took.append(time.monotonic() - started)
        for future in futures:
            assert future.done() and isinstance(client.exception(future, 0.1), errors.ClosedError)
        with pytest.raises(errors.ClosedError, match="producer is closed"):
            client.send(topic, b"late")
        if took[-1] <= 2.5:
            break
    assert 1.99 <= min(took) <= 2.5, took


# -- 5: the delivery timeout is a bound


@pytest.mark.parametrize("fault", ["requests vanish", "answers vanish", "no connection lasts"])
def test_the_delivery_timeout_bounds_every_record(make, topic, fault, network):
    """Guarantee 5: without responses, each future fails in [T, T + 1 s], and its callback is called once."""
    client = make(request_timeout_ms=300, delivery_timeout_ms=500, linger_ms=5, batch_size=0, retry_backoff_ms=20)
    begin(client, topic)
    if fault == "requests vanish":
        network.request = lambda api: DROP if api == PRODUCE else PASS
    elif fault == "answers vanish":
        network.response = lambda api: DROP if api == PRODUCE else PASS
    else:
        network.request = lambda api: CUT
    for _ in range(15):  # a busy machine may delay single ones
        waited = send_unanswered(client, topic)
        assert min(waited) >= 0.49
        if max(waited) <= 1.5:
            break
    assert max(waited) <= 1.5


def send_unanswered(client, topic):
    """Return the seconds from `send` to its callback for each of 60 records."""
    waited, calls = {}, []
    for number in range(60):
        sent = time.monotonic()

        def ended(future, number=number, sent=sent):
            calls.append(number)
            waited[number] = time.monotonic() - sent
            assert isinstance(future.exception(0), errors.DeliveryTimeout)

        client.send(topic, b"%d" % number, partition=number % 2, on_delivery=ended)
        time.sleep(0.01)  # records of every age
    client.flush()
    assert sorted(calls) == list(range(60)), "each callback is called once"
    return list(waited.values())


def test_a_delivery_timeout_that_leaves_no_time_for_a_request_is_refused(make):
    """Guarantee 5: delivery_timeout_ms is at least linger_ms + request_timeout_ms."""
    with pytest.raises(errors.ConfigError, match=r"at least linger_ms \+ request_timeout_ms = 1010"):
        make(request_timeout_ms=1000, linger_ms=10, delivery_timeout_ms=1009)


# -- 6: an unknown outcome differs from "not written"


@pytest.mark.parametrize(
    ("case", "maybe_persisted", "retriable"),
    [
        ("the answer is lost", True, True),
        ("the broker refuses before it writes", False, False),
        ("it writes, but not on enough replicas", True, True),
        ("the request cannot be sent", False, True),
    ],
)
def test_maybe_persisted_of_an_error_is_true_if_the_outcome_is_unknown(
    make, topic, log, network, case, maybe_persisted, retriable
):
    """Guarantee 6: `maybe_persisted` and `retriable` of the error; a lost reply leaves the outcome unknown."""
    within = {"request_timeout_ms": 500, "delivery_timeout_ms": 1500} if case == "the request cannot be sent" else {}
    client = make(acks=1, retries=0, linger_ms=0, **within)
    begin(client, topic)
    if case == "the answer is lost":
        network.response = lambda api: CUT if api == PRODUCE else PASS
    elif case == "the broker refuses before it writes":
        network.refuse = lambda request: errors.TopicAuthorizationFailed.code
    elif case == "it writes, but not on enough replicas":
        network.refuse = lambda request: errors.NotEnoughReplicasAfterAppend.code
    else:
        network.request = lambda api: CUT
        client.exception(client.send(topic, b"cuts the connection", partition=1))
    error = client.exception(client.send(topic, b"second", partition=0))
    assert (error.maybe_persisted, error.retriable) == (maybe_persisted, retriable), error
    if not maybe_persisted:
        network.release()
        network.refuse = lambda request: 0
        assert {record.value for record in log()[0]} == {b"first"}


# -- 7: memory is bounded, and back-pressure never deadlocks


def test_callbacks_may_send_into_a_full_buffer(cluster, topic):
    """Guarantee 7: no deadlock from callbacks that send, even if each has to wait for memory."""
    done, sent = threading.Event(), []
    with Producer(cluster.bootstrap_servers, batch_size=500, buffer_memory=1000, linger_ms=0) as producer:

        def again(future):
            assert future.exception(0) is None
            if len(sent) >= 400:
                done.set()
                return
            sent.extend(producer.send(topic, b"x" * 400, partition=0, on_delivery=again) for _ in range(2))

        producer.send(topic, b"x" * 400, partition=0, on_delivery=again)
        assert done.wait(60)
        producer.flush(60)
        assert all(future.done() for future in sent)
        assert producer.metrics()["buffer_bytes_used"] == 0


def test_tasks_started_by_callbacks_may_send_into_a_full_buffer(cluster, topic):
    """Guarantee 7, on an event loop: there a callback starts a task that sends."""

    async def main():
        loop, sent, tasks = asyncio.get_running_loop(), [], set()
        done = asyncio.Event()
        async with AsyncProducer(
            cluster.bootstrap_servers, batch_size=500, buffer_memory=1000, linger_ms=0
        ) as producer:

            async def send():
                sent.append(await producer.send(topic, b"x" * 400, partition=0, on_delivery=again))

            def again(future):
                assert future.exception(0) is None
                if len(sent) >= 400:
                    done.set()
                    return
                for _ in range(2):
                    task = loop.create_task(send())
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)

            await send()
            async with asyncio.timeout(60):
                await done.wait()
                while tasks:
                    await asyncio.gather(*tasks)
            await producer.flush(60)
            assert all(future.done() for future in sent)

    asyncio.run(main())
