"""Build a class from a declaration: fields in wire order, slots, a constructor, equality and a repr.

Dataclasses would do the same, but creating two hundred of them takes too long for a broker that starts in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final, TypeVar

from pyclient.protocol.kinds import BLANK, TEXT, ArrayOf, Kind, Nested, kind_of, split_optional

T = TypeVar("T")

UNSET: Final[Any] = object()
"""Marks a field without a default."""


class Field:
    """One field of a declaration: its wire type and the versions that have it."""

    __slots__ = (
        "default",
        "flexible",
        "ignorable",
        "kind",
        "name",
        "null_since",
        "null_until",
        "required",
        "since",
        "tag",
        "until",
    )

    def __init__(
        self,
        *,
        since: int,
        until: int | None,
        default: Any,
        nullable: int | tuple[int, int] | None,
        tag: int | None,
        ignorable: bool,
        flexible: bool,
    ) -> None:
        self.name = ""
        self.kind: Kind = TEXT
        self.since = since
        self.until = until
        self.default = default
        self.required = default is UNSET
        self.null_since: int | None
        self.null_until: int | None
        self.null_since, self.null_until = nullable if isinstance(nullable, tuple) else (nullable, None)
        self.tag = tag
        self.ignorable = ignorable
        self.flexible = flexible

    def bind(self, name: str, annotation: Any) -> None:
        """Set name and type from the class body; a field without a default gets its type's zero value."""
        plain, optional = split_optional(annotation)
        self.name = name
        self.kind = kind_of(plain)
        if optional and self.null_since is None:
            self.null_since = 0
        if self.required:
            self.default = self.kind.zero

    def present_in(self, version: int) -> bool:
        """Return True if this version has the field, tagged or not."""
        return self.since <= version and (self.until is None or version <= self.until)

    def nullable_in(self, version: int) -> bool:
        """Return True if the field may be None in this version."""
        since, until = self.null_since, self.null_until
        return since is not None and since <= version and (until is None or version <= until)

    def fresh_default(self) -> Any:
        """Return the default for a new instance: a new list, or the shared blank part if it has only plain values."""
        if self.default is BLANK:
            assert isinstance(self.kind, Nested)
            return shared_blank(self.kind.cls) if self.kind.is_plain() else blank(self.kind.cls)
        if isinstance(self.kind, ArrayOf) and self.default is not None:
            return []
        return self.default

    def __repr__(self) -> str:
        return f"<Field {self.name}: {self.kind} since {self.since}>"


def blank(cls: type[T]) -> T:
    """Return an instance with every field at Kafka's default, including required ones."""
    instance = object.__new__(cls)
    for each in fields_of(cls):
        setattr(instance, each.name, each.fresh_default())
    return instance


@cache
def shared_blank(cls: type[T]) -> T:
    """Return an immutable blank, shared by all messages for parts of plain values that were not given or not sent.

    A Fetch response has three such parts per partition; creating them would add half to the cost of the rest.
    """

    def refuse(self: object, name: str, value: object) -> None:
        raise AttributeError(f"this {cls.__name__} is a shared default; assign a new one instead")

    body: dict[str, Any] = {"__slots__": (), "__setattr__": refuse, "__hash__": None}
    body |= {"__new__": lambda _, **values: cls(**values), "__class__": property(lambda self: cls)}
    body |= {"__reduce_ex__": lambda self, protocol: (blank, (cls,))}
    shared: T = object.__new__(type(cls.__name__, (cls,), body))
    for each in fields_of(cls):
        object.__setattr__(shared, each.name, each.fresh_default())
    return shared


def fields_of(cls: type) -> tuple[Field, ...]:
    """Return the fields of a part or message, in wire order."""
    return cls.__fields__  # type: ignore[attr-defined, no-any-return]


def build_class(cls: type[T], attributes: dict[str, Any]) -> type[T]:
    """Return a copy of the class with slots, a constructor, equality and a repr."""
    fields = tuple(_collect(cls))
    names = tuple(each.name for each in fields)
    body = {
        name: value
        for name, value in cls.__dict__.items()
        if name not in names and name not in ("__dict__", "__weakref__")
    }
    body |= attributes
    body |= {"__slots__": names, "__fields__": fields, "__hash__": None}
    body |= {"__init__": _first_init, "__eq__": _equal, "__repr__": _describe}
    rebuilt: type[T] = type(cls.__name__, cls.__bases__, body)
    return rebuilt


def _collect(cls: type) -> Iterator[Field]:
    for name, annotation in cls.__annotations__.items():
        given = cls.__dict__.get(name, UNSET)
        each: Field = given if isinstance(given, Field) else _plain_field(given)
        each.bind(name, annotation)
        yield each


def _plain_field(default: Any) -> Field:
    return Field(since=0, until=None, default=default, nullable=None, tag=None, ignorable=False, flexible=True)


def _first_init(self: Any, **values: Any) -> None:
    """Replace itself by the real constructor on first use; most message classes are never instantiated."""
    cls = type(self)
    cls.__init__ = _constructor(cls)
    cls.__init__(self, **values)


def _constructor(cls: type) -> Callable[..., None]:
    names: dict[str, Any] = {"UNSET": UNSET}
    parameters, body = [], []
    for each in fields_of(cls):
        value = each.name
        if each.required:
            parameters.append(each.name)
        elif isinstance(each.kind, ArrayOf | Nested) and each.default is not None:
            names[f"_new_{each.name}"] = each.fresh_default
            parameters.append(f"{each.name}=UNSET")
            value = f"_new_{each.name}() if {each.name} is UNSET else {each.name}"
        else:
            names[f"_default_{each.name}"] = each.default
            parameters.append(f"{each.name}=_default_{each.name}")
        body.append(f"    self.{each.name} = {value}\n")
    star = "*, " if parameters else ""
    source = f"def __init__(self, {star}{', '.join(parameters)}):\n{''.join(body) or '    pass'}"
    exec(source, names)
    constructor: Callable[..., None] = names["__init__"]
    constructor.__qualname__ = f"{cls.__qualname__}.__init__"
    return constructor


def _equal(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return all(getattr(self, name) == getattr(other, name) for name in _names(self))


def _describe(self: Any) -> str:
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in _names(self))
    return f"{self.__class__.__name__}({values})"


def _names(self: Any) -> list[str]:
    return [each.name for each in self.__fields__]
