"""Requests on a plain blocking socket, and answers as plain values to compare."""

from __future__ import annotations

import re
import socket
import struct
from typing import Any

from pyclient.protocol import framing
from pyclient.protocol.fields import Request

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_VARYING = {"throttle_time_ms", "error_message", "topic_id", "node_id", "port"}


class RawConnection:
    """One connection; the answers arrive in request order."""

    def __init__(self, bootstrap_servers: str, *, client_id: str = "raw", timeout: float = 30) -> None:
        host, port = bootstrap_servers.split(",")[0].rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout)
        self._stream = self._socket.makefile("rb")
        self._client_id = client_id
        self._sent: list[tuple[type[Request[Any]], int]] = []

    def send(self, request: Request[Any], version: int) -> None:
        """Write a request without waiting for its answer."""
        self._sent.append((type(request), version))
        parts = framing.encode_request(request, version, len(self._sent), self._client_id)
        self._socket.sendall(b"".join(bytes(part) for part in parts))

    def receive(self) -> Any:
        """Return the answer to the oldest unanswered request."""
        cls, version = self._sent.pop(0)
        head = self._stream.read(4)
        assert len(head) == 4, f"the connection ended; {cls.__name__} version {version} has no answer"
        frame = self._stream.read(struct.unpack(">i", head)[0])
        return framing.decode_response(cls.response, version, frame)[1]

    def ask(self, request: Request[Any], version: int) -> Any:
        """Send a request and wait for its answer."""
        self.send(request, version)
        return self.receive()

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Names:
    """Replaces values that differ between runs (member ids, random names of a test) by fixed names."""

    def __init__(self, **known: str) -> None:
        self._names = {value: f"<{name}>" for name, value in known.items()}
        self._inside = {value.encode(): name.encode().ljust(len(value), b"_") for name, value in known.items()}

    def plain(self, value: Any) -> Any:
        """Return a message as JSON values, with sorted lists as the order of answers may differ."""
        if isinstance(value, str):
            return self._name(value)
        if isinstance(value, (bytes, memoryview)):
            data = bytes(value)
            for name, same in self._inside.items():
                data = data.replace(name, same)
            return data.decode("latin-1")
        if isinstance(value, list):
            return sorted((self.plain(item) for item in value), key=str)
        if hasattr(value, "__slots__"):
            fields = ((name, getattr(value, name)) for name in value.__slots__ if name not in _VARYING)
            return {name: self.plain(field) for name, field in fields}
        return value

    def _name(self, text: str) -> str:
        if text not in self._names and _UUID.search(text):
            stem = _UUID.sub("", text)
            self._names[text] = f"<{stem}{sum(name.startswith(f'<{stem}') for name in self._names.values()) + 1}>"
        return self._names.get(text, text)
