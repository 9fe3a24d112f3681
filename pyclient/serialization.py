"""Built-in serializers and deserializers: `string`, `json` and `msgpack`.

>>> from pyclient import serialization
>>> serialization.json.serialize({"id": 7})
b'{"id":7}'
>>> serialization.string.deserialize(b"caf\\xc3\\xa9")
'café'

Each has `.serialize` and `.deserialize`, to be given as `value_serializer=`, `key_deserializer=` and so on. Both raise
`SerializationError` for values they cannot convert. They are never called with a missing key or value (`None`).
"""

from __future__ import annotations

import json as _json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from pyclient.errors import SerializationError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Serializer(Protocol):
    """An object for `key_serializer=` and `value_serializer=`, which also take a function."""

    def serialize(self, value: Any, /) -> bytes:
        """Return the bytes of a key or value; never called with None."""
        ...


class Deserializer(Protocol[T_co]):
    """An object for `key_deserializer=` and `value_deserializer=`, which also take a function."""

    def deserialize(self, data: bytes, /) -> T_co:
        """Return the value of a key's or value's bytes; never called with None."""
        ...


@dataclass(frozen=True, slots=True)
class Serialization(Generic[T]):
    """A serializer and its inverse."""

    name: str
    serialize: Callable[[T], bytes]
    deserialize: Callable[[bytes], T]

    def __repr__(self) -> str:
        return f"<pyclient.serialization.{self.name}>"


def _string_to_bytes(value: str) -> bytes:
    if not isinstance(value, str):
        raise SerializationError(f"string serializes str, not {type(value).__name__}: {_shown(value)}")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise SerializationError(f"not encodable as UTF-8 ({error.reason}): {_shown(value)}") from error


def _string_from_bytes(data: bytes) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise SerializationError(f"not UTF-8 at byte {error.start} ({error.reason}): {_shown(data)}") from error


def _json_to_bytes(value: Any) -> bytes:
    try:
        return _json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise SerializationError(f"not serializable as JSON ({error}): {_shown(value)}") from error


def _json_from_bytes(data: bytes) -> Any:
    try:
        return _json.loads(str(data, "utf-8"))
    except (ValueError, RecursionError) as error:
        raise SerializationError(f"not JSON ({error}): {_shown(data)}") from error


def _msgpack_to_bytes(value: Any) -> bytes:
    from msgpack import packb  # imported on first use

    try:
        packed: bytes = packb(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise SerializationError(f"not serializable as msgpack ({error}): {_shown(value)}") from error
    return packed


def _msgpack_from_bytes(data: bytes) -> Any:
    from msgpack import exceptions, unpackb

    try:
        return unpackb(data, strict_map_key=False)
    except (exceptions.UnpackException, ValueError, TypeError) as error:
        raise SerializationError(f"not msgpack ({error or type(error).__name__}): {_shown(data)}") from error


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


string: Final[Serialization[str]] = Serialization("string", _string_to_bytes, _string_from_bytes)
"""`str` as UTF-8, strictly."""

json: Final[Serialization[Any]] = Serialization("json", _json_to_bytes, _json_from_bytes)
"""JSON, compact, in UTF-8; NaN and infinities are errors, since JSON has none."""

msgpack: Final[Serialization[Any]] = Serialization("msgpack", _msgpack_to_bytes, _msgpack_from_bytes)
"""Values that msgpack supports."""
