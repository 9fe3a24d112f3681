"""A proxy between clients and a broker that spoils answers: their bytes, fields, lengths and correlation ids."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any, Final

from pyclient.errors import ProtocolError, UnsupportedVersion
from pyclient.protocol import framing
from pyclient.protocol.kinds import ArrayOf, Fixed, Nested, RecordData, Text
from pyclient.protocol.parts import Field, fields_of
from pyclient.protocol.versions import UnknownApi, api_name, request_class
from tests.fuzz.mutators import mutate
from tests.fuzz.record_data import hostile_integer

_ADDRESSES: Final = frozenset({"Metadata", "FindCoordinator", "DescribeCluster", "Produce", "Fetch"})
_RARELY: Final = 0.1
"""Of the answers to ApiVersions that might be spoiled, the share that is: what comes after it is seldom reached."""
_TEXTS: Final = ("", "x", "a.b", "x" * 300, "\0", "localhost", "256.1.1.1", "ä" * 50)


class HostileProxy:
    """Listens on a port of its own and forwards to `port`; answers name the proxy in place of the broker."""

    def __init__(self, port: int, seed: int, rate: float) -> None:
        self.rate = rate
        self.answers = 0
        self.spoiled: Counter[str] = Counter()
        self.log: list[str] = []
        self._target = port
        self._rng = Random(seed)
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self._sockets: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._closing = False
        self._accepting = self._start(self._accept)

    @property
    def address(self) -> str:
        """The address to which clients connect."""
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        """Close the port and all connections."""
        self._closing = True
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join(10)  # no connection is added later
        with self._lock:
            sockets = list(self._sockets)
        for sock in sockets:
            _shut(sock)
        for thread in list(self._threads):
            thread.join(10)

    def _start(self, call: Any, *args: Any) -> threading.Thread:
        thread = threading.Thread(target=call, args=args, daemon=True)
        self._threads.add(thread)
        thread.start()
        return thread

    def _accept(self) -> None:
        while not self._closing:
            try:
                client, _ = self._listener.accept()
                broker = socket.create_connection(("127.0.0.1", self._target), timeout=30)
            except OSError:
                continue
            with self._lock:
                self._sockets |= {client, broker}
            asked: dict[int, tuple[int, int]] = {}
            self._start(self._requests, client, broker, asked)
            self._start(self._answers, client, broker, asked)

    def _requests(self, client: socket.socket, broker: socket.socket, asked: dict[int, tuple[int, int]]) -> None:
        for frame in _frames(client):
            key, version, correlation = struct.unpack_from(">hhi", frame)
            asked[correlation] = (key, version)
            try:
                broker.sendall(struct.pack(">i", len(frame)) + frame)
            except OSError:
                break
        self._end(client, broker)

    def _answers(self, client: socket.socket, broker: socket.socket, asked: dict[int, tuple[int, int]]) -> None:
        for frame in _frames(broker):
            key, version = asked.pop(int.from_bytes(frame[:4], "big", signed=True), (-1, 0))
            with self._lock:
                answer, ends = self._spoil(key, version, frame)
            try:
                client.sendall(answer)
            except OSError:
                break
            if ends:
                break
        self._end(client, broker)

    def _end(self, *sockets: socket.socket) -> None:
        for sock in sockets:
            _shut(sock)
            with self._lock:
                self._sockets.discard(sock)

    def _spoil(self, key: int, version: int, frame: bytes) -> tuple[bytes, bool]:
        """Return the answer to forward, and whether the connection ends with it."""
        rng = self._rng
        self.answers += 1
        try:
            name = api_name(key)
            response = request_class(key).response
            correlation, message = framing.decode_response(response, version, frame)
        except (ProtocolError, UnsupportedVersion, UnknownApi):
            return struct.pack(">i", len(frame)) + frame, False
        if name in _ADDRESSES:
            self._name_this_proxy(message)
        plain = b"".join(bytes(part) for part in framing.encode_response(message, version, correlation))  # type: ignore[call-overload]
        rate = self.rate * _RARELY if name == "ApiVersions" else self.rate
        if rng.random() >= rate:
            return plain, False
        self.spoiled[name] += 1
        way = rng.random()
        if way < 0.55:
            what = spoil_fields(message, version, rng)
            try:
                spoiled = framing.encode_response(message, version, correlation)
            except (ProtocolError, UnsupportedVersion):
                return plain, False
            self._note(f"{name} v{version}: {', '.join(what)}")
            return b"".join(bytes(part) for part in spoiled), False  # type: ignore[call-overload]
        if way < 0.85:
            self._note(f"{name} v{version}: bytes changed")
            return mutate(plain, rng, plain), False
        if way < 0.9:
            self._note(f"{name} v{version}: cut")
            return plain[: rng.randrange(len(plain))], True
        if way < 0.95:
            self._note(f"{name} v{version}: answered twice")
            return plain * 2, False
        self._note(f"{name} v{version}: another correlation id")
        return plain[:4] + struct.pack(">i", correlation + rng.choice((-1, 1, 1000))) + plain[8:], False

    def _note(self, text: str) -> None:
        self.log.append(text)
        del self.log[:-200]

    def _name_this_proxy(self, message: Any) -> None:
        for part in _parts(message):
            names = {each.name for each in fields_of(type(part))}
            if {"host", "port"} <= names and part.port == self._target:
                part.port = self.port


def _parts(message: Any) -> Iterator[Any]:
    """Yield the message and every part in it."""
    yield message
    for each in fields_of(type(message)):
        value = getattr(message, each.name)
        if isinstance(each.kind, Nested) and value is not None:
            yield from _parts(value)
        elif isinstance(each.kind, ArrayOf) and isinstance(each.kind.item, Nested):
            for item in value or ():
                yield from _parts(item)


def spoil_fields(message: Any, version: int, rng: Random) -> list[str]:
    """Give one to three fields of a message hostile values. Return what was done."""
    places = [
        (part, each)
        for part in _parts(message)
        for each in fields_of(type(part))
        if each.present_in(version) and not isinstance(each.kind, Nested)
    ]
    done = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        part, each = rng.choice(places)
        try:
            setattr(part, each.name, _hostile(each, getattr(part, each.name), version, rng))
        except AttributeError:  # the shared blank of a part that was not sent
            continue
        done.append(f"{each.name}={getattr(part, each.name)!r:.60}")
    return done


def _hostile(each: Field, value: Any, version: int, rng: Random) -> Any:
    kind = each.kind
    if each.nullable_in(version) and rng.random() < 0.3:
        return None
    if isinstance(kind, ArrayOf):
        items = list(value or ())
        return rng.choice(([], items[:-1], items * 2, items[::-1], items * 50))
    if isinstance(kind, Text):
        return rng.choice(_TEXTS)
    if isinstance(kind, RecordData):
        data = bytearray(value or b"")
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        return bytes(data)
    if isinstance(kind, Fixed):
        if kind.name == "Bool":
            return not value
        if kind.name == "Uuid":
            return type(value)(int=rng.choice((0, rng.getrandbits(128))))
        if kind.name == "Float64":
            return rng.choice((float("nan"), -1.0, 1e308))
        return hostile_integer(rng, kind.size * 8, unsigned=kind.code.isupper())
    return rng.randbytes(rng.choice((0, 1, 3, 50)))


def _frames(sock: socket.socket) -> Iterator[bytes]:
    """Yield frames without their lengths, until the connection ends."""
    buffer = bytearray()
    while True:
        while len(buffer) >= 4 and len(buffer) - 4 >= (size := int.from_bytes(buffer[:4], "big")):
            yield bytes(buffer[4 : 4 + size])
            del buffer[: 4 + size]
        try:
            data = sock.recv(1 << 16)
        except OSError:
            return
        if not data:
            return
        buffer += data


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the other side may have closed it
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
