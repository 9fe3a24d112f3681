"""Requests that no client library would encode, and a connection that reports the broker's reaction to them.

A request is a dict of fields. Missing fields are zero or empty; `None` is null, also where the protocol has no null;
`UNKNOWN_TAG` among the fields of a part adds an unknown tagged field.
"""

from __future__ import annotations

import socket
import struct
import time
import uuid
from collections.abc import Mapping
from typing import Any, Final

from pyclient.protocol import framing
from pyclient.protocol.kinds import ArrayOf, Blob, Fixed, Kind, Nested, RecordData, Text
from pyclient.protocol.parts import Field, fields_of
from pyclient.protocol.versions import API_KEYS, request_class
from pyclient.varint import encode_uvarint

UNKNOWN_TAG: Final = "?"
TIMEOUT: Final = 60.0  # seconds for an answer; a rebalance may wait for a session of 30 s
CLIENT_ID: Final = "odd"

_FEW: Final = 5
_SHORT: Final = 32
_UNUSED_TAG: Final = 9_999
_LOCAL: Final = {
    *("cluster_id", "host", "port", "node_id", "log_dir", "total_bytes", "usable_bytes", "documentation"),
    *("throttle_time_ms", "last_caught_up_timestamp", "last_fetch_timestamp", "log_append_time_ms", "last_timestamp"),
    *("session_id", "producer_id", "finalized_features_epoch", "partition_size"),
}
"""Fields whose values differ between brokers."""


class Lost(Exception):
    """The broker closed the connection or did not answer in time; the text has the reason."""


def encode(api: str, version: int, fields: Mapping[str, Any], client_id: str | None = CLIENT_ID) -> bytes:
    """Return a whole frame, with its length prefix."""
    cls: Any = request_class(API_KEYS[api])
    flexible = cls.flexible is not None and version >= cls.flexible
    name = b"" if client_id is None else client_id.encode()
    head = struct.pack(">hhih", cls.api_key, version, 1, -1 if client_id is None else len(name)) + name
    frame = head + (b"\0" if flexible else b"") + _part(cls, version, flexible, fields)
    return struct.pack(">i", len(frame)) + frame


def _part(cls: Any, version: int, flexible: bool, fields: Mapping[str, Any]) -> bytes:
    plain, tags = b"", []
    for each in fields_of(cls):
        if not each.present_in(version):
            continue
        if each.tag is not None and flexible:
            if each.name in fields:
                tags.append((each.tag, _value(each.kind, version, flexible, fields[each.name], each)))
        else:
            plain += _value(each.kind, version, flexible, fields.get(each.name, each.default), each)
    if not flexible:
        return plain
    if UNKNOWN_TAG in fields:
        tags.append((_UNUSED_TAG, b"unknown"))
    written = b"".join(encode_uvarint(tag) + encode_uvarint(len(data)) + data for tag, data in sorted(tags))
    return plain + encode_uvarint(len(tags)) + written


def _value(kind: Kind, version: int, flexible: bool, value: Any, field: Field | None = None) -> bytes:
    if isinstance(kind, Fixed):
        return struct.pack(">" + kind.code, value.bytes if isinstance(value, uuid.UUID) else value)
    if isinstance(kind, Nested):
        given = value if isinstance(value, Mapping) else {}
        mark = b"" if field is None or not field.nullable_in(version) else b"\xff" if value is None else b"\x01"
        return mark if mark == b"\xff" else mark + _part(kind.cls, version, flexible, given)
    compact = flexible and (field is None or field.flexible)
    width = ">h" if isinstance(kind, Text) else ">i"
    if value is None:
        return b"\0" if compact else struct.pack(width, -1)
    if isinstance(kind, ArrayOf):
        size, data = len(value), b"".join(_value(kind.item, version, flexible, item) for item in value)
    else:
        assert isinstance(kind, Text | Blob | RecordData)
        data = value.encode() if isinstance(value, str) else bytes(value)
        size = len(data)
    return (encode_uvarint(size + 1) if compact else struct.pack(width, size)) + data


class Connection:
    """One client, which reconnects after the broker has closed its connection."""

    def __init__(self, bootstrap_servers: str) -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self._address = host, int(port)
        self._socket: socket.socket | None = None

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ask(self, frame: bytes) -> bytes:
        """Return the answer to a frame, without its length prefix. Raise `Lost`."""
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=TIMEOUT)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        deadline = time.monotonic() + TIMEOUT
        try:
            self._socket.sendall(frame)
            (size,) = struct.unpack(">i", self._exactly(4, deadline))
            return self._exactly(size, deadline)
        except (ConnectionResetError, BrokenPipeError):
            raise Lost("closed") from None
        finally:
            if self._socket is not None and self._socket.fileno() < 0:
                self._socket = None

    def ask_in_bytes(self, frame: bytes) -> str:
        """Return the answer in hexadecimal, of a long one only the error code. Raise `Lost`."""
        try:
            answer = self.ask(frame)
        except Lost:
            self.close()
            raise
        return answer.hex() if len(answer) < _SHORT else f"error {struct.unpack_from('>h', answer, 4)[0]}"

    def ask_in_plain(self, api: str, version: int, fields: Mapping[str, Any]) -> Any:
        """Return the response to a request. Raise `Lost`."""
        try:
            frame = self.ask(encode(api, version, fields))
        except Lost:
            self.close()
            raise
        cls: Any = request_class(API_KEYS[api])
        return framing.decode_response(cls.response, version, frame)[1]

    def _exactly(self, size: int, deadline: float) -> bytes:
        assert self._socket is not None
        data = b""
        while len(data) < size:
            self._socket.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                more = self._socket.recv(size - len(data))
            except TimeoutError:
                raise Lost("no answer") from None
            if not more:
                raise Lost("closed")
            data += more
        return data


class Names:
    """Replaces values that differ between brokers: topic ids by names, texts by a word."""

    def __init__(self) -> None:
        self._ids: dict[uuid.UUID, str] = {uuid.UUID(int=0): "no id"}

    def note(self, topic: str, topic_id: uuid.UUID) -> None:
        """Register a created topic."""
        self._ids[topic_id] = f"id of {topic}"

    def id_of(self, topic: str) -> uuid.UUID:
        """Return the id of a topic, an unknown id for an unknown name."""
        return next((key for key, name in self._ids.items() if name == f"id of {topic}"), uuid.UUID(int=99))

    def filled(self, value: Any) -> Any:
        """Return the fields with topic ids in place of `IdOf`."""
        if isinstance(value, IdOf):
            return self.id_of(value.topic)
        if isinstance(value, Mapping):
            return {key: self.filled(item) for key, item in value.items()}
        return [self.filled(item) for item in value] if isinstance(value, list) else value

    def plain(self, value: Any, name: str = "") -> Any:
        """Return a message as dicts, with sorted lists as their order is not specified."""
        if name == "error_message" or name.endswith("reason"):
            return None if value is None else "said"
        if value is None or isinstance(value, int | float | str):
            return "made" if value and (name.endswith("member_id") or name == "leader") else value
        if name == "configs" and isinstance(value, list) and len(value) > _FEW:
            return f"{len(value)} options"
        if isinstance(value, list | tuple):
            return sorted((self.plain(item, name) for item in value), key=str)
        if isinstance(value, uuid.UUID):
            return self._ids.get(value, "another id")
        if isinstance(value, bytes | memoryview) or not hasattr(type(value), "__fields__"):
            return f"{len(value)} bytes"
        items = {each.name: self.plain(getattr(value, each.name), each.name) for each in fields_of(type(value))}
        return {key: item for key, item in items.items() if key not in _LOCAL}


class IdOf:
    """A placeholder for the id of a topic that an earlier scenario created."""

    def __init__(self, topic: str) -> None:
        self.topic = topic

    def __repr__(self) -> str:
        return f"IdOf({self.topic!r})"
