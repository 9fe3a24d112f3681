"""The layout of a declaration in one version: its fields and the size of the smallest encoding."""

from __future__ import annotations

from typing import Any

from pyclient.errors import UnsupportedVersion
from pyclient.protocol.fields import Message
from pyclient.protocol.kinds import ArrayOf, Fixed, Kind, Nested, RecordData
from pyclient.protocol.parts import Field, fields_of


class Layout:
    """One version of one message."""

    def __init__(self, cls: type[Message], version: int) -> None:
        first, last = cls.versions
        if not first <= version <= last:
            raise UnsupportedVersion(f"{cls.__name__} has versions {first} to {last}, not {version}")
        self.cls = cls
        self.version = version
        self.flexible = cls.flexible is not None and version >= cls.flexible
        self.label = f"{cls.__name__} v{version}"

    def plain(self, cls: type) -> list[Field]:
        """Return the untagged fields, in wire order."""
        return [each for each in fields_of(cls) if each.present_in(self.version) and each.tag is None]

    def tagged(self, cls: type) -> list[Field]:
        """Return the tagged fields, ordered by tag."""
        tagged = [each for each in fields_of(cls) if each.present_in(self.version) and each.tag is not None]
        return sorted(tagged, key=lambda each: each.tag or 0)

    def absent(self, cls: type) -> list[Field]:
        """Return the fields that this version does not have."""
        return [each for each in fields_of(cls) if not each.present_in(self.version)]

    def nullable(self, each: Field) -> bool:
        """Return True if the field may be None in this version."""
        return each.nullable_in(self.version)

    def smallest(self, cls: type) -> int:
        """Return the size in bytes of the shortest encoding of a part."""
        return sum(self._smallest_field(each) for each in self.plain(cls)) + self.flexible

    def smallest_item(self, kind: Kind) -> int:
        """Return the size in bytes of the shortest encoding of an array's item."""
        if isinstance(kind, Nested):
            return max(self.smallest(kind.cls), 1)
        return self._smallest_value(kind, compact=self.flexible)

    def has_records(self, cls: type | None = None) -> bool:
        """Return True if record data may occur anywhere in the message."""
        present = self.plain(cls or self.cls) + self.tagged(cls or self.cls)
        return any(self._carries_records(each.kind) for each in present)

    def _carries_records(self, kind: Kind) -> bool:
        inner = kind.item if isinstance(kind, ArrayOf) else kind
        return isinstance(inner, RecordData) or (isinstance(inner, Nested) and self.has_records(inner.cls))

    def _smallest_field(self, each: Field) -> int:
        if isinstance(each.kind, Nested):
            return 1 if self.nullable(each) else self.smallest(each.kind.cls)
        return self._smallest_value(each.kind, compact=self.flexible and each.flexible)

    def _smallest_value(self, kind: Kind, *, compact: bool) -> int:
        if isinstance(kind, Fixed):
            return kind.size
        if compact:
            return 1
        return 2 if kind.name == "String" else 4


def literal(value: Any, names: dict[str, Any]) -> str:
    """Return a default as source text; a value without a literal form gets a name in `names`."""
    if value is None or isinstance(value, bool | int | str | bytes):
        return repr(value)
    if isinstance(value, tuple | list):
        return "[]"
    name = f"default_{len(names)}"
    names[name] = value
    return name
