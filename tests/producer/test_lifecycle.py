"""Threads, forks, signals, callbacks that close, repr and health."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading

import pytest

from pyclient import AsyncProducer, Producer, errors
from tests.interpreter import needs_interrupt_safe_with
from tests.producer.network import HOLD, PASS, PRODUCE
from tests.producer.programs import run


def test_many_threads_may_send_flush_and_wait(make, topic, log):
    client = make(batch_size=2000)
    failures = []

    def work(number):
        try:
            futures = [client.send(topic, b"%d %d" % (number, n), key=b"%d" % number) for n in range(300)]
            client.flush()
            assert all(future.done() for future in futures)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for number in range(8):
        mine = [r.value for part in log().values() for r in part if r.key == b"%d" % number]
        assert mine == [b"%d %d" % (number, n) for n in range(300)]


def test_frequent_thread_switches_lose_no_record(cluster, topic, log):
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with Producer(cluster.bootstrap_servers, batch_size=500, linger_ms=0) as producer:
            offsets = []

            def work(number):
                futures = [
                    producer.send(topic, b"%d" % number * 20, partition=0, headers=[("n", b"%d" % n)])
                    for n in range(400)
                ]
                offsets.extend(future.result(60).offset for future in futures)

            threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert sorted(offsets) == list(range(1600))
    assert len(log()[0]) == 1600


def test_forked_child_is_refused_and_the_parent_continues(cluster, topic):
    out = run(
        """
        import os, sys
        from pyclient import Producer, errors
        producer = Producer(sys.argv[1])
        producer.send(sys.argv[2], b"before").result(60)
        child = os.fork()
        if child == 0:
            for use in (lambda: producer.send(sys.argv[2], b""), producer.flush, lambda: producer.send("other", b""),
                        lambda: producer.send_many("t", [b""]), lambda: producer.partitions_for("t"), producer.health):
                try:
                    use()
                except errors.ForkError as error:
                    assert "parent process" in str(error)
                else:
                    os._exit(1)
            producer.close()
            assert "another process" in repr(producer)
            with Producer(sys.argv[1]) as own:
                own.send(sys.argv[2], b"child", partition=0).result(60)
            del producer
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        producer.send(sys.argv[2], b"after").result(60)
        producer.close()
        print("done")
        """,
        cluster.bootstrap_servers,
        topic,
    )
    assert out == "done\n"


INTERRUPTED = """
import os, signal, sys, threading, time
from pyclient import Producer, errors
from tests.producer.parts import client_of

def interrupt(seconds=0.3):
    threading.Timer(seconds, lambda: os.kill(os.getpid(), signal.SIGINT)).start()

def interrupted(call):
    started = time.monotonic()
    try:
        interrupt()
        call()
    except KeyboardInterrupt:
        assert time.monotonic() - started < 60
        return
    raise AssertionError("not interrupted")
"""


def test_interrupt_ends_every_wait_and_the_producer_still_works(cluster, topic):
    out = run(
        INTERRUPTED
        + """
nowhere = Producer("127.0.0.1:1")
interrupted(lambda: nowhere.send("t", b""))
nowhere.close(0)

producer = Producer(sys.argv[1], batch_size=1024, buffer_memory=2048, linger_ms=0)
topic = sys.argv[2]
producer.send(topic, b"first", partition=0).result(60)
client, off_fast_path = client_of(producer), {"partition": 0, "headers": {"h": b""}}
drain, client.sender.drain = client.sender.drain, lambda *_: None  # brokers take nothing
future = producer.send(topic, b"x" * 800, **off_fast_path)
interrupted(future.result)
interrupted(producer.flush)
producer.send(topic, b"x" * 800, **off_fast_path)
interrupted(lambda: producer.send(topic, b"y" * 800, **off_fast_path))
interrupted(producer.close)
client.sender.drain = drain
client.loop.wake()
producer.close()
assert future.result(0).offset == 1
assert producer.health()["buffer_bytes_used"] == 0
print("done")
""",
        cluster.bootstrap_servers,
        topic,
    )
    assert out == "done\n"


@needs_interrupt_safe_with
def test_producer_works_after_an_interrupt_at_any_moment_of_sending(cluster, topic):
    out = run(
        INTERRUPTED
        + """
import itertools, random
producer = Producer(sys.argv[1], batch_size=300, buffer_memory=3000, linger_ms=0)
topic = sys.argv[2]
rng = random.Random(7)
stop = []  # no event: an interrupt may leave its lock taken

def interrupt_while_sending(number, frame):
    while frame is not None and frame.f_code is not send.__code__:
        frame = frame.f_back
    if frame is not None and not stop:
        raise KeyboardInterrupt

def shoot():
    while not stop:
        time.sleep(rng.uniform(0.0005, 0.004))
        os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, interrupt_while_sending)
shooter = threading.Thread(target=shoot, daemon=True)
futures, hits = [], 0

def send():
    for number in itertools.count():
        futures.append(producer.send(topic, b"x" * rng.randrange(200), partition=0, headers=[("h", b"1")]))
        if number % 50 == 0:
            producer.flush(60)

shooter.start()
while not stop:
    try:
        send()  # the loop is in there: from Python 3.12 on Ctrl-C where one jumps back passes by the `try` around it
    except KeyboardInterrupt:
        hits += 1
        if hits >= 200:
            stop.append(True)
shooter.join()
producer.flush(60)
offsets = [future.result(0).offset for future in futures]
assert len(set(offsets)) == len(offsets) and sorted(offsets) == offsets
assert producer.health()["buffer_bytes_used"] == 0, producer.health()
producer.close()
print("done")
""",
        cluster.bootstrap_servers,
        topic,
    )
    assert out == "done\n"


def test_a_callback_may_flush_and_even_close(cluster, topic):
    producer, done = Producer(cluster.bootstrap_servers), threading.Event()

    def delivered(future):
        producer.send(topic, b"from the callback", partition=0)
        producer.flush(60)
        producer.close(60)
        done.set()

    producer.send(topic, b"x", partition=0, on_delivery=delivered)
    assert done.wait(60)
    with pytest.raises(errors.ClosedError):
        producer.send(topic, b"")


def test_repr_and_health_show_the_state(make, cluster, topic):
    client = make()
    assert (
        repr(client.producer)
        == f"<{type(client.producer).__name__} {cluster.bootstrap_servers} open, 0 batches unconfirmed>"
    )
    client.result(client.send(topic, b""))
    health = client.health()
    assert health["state"] == "open" and health["connected_nodes"] == [cluster.bootstrap_servers]
    assert health["topics"] == [topic] and health["buffer_bytes_used"] == 0 and health["producer_id"] >= 0
    client.close()
    assert "closed" in repr(client.producer)


def test_signal_handlers_are_left_alone(cluster):
    before = signal.getsignal(signal.SIGINT)
    Producer(cluster.bootstrap_servers).close()
    assert signal.getsignal(signal.SIGINT) is before


def test_with_block_after_an_exception_closes_within_its_limit(cluster, topic, network, monkeypatch, caplog):
    monkeypatch.setattr("pyclient.producer.producer.EXIT_SECONDS", 0.2)
    monkeypatch.setattr("pyclient.producer.async_producer.EXIT_SECONDS", 0.2)
    options = {"linger_ms": 0, "request_timeout_ms": 600_000, "delivery_timeout_ms": 700_000}
    futures = []

    async def with_async():
        async with AsyncProducer(cluster.bootstrap_servers, **options) as producer:
            futures.append(await producer.send(topic, b"x"))
            raise KeyError("mine")

    network.response = lambda api: HOLD if api == PRODUCE else PASS
    with pytest.raises(KeyError, match="mine"), Producer(cluster.bootstrap_servers, **options) as producer:
        futures.append(producer.send(topic, b"x"))
        raise KeyError("mine")
    with pytest.raises(KeyError, match="mine"):
        asyncio.run(with_async())
    assert sum("closing the producer after KeyError('mine'): 1 record" in message for message in caplog.messages) == 2
    assert all(isinstance(future.exception(0), errors.ClosedError) for future in futures)
