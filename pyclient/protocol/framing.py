"""Encode and decode request and response frames, with Kafka's exceptions for ApiVersions.

A frame is a 32-bit length, a header and a body. The decode functions take frames without the length.

Request header v1: key, version, correlation id, client id; v2 (flexible versions) adds tagged fields, but the client id
keeps its 16-bit length. Response header v0: correlation id; v1 (flexible versions) adds tagged fields. The header of an
ApiVersions response is always v0, and a broker answers an unknown version in v0 with error 35, because the client does
not know yet which versions the broker supports.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple, TypeVar

from pyclient.errors import MalformedMessage, TruncatedMessage
from pyclient.protocol.codec import decode, encode_parts, encoder_in_steps
from pyclient.protocol.fields import Part, Request, Response
from pyclient.protocol.reading import skip_tags
from pyclient.protocol.versions import api_name, is_flexible
from pyclient.varint import Buffer

R = TypeVar("R", bound=Response)

API_VERSIONS: Final = 18
_UNSUPPORTED_VERSION: Final = 35

_REQUEST: Final = Struct(">ihhih")  # frame length, key, version, correlation id, length of the client id
_REQUEST_HEADER: Final = Struct(">hhih")
_RESPONSE: Final = Struct(">ii")  # frame length, correlation id
_CORRELATION_ID: Final = Struct(">i")
_INT16: Final = Struct(">h")


class RequestHeader(NamedTuple):
    """The header of a request; its body starts at `body_offset` of the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


def encode_request(message: Request[Any], version: int, correlation_id: int, client_id: str | None) -> list[Part]:
    """Encode a whole frame, including its length; record data stays a separate part. Errors as `encode_parts`."""
    parts = encode_parts(message, version)
    name = b"" if client_id is None else client_id.encode()
    if len(name) > 32_767:
        raise MalformedMessage(f"a client id has at most 32767 bytes, not {len(name)}")
    tags = b"\0" if message.flexible is not None and version >= message.flexible else b""
    size = _REQUEST.size - 4 + len(name) + len(tags) + _total(parts)
    head = _REQUEST.pack(size, message.api_key, version, correlation_id, -1 if client_id is None else len(name))
    return _headed(head + name + tags, parts)


def encode_response(message: Response, version: int, correlation_id: int) -> list[Part]:
    """Encode a whole frame, including its length; record data stays a separate part. Errors as `encode_parts`."""
    return _framed(message, version, correlation_id, encode_parts(message, version))


def _framed(message: Response, version: int, correlation_id: int, parts: list[Part]) -> list[Part]:
    tags = b"\0" if _has_response_tags(type(message), version) else b""
    return _headed(_RESPONSE.pack(4 + len(tags) + _total(parts), correlation_id) + tags, parts)


def encode_response_in_steps(message: Response, version: int, correlation_id: int) -> Generator[None, None, list[Part]]:
    """Do as `encode_response`, but pause (yield) during long arrays; return the frame in several parts."""
    parts = yield from encoder_in_steps(type(message), version)(message)
    return _framed(message, version, correlation_id, parts)


def decode_request_header(frame: Buffer) -> RequestHeader:
    """Decode the header of a request.

    Raise UnknownApi for an unknown API key, TruncatedMessage or MalformedMessage for invalid bytes. The version is not
    checked here: the broker's dispatch decides which versions it serves.
    """
    size, start = len(frame), _REQUEST_HEADER.size
    if size < start:
        raise TruncatedMessage(f"request header ends early: {size} bytes, and it has at least {start}")
    api_key, version, correlation_id, length = _REQUEST_HEADER.unpack_from(frame)
    flexible = is_flexible(api_key, version)
    if version < 0 or length < -1:
        raise MalformedMessage(
            f"{_label(api_key, version)}: a version of {version} with a client id of {length} bytes is not possible"
        )
    offset = start if length < 0 else start + length
    if offset > size:
        raise TruncatedMessage(
            f"{_label(api_key, version)} ends early: a client id of {length} bytes, and {size - start} are left"
        )
    try:
        client_id = None if length < 0 else str(frame[start:offset], "utf-8")
    except UnicodeDecodeError as error:
        raise MalformedMessage(f"{_label(api_key, version)}: the client id is not UTF-8 ({error.reason})") from error
    if flexible:
        offset = _offset_after_no_tags(frame, offset) or skip_tags(_label(api_key, version), frame, offset)
    return RequestHeader(api_key, version, correlation_id, client_id, offset)


def decode_response_header(cls: type[Request[Any]] | type[Response], version: int, frame: Buffer) -> tuple[int, int]:
    """Return the correlation id and the body's offset. `cls` is the request's or the response's class."""
    correlation_id = peek_correlation_id(frame)
    if _has_response_tags(cls, version):
        return correlation_id, _offset_after_no_tags(frame, 4) or skip_tags(
            f"response header of {cls.name} v{version}", frame, 4
        )
    return correlation_id, 4


def decode_response(cls: type[R], version: int, frame: Buffer) -> tuple[int, R]:
    """Return the correlation id and the response to a request that was sent in `version`.

    An ApiVersions response with error 35 (UNSUPPORTED_VERSION) is read as v0, whatever `version` is.
    """
    correlation_id, offset = decode_response_header(cls, version, frame)
    if cls.api_key == API_VERSIONS and frame[offset : offset + 2] == _INT16.pack(_UNSUPPORTED_VERSION):
        version = 0
    return correlation_id, decode(cls, version, frame, offset)


def peek_correlation_id(frame: Buffer) -> int:
    """Return the correlation id of a response. Raise TruncatedMessage if there are fewer than 4 bytes."""
    if len(frame) < 4:
        raise TruncatedMessage(f"response header ends early: {len(frame)} bytes, and it has at least 4")
    correlation_id: int = _CORRELATION_ID.unpack_from(frame)[0]
    return correlation_id


def _has_response_tags(cls: type[Request[Any]] | type[Response], version: int) -> bool:
    return cls.flexible is not None and version >= cls.flexible and cls.api_key != API_VERSIONS


def _total(parts: Sequence[Part]) -> int:
    return sum(map(len, parts))


def _headed(head: bytes, parts: list[Part]) -> list[Part]:
    """Prepend `head` to the first part, which is never record data."""
    first = parts[0]
    assert isinstance(first, bytes)
    parts[0] = head + first
    return parts


def _label(api_key: int, version: int) -> str:
    return f"request header of {api_name(api_key)} v{version}"


def _offset_after_no_tags(frame: Buffer, offset: int) -> int:
    """Return the offset after an empty set of tagged fields (one zero byte); 0 if the set is not empty."""
    return offset + 1 if offset < len(frame) and not frame[offset] else 0
