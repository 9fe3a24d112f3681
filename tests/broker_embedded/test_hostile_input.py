"""Requests that no client sends: random well-formed, damaged, and random bytes.

The broker answers or closes that connection, logs no internal failure, and serves the other connections.
"""

from __future__ import annotations

import logging
import socket
import struct
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyclient.broker_embedded.served_apis import SERVED
from pyclient.protocol import framing
from pyclient.protocol.kinds import ArrayOf, Fixed, Nested, RecordData, Text
from pyclient.protocol.messages.metadata import MetadataRequest
from pyclient.protocol.parts import fields_of
from pyclient.protocol.versions import API_KEYS, request_class
from pyclient.records import build_batch

WAITING = {"JoinGroup", "SyncGroup"}  # may wait for other members
RECORDS = build_batch([(b"k", b"v")], timestamp_ms=1_700_000_000_000)


def value_of(kind: Any, version: int, draw: Any) -> Any:
    """Return a value of a wire type: extreme, plausible or arbitrary."""
    if isinstance(kind, Nested):
        return message_of(kind.cls, version, draw)
    if isinstance(kind, ArrayOf):
        return [value_of(kind.item, version, draw) for _ in range(draw(st.integers(0, 3)))]
    if isinstance(kind, Text):
        return draw(st.sampled_from(["", "t", "__consumer_offsets", "a.b", "x" * 300, "ä\0"]) | st.text(max_size=8))
    if isinstance(kind, RecordData):
        return draw(st.sampled_from([b"", RECORDS, RECORDS[:30], RECORDS * 2]) | st.binary(max_size=80))
    if not isinstance(kind, Fixed):
        return draw(st.binary(max_size=20))
    if kind.name in ("Bool", "Uuid", "Float64"):
        return draw({"Bool": st.booleans(), "Uuid": st.uuids(), "Float64": st.floats()}[kind.name])
    bits = 8 * kind.size
    low, high = (0, 2**bits - 1) if kind.code.isupper() else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return draw(st.sampled_from([0, 1, 2, low, high]) | st.integers(low, high))


def message_of(cls: Any, version: int, draw: Any) -> Any:
    """Return a message with arbitrary values in the fields of its version."""
    return cls(
        **{
            each.name: None
            if each.nullable_in(version) and draw(st.integers(0, 4)) == 0
            else value_of(each.kind, version, draw)
            for each in fields_of(cls)
            if each.present_in(version)
        }
    )


@st.composite
def requests(draw: Any) -> tuple[str, bytes]:
    """Return the name of a served API and a frame of it."""
    name = draw(st.sampled_from(sorted(SERVED)))
    version = draw(st.integers(SERVED[name].first, SERVED[name].last))
    message = message_of(request_class(API_KEYS[name]), version, draw)
    if name == "Fetch":
        message.max_wait_ms = min(message.max_wait_ms, 5)
    return name, b"".join(framing.encode_request(message, version, 1, draw(st.none() | st.text(max_size=5))))


@st.composite
def mangled(draw: Any) -> bytes:
    """Return a frame with truncated or changed bytes, and a matching length."""
    body = bytearray(draw(requests())[1][4:])
    for _ in range(draw(st.integers(0, 4))):
        body[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
    del body[draw(st.integers(8, len(body))) :]
    return struct.pack(">i", len(body)) + bytes(body)


SETTINGS = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def no_failures(caplog: pytest.LogCaptureFixture) -> Any:
    """Fail the test if the broker logged an internal failure."""
    caplog.set_level(logging.ERROR, "pyclient.broker_embedded")
    yield
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def send_and_wait(broker: Any, data: bytes, *, answered: bool) -> None:
    """Send `data` and the end of the stream; wait until the broker closes the connection."""
    host, _, port = broker.bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as sock:
        sock.sendall(data)
        if answered:
            sock.shutdown(socket.SHUT_WR)
            try:
                while sock.recv(65536):
                    pass
            except ConnectionResetError:
                return


@SETTINGS
@given(requests())
def test_well_formed_random_request_is_answered(
    broker: Any, client: Any, no_failures: Any, named_frame: tuple[str, bytes]
) -> None:
    name, frame = named_frame
    send_and_wait(broker, frame, answered=name not in WAITING)
    assert client.call(MetadataRequest(topics=[]), 1).controller_id == 1


@SETTINGS
@given(mangled())
def test_damaged_request_does_not_affect_other_clients(
    broker: Any, client: Any, no_failures: Any, frame: bytes
) -> None:
    send_and_wait(broker, frame, answered=False)
    assert client.call(MetadataRequest(topics=[]), 1).controller_id == 1


@SETTINGS
@given(st.binary(max_size=200))
def test_random_bytes_do_not_affect_other_clients(broker: Any, client: Any, no_failures: Any, noise: bytes) -> None:
    send_and_wait(broker, noise, answered=True)
    assert client.call(MetadataRequest(topics=[]), 1).controller_id == 1
