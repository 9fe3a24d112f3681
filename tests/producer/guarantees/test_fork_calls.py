"""Guarantee 20: in a child made by fork every call of a producer raises ForkError at once, and close does nothing."""

from __future__ import annotations

import json

import pytest

from pyclient import AsyncProducer, Producer
from tests.producer.log import read_log
from tests.producer.programs import run

CHILD = """
import asyncio, json, os, signal, sys
from pyclient import AsyncProducer, GroupMetadata, Producer, errors
from tests.producer.parts import client_of

def calls(producer):
    records = [("send", topic), ("send to a topic that is not known", topic + "-new")]
    for name, to in records:
        yield name, lambda: producer.send(to, b"child", partition=0)
        yield name + " with headers", lambda: producer.send(to, b"child", partition=0, headers=[("h", b"1")])
    yield "send_many", lambda: producer.send_many(topic, [b"child"], partition=0)
    yield "send_many of nothing", lambda: producer.send_many(topic, [])
    yield "partitions_for", lambda: producer.partitions_for(topic)
    yield "flush", producer.flush
    yield "purge", producer.purge
    yield "health", producer.health
    yield "metrics", producer.metrics
    for name in ("init_transactions", "begin_transaction", "commit_transaction", "abort_transaction"):
        yield name, getattr(producer, name)
    group = GroupMetadata("g")
    yield "send_offsets_to_transaction", lambda: producer.send_offsets_to_transaction({}, group)
    if isinstance(producer, AsyncProducer):
        yield "transaction", lambda: producer.transaction().__aenter__()
        yield "start", producer.start
        yield "enter", producer.__aenter__
    else:
        yield "transaction", lambda: producer.transaction().__enter__()
        yield "enter", producer.__enter__
    yield "close", producer.close
    yield "send after close", lambda: producer.send(topic, b"child", partition=0)

def outcome(call):
    try:
        result = call()
        if asyncio.iscoroutine(result):
            result.send(None)  # which is refused before it waits for anything
            result.close()
            return "it waits"
    except StopIteration as end:
        result = end.value
    except BaseException as error:
        return type(error).__name__
    return repr(result)

def in_a_child(producer):
    with client_of(producer).lock, client_of(producer).context.lock:  # as by threads that the child does not have
        child = os.fork()
        if not child:
            signal.alarm(30)  # what waits for ever fails
            print(json.dumps({name: outcome(call) for name, call in calls(producer)}), flush=True)
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

def with_sync():
    with Producer(servers) as producer:
        producer.send(topic, b"0", partition=0).result(30)
        in_a_child(producer)
        producer.send(topic, b"1", partition=0)

async def with_async():
    async with AsyncProducer(servers) as producer:
        await (await producer.send(topic, b"0", partition=0))
        in_a_child(producer)
        await producer.send(topic, b"1", partition=0)

servers, topic, client = sys.argv[1:]
with_sync() if client == "sync" else asyncio.run(with_async())
"""

REFUSED = (
    "send", "send with headers", "send to a topic that is not known", "send to a topic that is not known with headers",
    "send_many", "send_many of nothing", "partitions_for", "flush", "purge", "health", "metrics", "enter",
    "init_transactions", "begin_transaction", "commit_transaction", "abort_transaction", "send_offsets_to_transaction",
    "transaction", "send after close",
)  # fmt: skip
CLIENTS = {"sync": Producer, "async": AsyncProducer}
CALLS = [(client, call) for client in CLIENTS for call in REFUSED] + [("async", "start")]


@pytest.fixture(scope="module")
def outcomes(cluster):
    """Return a function of each call's outcome in a forked child; only the parent's records are in the log."""
    known = {}

    def of(client):
        if client not in known:
            topic = f"forked-{client}"
            known[client] = json.loads(run(CHILD, cluster.bootstrap_servers, topic, client, said=""))
            assert [record.value for record in read_log(cluster.bootstrap_servers, topic)[0]] == [b"0", b"1"]
        return known[client]

    return of


@pytest.mark.parametrize(("client", "call"), CALLS, ids=lambda part: part.replace(" ", "_"))
def test_a_call_in_a_child_is_refused(outcomes, client, call):
    """Also with locks held by the parent's threads; a coroutine is refused before it first waits."""
    assert outcomes(client)[call] == "ForkError"


@pytest.mark.parametrize("client", CLIENTS)
def test_a_close_in_a_child_does_nothing(outcomes, client):
    assert outcomes(client)["close"] == "None"


@pytest.mark.parametrize("client", CLIENTS)
def test_fork_calls_cover_every_public_method(client):
    kind = CLIENTS[client]
    public = {name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))}
    assert public - {call for of, call in CALLS if of == client} == {"after_fork", "close"}


def test_exit_of_a_child_leaves_its_parents_producer_open(cluster, topic, log):
    """Guarantee 20: use in the child raises ForkError at once, and the exit of the child, exit handlers and garbage
    collection included, leaves the parent's records and sockets alone."""
    out = run(
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
        said="",
    )
    assert out == "done\n"
    assert [record.value for record in log()[0]] == [b"0", b"1", b"2"]


def test_an_async_producer_is_refused_in_a_child_as_well(cluster, topic, log):
    """Guarantee 20, on an event loop."""
    out = run(
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
        said="",
    )
    assert out == "done\n"
    assert [record.value for record in log()[0]] == [b"0", b"1"]
