"""Wire types: the layout of each kind of value, and the wire type of each annotation."""

from __future__ import annotations

import types
import uuid
from typing import Any, Final, Union, get_args

ZERO_UUID: Final = uuid.UUID(int=0)


class _Blank:
    """The default of a nested part: an instance with every field at Kafka's default."""

    def __repr__(self) -> str:
        return "BLANK"


BLANK: Final[Any] = _Blank()


class Kind:
    """A wire type: the layout of a value. `zero` is Kafka's default for it."""

    __slots__ = ("name", "zero")

    def __init__(self, name: str, zero: object) -> None:
        self.name = name
        self.zero = zero

    def __repr__(self) -> str:
        return self.name


class Fixed(Kind):
    """A value of fixed width: `code` is its letter in a `struct` format."""

    __slots__ = ("code", "size")

    def __init__(self, name: str, code: str, size: int, zero: object = 0) -> None:
        super().__init__(name, zero)
        self.code = code
        self.size = size


class Text(Kind):
    """A length and UTF-8 bytes; the length has 16 bits, or is a compact varint in flexible versions."""

    __slots__ = ()


class Blob(Kind):
    """A length and bytes; the length has 32 bits, or is a compact varint in flexible versions."""

    __slots__ = ()


class RecordData(Kind):
    """Record batches: the layout of `Blob`, never copied."""

    __slots__ = ()


class ArrayOf(Kind):
    """A count, encoded as the length of a `Blob`, and that many items."""

    __slots__ = ("item",)

    def __init__(self, item: Kind) -> None:
        super().__init__(f"list[{item.name}]", ())
        self.item = item


class Nested(Kind):
    """The fields of another part, in order."""

    __slots__ = ("_plain", "cls")

    def __init__(self, cls: type) -> None:
        super().__init__(cls.__name__, BLANK)
        self.cls = cls
        self._plain: bool | None = None

    def is_plain(self) -> bool:
        """Return True if the part contains neither lists nor other parts."""
        if self._plain is None:  # cached: called for every message that is created
            fields = self.cls.__fields__  # type: ignore[attr-defined]
            self._plain = not any(isinstance(each.kind, ArrayOf | Nested) for each in fields)
        return self._plain


BOOL: Final = Fixed("Bool", "?", 1, False)
UUID: Final = Fixed("Uuid", "16s", 16, ZERO_UUID)
TEXT: Final = Text("String", "")
BLOB: Final = Blob("Bytes", b"")
RECORD_DATA: Final = RecordData("Records", b"")

_BUILT_IN: Final[dict[Any, Kind]] = {bool: BOOL, str: TEXT, bytes: BLOB, uuid.UUID: UUID}


def kind_of(annotation: Any) -> Kind:
    """Return the wire type of an annotation in a declaration. Raise TypeError if there is none."""
    built_in = _BUILT_IN.get(annotation)
    if built_in is not None:
        return built_in
    metadata = getattr(annotation, "__metadata__", None)
    if metadata is not None:
        return metadata[0]  # type: ignore[no-any-return]
    if getattr(annotation, "__origin__", None) is list:
        return ArrayOf(kind_of(annotation.__args__[0]))
    if hasattr(annotation, "__fields__"):
        return Nested(annotation)
    raise TypeError(f"{annotation!r} is not a type of the protocol")


def split_optional(annotation: Any) -> tuple[Any, bool]:
    """Return an annotation without its `| None`, and True if it had one."""
    if isinstance(annotation, types.UnionType) or getattr(annotation, "__origin__", None) is Union:
        [plain] = [arg for arg in get_args(annotation) if arg is not type(None)]
        return plain, True
    return annotation, False
