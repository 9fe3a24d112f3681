"""Invalid arguments are refused by name, before the call has any effect."""

from __future__ import annotations

import math
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from pyclient import AsyncProducer, errors
from tests.producer.network import HOLD, PASS

PRODUCE = 0
NO_SECONDS = pytest.mark.parametrize(
    "timeout", ["5", b"5", True, [5], object(), Decimal(5)], ids=lambda given: type(given).__name__
)


@NO_SECONDS
@pytest.mark.parametrize("call", ["flush", "close"])
def test_non_numeric_timeout_is_refused_and_the_producer_works(make, topic, call, timeout):
    client = make()
    with pytest.raises(TypeError, match=r"timeout=.* takes seconds, as a number"):
        getattr(client, call)(timeout)
    assert not client.producer.closed
    assert client.result(client.send(topic, b"x", partition=0)).offset == 0


NEGATIVE = pytest.mark.parametrize("timeout", [math.nan, -1, -0.5, -math.inf])


@NEGATIVE
@pytest.mark.parametrize("call", ["flush", "close"])
def test_negative_or_nan_timeout_is_refused(make, call, timeout):
    client = make()
    with pytest.raises(ValueError, match=f"timeout={timeout!r} is not possible: it takes seconds from 0"):
        getattr(client, call)(timeout)
    assert not client.producer.closed


@NEGATIVE
def test_future_refuses_an_invalid_timeout_before_and_after_its_outcome(make, topic, network, timeout):
    network.response = lambda api: HOLD if api == PRODUCE else PASS
    client = make(linger_ms=0, retries=0)
    future, column = client.send(topic, b"x", partition=0), client.send_many(topic, [b"y"], partition=0)

    def refused():
        for wait in (future.result, future.exception, column.result, column.exception):
            with pytest.raises(ValueError, match=f"timeout={timeout!r} is not possible"):
                wait(timeout)

    refused()
    network.release()
    client.result(future)
    client.result(column)
    refused()


@NO_SECONDS
def test_future_names_a_non_numeric_timeout(make, topic, network, timeout):
    network.response = lambda api: HOLD if api == PRODUCE else PASS
    client = make(linger_ms=0)
    future, column = client.send(topic, b"x", partition=0), client.send_many(topic, [b"y"], partition=0)
    for wait in (future.result, future.exception, column.result, column.exception):
        with pytest.raises(TypeError, match=r"timeout=.* takes seconds, as a number"):
            wait(timeout)
        with pytest.raises(ValueError, match="timeout=nan"):
            wait(math.nan)
        with pytest.raises(errors.KafkaTimeout):
            wait(0)
    network.release()
    client.result(future)
    client.result(column)


@pytest.mark.parametrize("callback", [5, "print", object()], ids=["number", "text", "object"])
def test_non_callable_callback_is_refused_before_the_record_is_accepted(make, topic, callback):
    client = make(linger_ms=60_000)
    with pytest.raises(TypeError, match=r"on_delivery=.* takes a function"):
        client.send(topic, b"x", partition=0, on_delivery=callback)
    first = client.send(topic, b"first", partition=0)
    with pytest.raises(TypeError, match=r"on_delivery=.* takes a function"):
        client.send(topic, b"x", partition=0, on_delivery=callback)  # where there is an open batch
    column = client.send_many(topic, [b"second"], partition=0)
    for future in (first, column):
        with pytest.raises(TypeError, match=r"callback=.* takes a function"):
            future.add_done_callback(callback)
    client.flush()
    assert client.result(first).offset == 0
    assert client.result(column)[0].offset == 1
    with pytest.raises(TypeError, match=r"callback=.* takes a function"):
        first.add_done_callback(callback)


def test_coroutine_callback_is_logged(make, topic, caplog):
    async def never(future: Any) -> None:
        raise AssertionError("it is never awaited")

    client = make()
    client.result(client.send(topic, b"x", partition=0, on_delivery=never))
    client.flush()
    client.close()
    assert any("is a coroutine function and was not run" in message for message in caplog.messages)


def test_coroutine_interceptor_is_refused(make):
    async def on_send(record: Any) -> Any:
        return record

    for interceptor in (on_send, SimpleNamespace(on_send=on_send), SimpleNamespace(on_acknowledgement=on_send)):
        with pytest.raises(errors.ConfigError, match="is a coroutine"):
            make(interceptors=[interceptor])


def test_closed_is_true_once_no_records_are_accepted(make, cluster):
    client = make()
    assert not client.producer.closed
    client.close()
    assert client.producer.closed
    assert not AsyncProducer(cluster.bootstrap_servers).closed
