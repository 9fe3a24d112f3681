"""Guarantees 20 to 23: forks, threads, Ctrl-C and cancelled tasks at any moment, and callbacks that raise."""

from __future__ import annotations

import asyncio
import gc
import random
import re
import subprocess
import sys
import textwrap
import threading

import pytest

from pyclient import AsyncProducer, Producer, errors
from tests.producer.log import read_log

SWALLOWED = re.compile(
    r"Exception ignored in: <function WeakSet\.__init__\.<locals>\._remove at 0x[0-9a-f]+>\n"
    r"Traceback \(most recent call last\):\n(  .*\n)+KeyboardInterrupt: ?\n"
)
"""A Ctrl-C that came while the interpreter told a WeakSet, of threads or tasks, of a death: it says so itself."""


def run(code, *arguments):
    """Runs a program with warnings as errors, to its end; it prints "done" and says nothing else.

    But for a coroutine that had not begun when an interrupt came, between making it and handing it to the loop, and for
    an interrupt that the interpreter swallows.
    """
    warnings = ["-W", "error", "-W", "ignore:coroutine:RuntimeWarning"]
    done = subprocess.run(
        [sys.executable, *warnings, "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, SWALLOWED.sub("", done.stderr)) == (0, "done\n", "")


# -- 20: fork


def test_a_child_that_exits_as_programs_do_neither_flushes_nor_closes_its_parents_producer(cluster, topic, log):
    """Guarantee 20: use in the child raises ForkError at once, and the exit of the child, exit handlers and garbage
    collection included, leaves the parent's records and sockets alone."""
    run(
        """
        import gc, os, sys
        from pyclient import Producer, errors
        producer = Producer(sys.argv[1], linger_ms=20_000)
        topic = sys.argv[2]
        producer.send(topic, b"0", partition=0)
        producer.flush(20)
        lingering = producer.send(topic, b"1", partition=0)
        for _ in range(3):
            child = os.fork()
            if not child:
                for use in (lambda: producer.send(topic, b"child"), producer.flush, producer.metrics):
                    try:
                        use()
                        os._exit(3)
                    except errors.ForkError:
                        pass
                try:
                    lingering.result(20)
                    os._exit(4)
                except errors.ForkError:
                    pass
                del producer
                gc.collect()
                sys.exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert not lingering.done()
        producer.flush(20)
        assert lingering.result(0).offset == 1
        assert producer.send(topic, b"2", partition=0) and producer.close(20) is None
        print("done")
        """,
        cluster.bootstrap_servers,
        topic,
    )
    assert [record.value for record in log()[0]] == [b"0", b"1", b"2"]


def test_an_async_producer_is_refused_in_a_child_as_well(cluster, topic, log):
    """Guarantee 20, on an event loop."""
    run(
        """
        import asyncio, os, sys
        from pyclient import AsyncProducer, errors
        async def main():
            async with AsyncProducer(sys.argv[1]) as producer:
                await (await producer.send(sys.argv[2], b"0", partition=0))
                child = os.fork()
                if not child:
                    for use in (lambda: producer.send(sys.argv[2], b"child"), producer.flush, producer.start):
                        try:
                            await use()
                            os._exit(3)
                        except errors.ForkError:
                            pass
                    await producer.close()
                    os._exit(0)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
                await (await producer.send(sys.argv[2], b"1", partition=0))
        asyncio.run(main())
        print("done")
        """,
        cluster.bootstrap_servers,
        topic,
    )
    assert [record.value for record in log()[0]] == [b"0", b"1"]


# -- 21: threads


@pytest.fixture
def switching():
    """Threads change at every opportunity."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def test_sixteen_threads_that_send_flush_and_close_lose_nothing(cluster, topic, switching):
    """Guarantee 21: 16 threads, a thread switch every microsecond, and a close in the middle: a `send` either raises
    ClosedError or its record is delivered, each thread's records in their order."""
    delivered = 0
    for round_ in range(5):
        producer, accepted, wrong = Producer(cluster.bootstrap_servers, batch_size=400), {}, []
        enough = threading.Event()

        def work(number, producer=producer, accepted=accepted, wrong=wrong, enough=enough, round_=round_):
            mine = accepted.setdefault(number, [])
            try:
                for n in range(1_000_000):
                    mine.append(producer.send(topic, b"%d %d %d" % (round_, number, n), partition=number % 3))
                    if n % 40 == number:
                        producer.flush(20)
                    if n == 60:
                        enough.set()
            except errors.ClosedError:
                pass
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        assert enough.wait(60)
        closers = [threading.Thread(target=producer.close, args=(60,)) for _ in range(2)]
        for thread in [*closers]:
            thread.start()
        for thread in [*closers, *threads]:
            thread.join(60)
            assert not thread.is_alive()
        assert wrong == []
        for futures in accepted.values():
            offsets = [future.result(0).offset for future in futures]
            assert offsets == sorted(set(offsets))
            delivered += len(offsets)
    assert sum(map(len, read_log(cluster.bootstrap_servers, topic).values())) == delivered


def test_sixteen_tasks_that_send_flush_and_close_lose_nothing(cluster, topic):
    """Guarantee 21, on an event loop."""

    async def one_round(number):
        producer, accepted = AsyncProducer(cluster.bootstrap_servers, batch_size=400), []
        enough = asyncio.Event()

        async def work(task):
            try:
                for n in range(1_000_000):
                    accepted.append(await producer.send(topic, b"%d %d %d" % (number, task, n)))
                    if n % 40 == task:
                        await producer.flush(20)
                    if n == 60:
                        enough.set()
            except errors.ClosedError:
                pass

        tasks = [asyncio.create_task(work(task)) for task in range(16)]
        await enough.wait()
        await asyncio.gather(producer.close(60), producer.close(60))
        await asyncio.gather(*tasks)
        return [await future for future in accepted]

    async def main():
        return sum([len(await one_round(number)) for number in range(5)])

    delivered = asyncio.run(main())
    assert sum(map(len, read_log(cluster.bootstrap_servers, topic).values())) == delivered


# -- 22: Ctrl-C, and tasks that are cancelled

OFTEN = pytest.mark.parametrize("times", [50, pytest.param(1000, marks=pytest.mark.slow)])

INTERRUPTED = """
import os, random, signal, sys, threading
from pyclient import Producer, errors
signal.signal(signal.SIGINT, signal.default_int_handler)
servers, topic, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
rng, stop, futures, hits = random.Random(22), threading.Event(), [], 0
FIRE = {signal.SIGINT}

def shoot():
    signal.pthread_sigmask(signal.SIG_BLOCK, FIRE)
    while not stop.wait(rng.uniform(0.0002, 0.003)):
        os.kill(os.getpid(), signal.SIGINT)

def use(producer):
    while True:
        for _ in range(rng.randrange(1, 30)):
            futures.append(producer.send(topic, b"x" * rng.randrange(200), partition=0))
        if rng.random() < 0.3 and futures:
            futures[-1].result(20)
        if rng.random() < 0.3:
            producer.flush(20)
        if rng.random() < 0.02:
            producer.close(20)
            return

signal.pthread_sigmask(signal.SIG_BLOCK, FIRE)
shooter = threading.Thread(target=shoot)
shooter.start()
while hits < times:
    producer = Producer(servers, batch_size=300, buffer_memory=3000, linger_ms=0)
    opened = hits
    while hits < opened + 200:
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, FIRE)
            use(producer)
            break
        except KeyboardInterrupt:
            hits += 1
        except errors.ClosedError:
            break  # a close was interrupted, and this one goes on
    signal.pthread_sigmask(signal.SIG_BLOCK, FIRE)
    while True:
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, FIRE)
            producer.close(20)
            signal.pthread_sigmask(signal.SIG_BLOCK, FIRE)
            break
        except KeyboardInterrupt:
            signal.pthread_sigmask(signal.SIG_BLOCK, FIRE)
            hits += 1
    assert producer._core.accumulator.pool.available == 3000
stop.set()
shooter.join()
offsets = [future.result(0).offset for future in futures]
assert offsets == sorted(set(offsets)), "in the order of the calls, each once"
print("done")
"""


@OFTEN
def test_ctrl_cs_at_any_moment_leave_a_producer_that_works(cluster, topic, times):
    """Guarantee 22: SIGINT at random points of send, result, flush and close, 1,000 times: nothing hangs, close works,
    what has a future is delivered once and in order, and nobody complains about anything."""
    run(
        INTERRUPTED,
        cluster.bootstrap_servers,
        topic,
        str(times),
    )


@OFTEN
def test_tasks_cancelled_at_any_moment_leave_a_producer_that_works(cluster, topic, times):
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
            await asyncio.sleep(rng.uniform(0, 0.004))
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


# -- 23: callbacks and serializers that raise


@pytest.mark.parametrize("error", [RuntimeError("wrong"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
def test_a_callback_may_raise_whatever_it_likes(cluster, topic, caplog, error):
    """Guarantee 23: the sender and all later callbacks go on, and what was raised is in the log."""

    def callback(future):
        raise error

    seen = []
    with Producer(cluster.bootstrap_servers) as producer:
        for _ in range(3):
            producer.send(topic, b"x", on_delivery=callback)
            producer.send(topic, b"x", on_delivery=seen.append)
            producer.flush(20)
    assert len(seen) == 3 and caplog.text.count("the delivery callback") == 3


def test_a_record_that_cannot_be_serialized_does_not_stop_the_next(make, topic, log):
    """Guarantee 23: the call says so, and the producer goes on."""
    face = make(value_serializer=lambda value: value.encode())
    sent = []
    for value in ("a", 5, "b", None, b"c", "d"):
        try:
            sent.append(face.send(topic, value, partition=0))
        except errors.SerializationError as error:
            assert "value_serializer failed" in str(error)
    face.flush()
    assert [record.value for record in log()[0]] == [b"a", b"b", None, b"d"] and len(sent) == 4
