"""One record's bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pyclient.records.columns import Buffer
from pyclient.records.varints import encode_varint

HeaderPairs = Iterable[tuple[str, Buffer | None]]

RECORD_OVERHEAD: Final = 21  # length, attributes, timestamp delta and offset delta at their widest


def as_bytes(data: Any, what: str) -> Buffer:
    if type(data) is bytes:
        return data
    try:
        return memoryview(data).tobytes()
    except TypeError:
        raise TypeError(f"a {what} must be bytes, a bytes-like object or None, not {type(data).__name__}") from None


def _sized(data: Any, what: str) -> tuple[Buffer, ...]:
    if data is None:
        return (b"\x01",)
    content = as_bytes(data, what)
    return encode_varint(len(content)), content


def encode_headers(headers: HeaderPairs) -> bytes:
    pairs = [_header_pair(pair) for pair in headers]
    parts: list[Buffer] = [encode_varint(len(pairs))]
    for name, value in pairs:
        encoded = name.encode()
        parts += (encode_varint(len(encoded)), encoded, *_sized(value, "header's value"))
    return b"".join(parts)


def _header_pair(pair: Any) -> tuple[str, Any]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not isinstance(pair[0], str):
        raise TypeError(f"a header must be a pair of a str and bytes or None, not {pair!r:.80}")
    return pair[0], pair[1]


def encode_record(timestamp_delta: int, offset_delta: int, key: Any, value: Any, headers: HeaderPairs | None) -> bytes:
    parts = (
        b"\0",
        encode_varint(timestamp_delta),
        encode_varint(offset_delta),
        *_sized(key, "key"),
        *_sized(value, "value"),
        encode_headers(headers) if headers else b"\0",
    )
    body = b"".join(parts)
    return encode_varint(len(body)) + body


def record_size_bound(key: Buffer | None, value: Buffer | None, headers: HeaderPairs | None) -> int:
    """The most bytes this record takes in a batch, the batch's header not counted."""
    fields = sum(map(len, (*_sized(key, "key"), *_sized(value, "value"))))
    return RECORD_OVERHEAD + fields + (len(encode_headers(headers)) if headers else 1)
