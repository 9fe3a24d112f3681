"""Guarantee 20: a forked child sends no record of its parent, logs nothing, and is refused at once."""

from __future__ import annotations

import pytest

from tests.interpreter import needs_loop_after_fork
from tests.producer.programs import run

ASYNC = """
import asyncio, os, sys
from pyclient import AsyncProducer
servers, topic, ending = sys.argv[1:]

async def main():
    loop = asyncio.get_running_loop()
    producer = AsyncProducer(servers, linger_ms=200 if ending == "goes on" else 20_000, enable_idempotence=False)
    await producer.send(topic, b"0", partition=0)
    await producer.flush(20)
    future = await producer.send(topic, b"1", partition=0)
    child = os.fork()
    if not child:
        if ending == "exits":
            sys.exit(0)
        if ending == "goes on":  # for longer than the record lingers
            pause = loop.create_future()
            loop.call_later(1, pause.set_result, None)
            await pause
        return "child"
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not future.done()
    await producer.flush(20)
    await producer.close(20)
    return "parent"

print(asyncio.run(main()), flush=True)
"""


@needs_loop_after_fork
@pytest.mark.parametrize("ending", ["exits", "returns", "goes on"])
def test_child_with_a_copied_loop_sends_no_lingering_records(cluster, topic, log, ending):
    """asyncio closes the copied loop in the child; without idempotence a record sent twice would be there twice."""
    out = run(ASYNC, cluster.bootstrap_servers, topic, ending, said="")
    assert out == ("parent\n" if ending == "exits" else "child\nparent\n")
    assert [record.value for record in log()[0]] == [b"0", b"1"]


def test_child_of_a_synchronous_producer_exits_without_output_or_records(cluster, topic, log):
    run(
        """
        import os, sys
        from pyclient import Producer
        producer = Producer(sys.argv[1], linger_ms=20_000, enable_idempotence=False)
        producer.send(sys.argv[2], b"0", partition=0)
        producer.flush(20)
        future = producer.send(sys.argv[2], b"1", partition=0)
        child = os.fork()
        if not child:
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert not future.done()
        producer.close(20)
        """,
        cluster.bootstrap_servers,
        topic,
        said="",
    )
    assert [record.value for record in log()[0]] == [b"0", b"1"]


def test_child_with_its_own_producer_ends_despite_locks_of_its_parent(cluster, topic, log):
    """A thread of the parent held the lock of its producer during the fork."""
    run(
        """
        import os, sys, threading
        from pyclient import Producer
        from tests.producer.parts import client_of
        producer = Producer(sys.argv[1], linger_ms=20_000)
        future = producer.send(sys.argv[2], b"parent's", partition=0)
        held, go_on = threading.Event(), threading.Event()

        def hold():
            with client_of(producer).lock:
                held.set()
                go_on.wait(60)

        threading.Thread(target=hold).start()
        assert held.wait(60)
        child = os.fork()
        if not child:
            own = Producer(sys.argv[1], linger_ms=20_000)
            own.send(sys.argv[2], b"child's", partition=1)
            sys.exit(0)  # which has it sent
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        go_on.set()
        assert not future.done()
        producer.close(20)
        """,
        cluster.bootstrap_servers,
        topic,
        said="",
    )
    assert [record.value for partition in (0, 1) for record in log()[partition]] == [b"parent's", b"child's"]


def test_failed_futures_freed_in_a_child_neither_block_nor_log(cluster, topic):
    """A thread of the parent was counting failures during the fork."""
    run(
        """
        import os, signal, sys, threading
        from pyclient import Producer
        from tests.producer.parts import failures_lock_of
        producer = Producer(sys.argv[1], linger_ms=20_000)
        future = producer.send(sys.argv[2], b"x", partition=0)
        producer.purge()
        held, go_on = threading.Event(), threading.Event()

        def hold():
            with failures_lock_of(producer):
                held.set()
                go_on.wait(60)

        threading.Thread(target=hold, daemon=True).start()
        assert held.wait(60)
        child = os.fork()
        if not child:
            signal.alarm(30)  # else a child that hangs hangs for ever
            del future
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        go_on.set()
        assert future.exception(20)
        producer.close(20)
        """,
        cluster.bootstrap_servers,
        topic,
        said="",
    )


@needs_loop_after_fork
def test_child_is_not_affected_by_a_dropped_producer_that_delivers(cluster, topic, log):
    run(
        """
        import asyncio, os, sys, warnings
        from pyclient import AsyncProducer
        warnings.simplefilter("ignore", ResourceWarning)

        async def main():
            producer = AsyncProducer(sys.argv[1], linger_ms=0, enable_idempotence=False)
            await (await producer.send(sys.argv[2], b"0", partition=0))
            future = await producer.send(sys.argv[2], b"1", partition=0)
            del producer
            child = os.fork()
            if not child:
                sys.exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            await future

        asyncio.run(main())
        """,
        cluster.bootstrap_servers,
        topic,
        said="",
    )
    assert [record.value for record in log()[0]] == [b"0", b"1"]


CALLBACKS = """
import asyncio, os, sys
from pyclient import AsyncProducer, Producer, errors
from tests.producer.parts import client_of

def refused(*futures):
    for future in futures:
        uses = [future.add_done_callback, lambda _, future=future: future.to_concurrent()]
        if not future.done():
            uses += [lambda _, future=future, seconds=seconds: future.result(seconds) for seconds in (0, 0.001)]
        for use in uses:
            try:
                use(print)
            except errors.ForkError as error:
                assert "are only available in process" in str(error)
            else:
                os._exit(3)
    os._exit(0)

def in_a_child(producer, *futures):
    futures[-1].add_done_callback(lambda future: None)
    with client_of(producer).context.lock, client_of(producer).lock:  # as by threads that the child does not have
        child = os.fork()
        if not child:
            refused(*futures)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

def with_sync(servers, topic):
    with Producer(servers, linger_ms=20_000) as producer:
        known = producer.send(topic, b"0", partition=0)
        producer.flush(20)
        column = producer.send_many(topic, [b"1"], partition=0)
        in_a_child(producer, known, column, column[0], producer.send(topic, b"2", partition=0))

async def with_async(servers, topic):
    async with AsyncProducer(servers, linger_ms=20_000) as producer:
        known = await producer.send(topic, b"0", partition=0)
        await producer.flush(20)
        column = await producer.send_many(topic, [b"1"], partition=0)
        in_a_child(producer, known, column, column[0], await producer.send(topic, b"2", partition=0))

with_sync(*sys.argv[1:])
asyncio.run(with_async(*sys.argv[1:]))
print("done")
"""


def test_a_future_takes_no_callback_in_a_child_whatever_locks_were_held(cluster, topic):
    assert run(CALLBACKS, cluster.bootstrap_servers, topic, said="") == "done\n"
