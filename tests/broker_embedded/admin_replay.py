"""Replay the administration scenarios on a broker: messages from dicts, and its answers as dicts."""

from __future__ import annotations

import socket
import struct
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pyclient.protocol import framing
from pyclient.protocol.kinds import ArrayOf, Kind, Nested
from pyclient.protocol.parts import fields_of
from pyclient.protocol.versions import API_KEYS, request_class
from tests.broker_embedded.admin_scenarios import SCENARIOS

ANSWERS: Final = Path(__file__).with_name("kafka_admin_answers.json")

_LOCAL: Final = {
    *("cluster_id", "error_message", "host", "last_caught_up_timestamp", "last_fetch_timestamp", "log_dir", "port"),
    *("throttle_time_ms", "topic_id", "total_bytes", "usable_bytes", "documentation"),
}
"""Fields whose values differ between brokers, error texts among them."""


def replay(bootstrap_servers: str, expected: Mapping[str, Any] | None = None) -> Iterator[tuple[str, Any]]:
    """Yield each scenario's label and answer, without values specific to one broker.

    A real broker applies its controller's decisions with a delay: with `expected` answers, a read-only scenario is
    repeated for up to 30 s while its answer differs.
    """
    host, _, port = bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as sock, sock.makefile("rb") as stream:
        for number, scenario in enumerate(SCENARIOS):
            cls = request_class(API_KEYS[scenario.api])
            request = message_of(cls, scenario.fields)
            deadline = time.monotonic() + 30
            while True:
                sock.sendall(b"".join(framing.encode_request(request, scenario.version, number, "scenarios")))
                (size,) = struct.unpack(">i", stream.read(4))
                answer = _plain(framing.decode_response(cls.response, scenario.version, stream.read(size))[1])
                if expected is None or not scenario.api.startswith(("Describe", "List")):
                    break
                if answer == expected.get(scenario.label) or time.monotonic() > deadline:
                    break
            yield scenario.label, answer


def message_of(cls: Any, fields: dict[str, Any]) -> Any:
    """Return a message built from dicts."""
    kinds = {each.name: each.kind for each in fields_of(cls)}
    return cls(**{name: _value(kinds[name], value) for name, value in fields.items()})


def _value(kind: Kind, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, Nested):
        return message_of(kind.cls, value)
    return [_value(kind.item, item) for item in value] if isinstance(kind, ArrayOf) else value


def _plain(value: Any) -> Any:
    """Return a message as dicts, with sorted lists as their order is not specified."""
    if value is None or isinstance(value, (int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return sorted((_plain(item) for item in value), key=str)
    if isinstance(value, uuid.UUID):
        return str(value)
    return {each.name: _plain(getattr(value, each.name)) for each in fields_of(type(value)) if each.name not in _LOCAL}
