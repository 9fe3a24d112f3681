"""`flush` with little time, or none: what is told already needs no time, and what is not is an error on both faces."""

from __future__ import annotations

from typing import Any

import pytest

from pyclient import errors

LATER = {"linger_ms": 60_000, "delivery_timeout_ms": 200_000}


@pytest.mark.parametrize("timeout", [0, 0.0, -1])
def test_a_flush_without_time_returns_if_there_is_nothing_to_wait_for(make: Any, topic: str, timeout: float) -> None:
    face = make(**LATER)
    face.flush(timeout)
    future = face.send(topic, b"x", partition=0)
    face.flush()
    face.flush(timeout)
    assert face.result(future).partition == 0


def test_a_flush_without_time_raises_if_there_is_something_and_has_it_sent(make: Any, topic: str) -> None:
    face = make(**LATER)
    face.send(topic, b"first", partition=0)
    face.flush()
    future = face.send(topic, b"x", partition=0)  # its answer needs turns of the loop
    with pytest.raises(errors.KafkaTimeout, match="1 batch was not confirmed within 0 s"):
        face.flush(0)
    assert face.result(future).offset == 1


def test_a_flush_without_time_raises_what_failed_unobserved(make: Any, topic: str) -> None:
    face = make(**LATER)
    future = face.send(topic, b"x", partition=0)
    face.purge()
    with pytest.raises(errors.DeliveryFailed, match="1 record"):
        face.flush(0)
    assert isinstance(face.exception(future), errors.ClosedError)
