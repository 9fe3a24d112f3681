"""Helpers of the compiled decode functions, for code that is too rare or too long to inline in each of them."""

from __future__ import annotations

from collections.abc import Generator
from functools import lru_cache
from struct import error as struct_error
from struct import unpack_from
from typing import Any, Final
from uuid import UUID

from pyclient.errors import MalformedMessage, ProtocolError, TruncatedMessage
from pyclient.protocol.kinds import ZERO_UUID
from pyclient.varint import Buffer

MAX_STRING: Final = 32_767
MAX_TAGS: Final = 256
_NUMBERS_A_STEP: Final = 4096
MOST_ITEMS: Final = 1_000_000
"""Items of a message that is decoded in steps: a larger one would take more than 1 GB of memory."""


def skip_tags(label: str, buf: Buffer, pos: int) -> int:
    """Return the position after the tagged fields at `pos`; `label` begins the text of an error."""
    size = len(buf)
    try:
        return _skip_tags(label, buf, pos + 1, size, buf[pos])
    except (IndexError, OverflowError) as error:
        raise _refusal(label, size, pos, error) from None


@lru_cache(maxsize=4096)
def _uuid_of(raw: bytes) -> UUID:
    """Cache UUIDs: topic ids repeat, and creating a UUID costs more than decoding the rest of a partition."""
    return UUID(bytes=raw) if any(raw) else ZERO_UUID


def _long_uvarint(buf: Buffer, pos: int, first: int) -> tuple[int, int]:
    """Read the rest of a varint whose first byte, `first`, is not its last."""
    value, shift = first & 127, 7
    while True:
        byte = buf[pos]
        pos += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 28:
            raise OverflowError("a varint is longer than five bytes")
    return value, pos


def _tag_count(label: str, buf: Buffer, pos: int, size: int, first: int) -> tuple[int, int]:
    count = first
    if first > 127:
        count, pos = _long_uvarint(buf, pos, first)
    if count > MAX_TAGS:
        raise MalformedMessage(f"{label}: {count} tagged fields at byte {pos}; more than {MAX_TAGS} are never sent")
    return count, pos


def _tag_head(label: str, buf: Buffer, pos: int, size: int, last: int) -> tuple[int, int, int]:
    """Return tag, length and position of the next tagged field."""
    tag = buf[pos]
    pos += 1
    if tag > 127:
        tag, pos = _long_uvarint(buf, pos, tag)
    length = buf[pos]
    pos += 1
    if length > 127:
        length, pos = _long_uvarint(buf, pos, length)
    if tag <= last:
        raise MalformedMessage(f"{label}: tagged field {tag} comes after {last} at byte {pos}; tags have to ascend")
    if length > size - pos:
        raise IndexError(f"tagged field {tag}", length, size - pos)
    return tag, length, pos


def _skip_tags(label: str, buf: Buffer, pos: int, size: int, first: int) -> int:
    count, pos = _tag_count(label, buf, pos, size, first)
    last = -1
    for _ in range(count):
        last, length, pos = _tag_head(label, buf, pos, size, last)
        pos += length
    return pos


def _numbers(label: str, code: str, size: int, count: int, buf: Buffer, pos: int) -> Generator[None, None, list[Any]]:
    """Decode an array of numbers in steps of `_NUMBERS_A_STEP`."""
    if count > MOST_ITEMS:
        raise _too_many(label)
    found: list[Any] = []
    while count > 0:
        chunk = min(count, _NUMBERS_A_STEP)
        found += unpack_from(f">{chunk}{code}", buf, pos)
        pos += chunk * size
        count -= chunk
        if count:
            yield
    return found


def _refusal(label: str, size: int, pos: int, error: Exception) -> ProtocolError:
    """Return the error that a compiled function raises for an internal exception."""
    if isinstance(error, UnicodeDecodeError):
        return MalformedMessage(f"{label}: the string at byte {pos} is not UTF-8 ({error.reason})")
    if isinstance(error, OverflowError):
        return MalformedMessage(f"{label}: {error} at byte {pos}")
    match error.args:
        case (str(path), int(count), *known):
            left = known[0] if known else size - pos
            return TruncatedMessage(f"{label} ends early: {path} claims {count}, and {left} bytes are left")
    return TruncatedMessage(f"{label} ends early: more is needed at byte {min(pos, size)} of {size}")


def _bad_length(where: str, length: int) -> MalformedMessage:
    return MalformedMessage(f"{where}: a length of {length} is not possible")


def _bad_tag(where: str, length: int) -> MalformedMessage:
    return MalformedMessage(f"{where}: the tagged field's content does not have the {length} bytes it claims")


def _too_many(label: str) -> MalformedMessage:
    return MalformedMessage(f"{label} has too many items: more than {MOST_ITEMS} are never sent")


def _left_over(label: str, count: int) -> MalformedMessage:
    return MalformedMessage(f"{label}: {count} bytes are left over after the last field")


NAMES: Final[dict[str, Any]] = {
    "UNREADABLE": (IndexError, struct_error, UnicodeDecodeError, OverflowError),
    "bad_length": _bad_length,
    "bad_tag": _bad_tag,
    "left_over": _left_over,
    "long_uvarint": _long_uvarint,
    "new": object.__new__,
    "numbers": _numbers,
    "refusal": _refusal,
    "skip_tags": _skip_tags,
    "tag_count": _tag_count,
    "too_many": _too_many,
    "tag_head": _tag_head,
    "unpack_from": unpack_from,
    "uuid_of": _uuid_of,
}
"""The global names of the compiled functions."""
