"""Encode one record."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pyclient.records.checks import as_bytes, header_pair
from pyclient.records.columns import Buffer
from pyclient.records.varints import encode_varint

HeaderPairs = Iterable[tuple[str, Buffer | None]]

RECORD_OVERHEAD: Final = 21  # length, attributes, timestamp delta and offset delta at their widest


def _sized(data: Any, name: str) -> bytes:
    if data is None:
        return b"\x01"
    if type(data) is not bytes:
        data = as_bytes(data, name)
    return encode_varint(len(data)) + data  # type: ignore[no-any-return]


def encode_headers(headers: HeaderPairs) -> bytes:
    """Encode the headers of a record, preceded by their count."""
    parts = [b""]
    for pair in headers:
        name, value = header_pair(pair)
        encoded = name.encode()
        parts += (encode_varint(len(encoded)), encoded, _sized(value, "header's value"))
    parts[0] = encode_varint(len(parts) // 3)
    return b"".join(parts)


def encode_record(timestamp_delta: int, offset_delta: int, key: Any, value: Any, headers: HeaderPairs | None) -> bytes:
    """Encode a whole record; the deltas are relative to the first record of its batch."""
    body = b"".join(
        (
            b"\0",
            encode_varint(timestamp_delta),
            encode_varint(offset_delta),
            _sized(key, "key"),
            _sized(value, "value"),
            encode_headers(headers) if headers else b"\0",
        )
    )
    return encode_varint(len(body)) + body


def record_size_bound(key: Buffer | None, value: Buffer | None, headers: HeaderPairs | None) -> int:
    """Return the most bytes that this record takes in a batch, without the batch's header."""
    fields = len(_sized(key, "key")) + len(_sized(value, "value"))
    return RECORD_OVERHEAD + fields + (len(encode_headers(headers)) if headers else 1)
