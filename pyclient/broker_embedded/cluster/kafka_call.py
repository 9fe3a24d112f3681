"""One request of Kafka's protocol to a broker, on a connection of its own, for what a cluster does to itself."""

from __future__ import annotations

import socket
import struct
from typing import Final, TypeVar

from pyclient.config.addresses import parse_address
from pyclient.errors import ClientError, ProtocolError
from pyclient.protocol import framing
from pyclient.protocol.fields import Request, Response

R = TypeVar("R", bound=Response)

_LARGEST: Final = 100 << 20  # bytes
_CLIENT_ID: Final = "pyclient-cluster"


def call(address: str, request: Request[R], timeout: float = 30.0) -> R:
    """Send a request in its newest version to `host:port` and return the response. Raises `ClientError`."""
    kind = type(request)
    version = kind.versions[1]
    try:
        with socket.create_connection(parse_address(address), timeout=timeout) as connection:
            connection.sendall(_bytes_of(request, version))
            with connection.makefile("rb") as stream:
                (size,) = struct.unpack(">i", _exactly(stream.read(4), 4))
                if not 0 <= size <= _LARGEST:
                    raise ValueError(f"a response of {size} bytes")
                frame = _exactly(stream.read(size), size)
        answer: R = framing.decode_response(kind.response, version, frame)[1]  # type: ignore[assignment]
        return answer
    except (OSError, ValueError, ProtocolError) as error:
        raise ClientError(f"{kind.name} to {address}: {error!r}") from error


def _bytes_of(request: Request[R], version: int) -> bytes:
    return b"".join(framing.encode_request(request, version, 1, _CLIENT_ID))  # type: ignore[arg-type]  # no file regions


def _exactly(data: bytes, size: int) -> bytes:
    if len(data) < size:
        raise ValueError("the broker has closed the connection")
    return data
