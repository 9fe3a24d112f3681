"""Find the value that made an encode function fail; encode functions check nothing themselves, for speed."""

from __future__ import annotations

from collections.abc import Iterator
from struct import error as struct_error
from struct import pack
from typing import Any
from uuid import UUID

from pyclient.errors import MalformedMessage
from pyclient.protocol.fields import Message
from pyclient.protocol.kinds import ArrayOf, Blob, Fixed, Kind, Nested, Text
from pyclient.protocol.parts import Field, fields_of


def explain(message: Message, version: int, error: Exception) -> MalformedMessage:
    """Return an error that names the message, the version, the field and its value."""
    label = f"{type(message).__name__} v{version}"
    fault = next(_faults_of_part(type(message), message, version, ""), None)
    return MalformedMessage(f"{label}: {fault}" if fault else f"{label} cannot be encoded: {error}")


def _faults_of_part(cls: type, value: Any, version: int, path: str) -> Iterator[str]:
    if not isinstance(value, cls):
        yield f"{path.rstrip('.') or 'message'} has to be a {cls.__name__}, not {value!r:.100}"
        return
    for each in fields_of(cls):
        if each.present_in(version):
            yield from _faults_of_field(each, getattr(value, each.name), version, path + each.name)


def _faults_of_field(each: Field, value: Any, version: int, path: str) -> Iterator[str]:
    if value is not None:
        yield from _faults(each.kind, value, version, path)
    elif not each.nullable_in(version):
        yield f"{path} may not be None"


def _faults(kind: Kind, value: Any, version: int, path: str) -> Iterator[str]:
    if isinstance(kind, Nested):
        yield from _faults_of_part(kind.cls, value, version, f"{path}.")
    elif isinstance(kind, ArrayOf):
        yield from _faults_of_array(kind.item, value, version, path)
    elif not _fits(kind, value):
        yield f"{path} is {value!r:.100}, not a valid {kind}"


def _faults_of_array(item: Kind, value: Any, version: int, path: str) -> Iterator[str]:
    if not hasattr(value, "__len__") or not hasattr(value, "__iter__"):
        yield f"{path} has to be a list, not {value!r:.100}"
        return
    for index, element in enumerate(value):
        if element is None:
            yield f"{path}[{index}] may not be None"
        else:
            yield from _faults(item, element, version, f"{path}[{index}]")


def _fits(kind: Kind, value: Any) -> bool:
    if isinstance(kind, Fixed):
        return _fits_fixed(kind, value)
    if isinstance(kind, Text):
        return isinstance(value, str) and _is_encodable(value)
    if isinstance(kind, Blob):
        return isinstance(value, bytes | bytearray | memoryview) and len(value) < 1 << 31
    return hasattr(value, "__len__") and len(value) < 1 << 31


def _fits_fixed(kind: Fixed, value: Any) -> bool:
    if kind.name == "Uuid":
        return isinstance(value, UUID)
    try:
        pack(f">{'B' if kind.name == 'Bool' else kind.code}", value)
    except (struct_error, OverflowError):
        return False
    return True


def _is_encodable(value: str) -> bool:
    try:
        return len(value.encode()) <= 32_767
    except UnicodeEncodeError:
        return False
