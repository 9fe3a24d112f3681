"""Frames that are no valid request: truncated, too long, or of unknown APIs and versions. Answers are bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from pyclient.broker_embedded.served_apis import SERVED
from pyclient.protocol.versions import API_KEYS
from tests.broker_embedded.odd.data import T
from tests.broker_embedded.odd.table import NOT_RECORDED
from tests.broker_embedded.odd.wire import encode


class Frame(NamedTuple):
    """Bytes to send, with their length prefix."""

    label: str
    data: bytes


def _framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _header(key: int, version: int, client_id: bytes | None = b"odd") -> bytes:
    return struct.pack(">hhih", key, version, 1, -1 if client_id is None else len(client_id)) + (client_id or b"")


def _frames() -> Iterator[Frame]:
    for key in (-1, 4, 52, 56, 62, 70, 82, 93, 999, 32767):
        yield Frame(f"api {key}", _framed(_header(key, 0)))
    for name in sorted(SERVED.keys() - NOT_RECORDED):
        served = SERVED[name]
        for version in (-1, served.last + 1, 99):
            yield Frame(f"{name} v{version}", _framed(_header(API_KEYS[name], version) + b"\0\0"))
        if served.first > 0:
            yield Frame(f"{name} v{served.first - 1}", _framed(_header(API_KEYS[name], served.first - 1)))
    for version in (5, 6, 32767):
        yield Frame(f"ApiVersions v{version}, and fields", _framed(_header(18, version) + b"\0\4lib\0021\0"))
    for version in (0, 9, 13):
        whole = encode("Metadata", version, {"topics": [{"name": T}], "allow_auto_topic_creation": False})[4:]
        for length in range(len(whole)):
            yield Frame(f"Metadata v{version} of {length} bytes", _framed(whole[:length]))
    yield Frame("no client id", _framed(_header(3, 1, None) + b"\0\0\0\0"))
    yield Frame("an empty client id", _framed(_header(3, 1, b"") + b"\0\0\0\0"))
    yield Frame("a client id of other bytes", _framed(_header(18, 0, b"\xff\xfe")))
    yield Frame("a client id of -2 bytes", _framed(struct.pack(">hhih", 3, 1, 1, -2) + b"\0\0\0\0"))
    yield Frame("too long a client id", _framed(struct.pack(">hhih", 3, 1, 1, 99) + b"\0\0\0\0"))
    yield Frame("a list of -2", _framed(_header(3, 1) + b"\xff\xff\xff\xfe"))
    yield Frame("a very long list", _framed(_header(3, 1) + b"\x7f\xff\xff\xff"))
    yield Frame("a name of -2 bytes", _framed(_header(3, 1) + b"\0\0\0\1\xff\xfe"))
    yield Frame("a name of other bytes", _framed(_header(3, 1) + b"\0\0\0\1\0\2\xff\xfe"))
    yield Frame("a varint without an end", _framed(_header(3, 9) + b"\0" + b"\xff" * 6))
    yield Frame("a tag twice", _framed(_header(18, 3) + b"\0\4lib\0021\2\5\1x\5\1x"))
    yield Frame("tags in disorder", _framed(_header(18, 3) + b"\0\4lib\0021\2\6\1x\5\1x"))
    yield Frame("a longer tag than there is", _framed(_header(18, 3) + b"\0\4lib\0021\1\5\x7fx"))
    yield Frame("an unknown tag in the header", _framed(_header(18, 3) + b"\1\5\1x\4lib\0021\0"))
    yield Frame("a length of -1", struct.pack(">i", -1))
    yield Frame("a length of 0", struct.pack(">i", 0))
    yield Frame("a length of 2 GiB", struct.pack(">i", 2**31 - 1))
    yield Frame("a length of 200 MiB", struct.pack(">i", 200 << 20))
    yield Frame("another protocol", b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n")


SCENARIOS: Final = tuple(_frames())
"""The expected reaction to each: `closed`, or the length of the answer."""
