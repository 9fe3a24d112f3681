"""Guarantee 23: callbacks and serializers that raise. Exits end a loop, all else is logged."""

from __future__ import annotations

import asyncio

import pytest

from pyclient import AsyncProducer, Producer, errors
from tests.waiting import PATIENCE


@pytest.mark.parametrize("error", [RuntimeError("wrong"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
def test_callback_exceptions_of_any_type_are_logged(cluster, topic, caplog, error):
    """Guarantee 23: the sender and all later callbacks continue, and the exception is logged."""

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
    """Guarantee 23: the call raises, and the producer continues."""
    client = make(value_serializer=lambda value: value.encode())
    sent = []
    for value in ("a", 5, "b", None, b"c", "d"):
        try:
            sent.append(client.send(topic, value, partition=0))
        except errors.SerializationError as error:
            assert "value_serializer failed" in str(error)
    client.flush()
    assert [record.value for record in log()[0]] == [b"a", b"b", None, b"d"] and len(sent) == 4


# -- on an event loop


@pytest.mark.parametrize("error", [RuntimeError("wrong"), asyncio.CancelledError("wrong")], ids=repr)
def test_callback_exceptions_on_a_loop_are_logged(cluster, topic, caplog, error):
    """It is in the producer's log; the loop's own handler and later records and callbacks are not affected."""
    complaints, seen = [], []

    def callback(future):
        raise error

    async def main():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        async with AsyncProducer(cluster.bootstrap_servers) as producer:
            for _ in range(3):
                await producer.send(topic, b"x", partition=0, on_delivery=callback)
                await producer.send(topic, b"x", partition=0, on_delivery=seen.append)
                await producer.flush(PATIENCE)
            column = await producer.send_many(topic, [b"x"] * 2, partition=0)
            column.add_done_callback(callback)
            column.add_done_callback(seen.append)
            await column
            for future in (column, column[0]):  # which have their outcome
                future.add_done_callback(callback)
                future.add_done_callback(seen.append)
            await producer.flush(PATIENCE)
            return [(await future).offset for future in seen[:3]]

    assert asyncio.run(main()) == [1, 3, 5]
    assert len(seen) == 6
    assert complaints == []
    logged = [record for record in caplog.records if "the delivery callback" in record.getMessage()]
    assert [(record.name, record.exc_info[1]) for record in logged] == [("pyclient.producer", error)] * 6


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_a_callback_that_ends_the_program_ends_asyncio_run(cluster, topic, log, caplog, error):
    """As out of any callback of the loop; the task that has the producer is cancelled, and what was accepted is
    delivered when it leaves `async with`."""
    ended = []

    def callback(future):
        raise error

    async def main():
        async with AsyncProducer(cluster.bootstrap_servers, linger_ms=0) as producer:
            await producer.partitions_for(topic)
            await producer.send(topic, b"0", partition=0, on_delivery=callback)
            try:
                for _ in range(1000):
                    ended.append(await producer.send(topic, b"1", partition=0))
                    await ended[-1]
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

    with pytest.raises(type(error)) as raised:
        asyncio.run(main())
    assert raised.value is error
    *sent, last = ended
    assert last == "cancelled"
    assert [record.value for record in log()[0]] == [b"0", *[b"1"] * len(sent)]
    assert "the delivery callback" not in caplog.text
