"""Guarantee 22: Ctrl-C at any moment, and tasks that are cancelled."""

from __future__ import annotations

import asyncio
import gc
import random
import subprocess
import sys
import textwrap

import pytest

from pyclient import AsyncProducer, errors
from tests.interpreter import needs_interrupt_safe_with

IN_CALLBACK = """
def in_callback(frame):
    # the interpreter's callback of a WeakSet (of threads, of tasks): an error in one is printed, and reaches no caller
    while frame is not None:
        if frame.f_code.co_name == "_remove" and frame.f_code.co_filename.endswith("_weakrefset.py"):
            return True
        frame = frame.f_back
    return False
"""


def run(code, *arguments):
    """Run a program with warnings as errors; it must print "done" and nothing else.

    But for a coroutine that had not begun when an interrupt came, between making it and handing it to the loop.
    """
    warnings = ["-W", "error", "-W", "ignore:coroutine:RuntimeWarning"]
    done = subprocess.run(
        [sys.executable, *warnings, "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


# -- at random moments

OFTEN = pytest.mark.parametrize("times", [50, pytest.param(1000, marks=pytest.mark.slow)])

INTERRUPTED = (
    IN_CALLBACK
    + """
import logging, os, random, signal, sys, threading
from itertools import count
from pyclient import Producer, errors
logging.getLogger("pyclient.producer").addFilter(lambda record: "purged" not in record.getMessage())
servers, topic, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
rng, stop, futures, hits, numbers = random.Random(22), threading.Event(), [], 0, count()

def interrupt(number, frame):
    if in_callback(frame):
        return
    # in `use` and `close` and all they call: what is around them here is no part of the test
    while frame is not None and frame.f_code not in (use.__code__, close.__code__):
        frame = frame.f_back
    if frame is not None:
        raise KeyboardInterrupt

def shoot():
    while not stop.wait(rng.uniform(0.0002, 0.003)):
        os.kill(os.getpid(), signal.SIGINT)

def value():
    return b"%d" % next(numbers) + b"x" * rng.randrange(200)

def use(producer):
    while True:
        for _ in range(rng.randrange(1, 30)):
            futures.append(producer.send(topic, value(), partition=0))
        if rng.random() < 0.3:  # of more than the buffer holds, now and then
            futures.append(producer.send_many(topic, [value() for _ in range(rng.randrange(1, 60))], partition=0))
        if rng.random() < 0.3 and futures:
            futures[-1].exception(20)
        if rng.random() < 0.1:
            producer.purge()
        if rng.random() < 0.3:
            producer.flush(20)
        if rng.random() < 0.02:
            producer.close(20)
            return

def close(producer):
    producer.close(20)

signal.signal(signal.SIGINT, interrupt)
shooter = threading.Thread(target=shoot, daemon=True)
shooter.start()
while hits < times:
    producer = Producer(servers, batch_size=300, buffer_memory=3000, linger_ms=0)
    opened = hits
    while hits < opened + 200:
        try:
            use(producer)
            break
        except KeyboardInterrupt:
            hits += 1
        except errors.ClosedError:
            break  # a close was interrupted, and this one goes on
        except errors.DeliveryFailed:
            pass  # what was purged
    while True:
        try:
            close(producer)
            break
        except KeyboardInterrupt:
            hits += 1
        except errors.DeliveryFailed:
            pass
    assert producer.health()["buffer_bytes_used"] == 0
stop.set()
shooter.join()
single = [one for future in futures for one in (future if hasattr(future, "offsets") else [future])]
failed = [str(error) for future in single if (error := future.exception(0)) is not None]
assert all("the record was purged" in error for error in failed), failed
offsets = [future.result(0).offset for future in single if future.exception(0) is None]
assert offsets == sorted(set(offsets)), "in the order of the calls, each once"
assert offsets and (failed or times < 1000), (len(offsets), len(failed))
print("done")
"""
)


@OFTEN
@needs_interrupt_safe_with
def test_producer_works_after_interrupts_at_any_moment(cluster, topic, log, times):
    """Guarantee 22: SIGINT at random points of send, send_many, result, purge, flush and close, 1,000 times: nothing
    hangs, close works, what has a future is delivered once and in order, or was purged, nothing is there twice, and
    no error or warning is printed."""
    run(
        INTERRUPTED,
        cluster.bootstrap_servers,
        topic,
        str(times),
    )
    values = [record.value for record in log()[0]]
    assert len(set(values)) == len(values)


@OFTEN
def test_producer_works_after_cancelled_tasks(cluster, topic, times):
    """Guarantee 22, on an event loop: 1,000 tasks are cancelled somewhere in send, flush, close or their awaits."""
    complaints = []

    async def main():
        loop, rng, futures = asyncio.get_running_loop(), random.Random(23), []
        loop.set_exception_handler(lambda loop, context: complaints.append(context))

        async def use(producer):
            while True:
                for _ in range(rng.randrange(1, 30)):
                    future = await producer.send(topic, b"x" * rng.randrange(200), partition=0)
                    futures.append(future)
                if rng.random() < 0.3:
                    await futures[-1]
                if rng.random() < 0.3:
                    await producer.flush(20)
                if rng.random() < 0.05:
                    await producer.close(20)
                    return

        async def cancelled(work):
            task = asyncio.create_task(work)
            await asyncio.sleep(rng.uniform(0, 0.004))  # at any moment
            task.cancel()
            return (await asyncio.gather(task, return_exceptions=True))[0]

        cancels = 0
        while cancels < times:
            producer = AsyncProducer(cluster.bootstrap_servers, batch_size=300, buffer_memory=3000, linger_ms=0)
            for _ in range(100):
                outcome = await cancelled(use(producer))
                assert outcome is None or isinstance(outcome, (asyncio.CancelledError, errors.ClosedError)), outcome
                cancels += 1
                if isinstance(outcome, errors.ClosedError):
                    break
            while (outcome := await cancelled(producer.close(20))) is not None:
                assert isinstance(outcome, asyncio.CancelledError), outcome
                cancels += 1
        offsets = [(await future).offset for future in futures]
        assert offsets == sorted(set(offsets)), "in the order of the calls, each once"

    asyncio.run(main())
    gc.collect()
    assert complaints == []


# -- while a call waits

BLOCKED = (
    IN_CALLBACK
    + """
import logging, os, signal, sys, threading, time
from pyclient import Producer
from pyclient.cluster import connection_pool
from tests.producer.network import HOLD, METADATA, PASS, PRODUCE, FaultyNetwork
from tests.producer.parts import client_of

servers, topic = sys.argv[1:]
network = FaultyNetwork()
connection_pool.TcpConnector = network.connector
came = []

def handle(number, frame):
    if not came and not in_callback(frame):  # one Ctrl-C, however often it was pressed
        came.append(True)
        raise KeyboardInterrupt

signal.signal(signal.SIGINT, handle)

def interrupted(call, when):
    def shoot():
        deadline = time.monotonic() + 30
        while not when() and time.monotonic() < deadline:
            time.sleep(0.002)
        while not came and time.monotonic() < deadline:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
        if not came:
            os._exit(7)  # it waits on, for ten minutes

    came.clear()
    shooter = threading.Thread(target=shoot)
    shooter.start()
    try:
        call()
    except KeyboardInterrupt:
        shooter.join()
        return
    raise AssertionError("not interrupted")
"""
)


def test_ctrl_c_ends_a_send_many_that_waits_for_memory(cluster, topic, log):
    """Its appended records are delivered, each once; the memory is free for other callers, which do not wait for it."""
    run(
        BLOCKED
        + """
producer = Producer(servers, batch_size=1024, buffer_memory=4096, max_block_ms=600_000, linger_ms=0)
producer.send(topic, b"first", partition=0).result(30)
network.response = lambda api: HOLD if api == PRODUCE else PASS
pool = client_of(producer).accumulator.pool
rows = [b"%03d" % number * 100 for number in range(100)]
for _ in range(3):  # the others find no memory at all
    interrupted(lambda: producer.send_many(topic, rows, partition=0), lambda: pool.waiting)
    assert not pool.waiting
network.release()
producer.flush(30)
assert pool.available == 4096, pool
assert producer.send(topic, b"later", partition=0).result(30).offset == producer.metrics()["records_delivered"] - 1
assert len(producer.send_many(topic, rows, partition=0).result(30)) == 100
producer.close(30)
assert pool.available == 4096, pool
print("done")
""",
        cluster.bootstrap_servers,
        topic,
    )
    rows = [b"%03d" % number * 100 for number in range(100)]
    first, *handed_over = [record.value for record in log()[0]][:-101]
    assert first == b"first" and [record.value for record in log()[0]][-101:] == [b"later", *rows]
    assert 0 < len(handed_over) < 100 and handed_over == rows[: len(handed_over)]


def test_ctrl_c_ends_partitions_for_that_waits_for_metadata(cluster, topic):
    """With a cluster that cannot be reached, and with one that does not respond."""
    run(
        BLOCKED
        + """
logging.disable(logging.WARNING)  # of a cluster that is out of reach
nowhere = Producer("127.0.0.1:1", max_block_ms=600_000)
interrupted(lambda: nowhere.partitions_for(topic), lambda: client_of(nowhere).loop.learning[topic])
nowhere.close(0)

producer = Producer(servers, max_block_ms=600_000)
loop = client_of(producer).loop
producer.partitions_for(topic + "-known")
network.response = lambda api: HOLD if api == METADATA else PASS
for _ in range(3):
    interrupted(lambda: producer.partitions_for(topic), lambda: loop.learning[topic])
    deadline = time.monotonic() + 30
    while loop.learning[topic]:  # until the loop has given up looking
        assert time.monotonic() < deadline
        time.sleep(0.002)
network.release()
assert producer.partitions_for(topic) == [0, 1, 2]
assert producer.send(topic, b"x", partition=0).result(30).offset == 0
producer.close(30)
print("done")
""",
        cluster.bootstrap_servers,
        topic,
    )
