"""The vocabulary of message declarations: wire types, `field()`, and the decorators `@part`, `@api`, `@message`.

A declaration is a class with one annotated attribute per field, for all versions of the message:

    @part
    class ListOffsetsPartition:
        partition_index: Int32
        current_leader_epoch: Int32 = field(since=4, default=-1, ignorable=True)
        timestamp: Int64

    @api(key=2, versions=(1, 11), flexible=6)
    class ListOffsetsRequest(Request[ListOffsetsResponse]):
        replica_id: Int32
        topics: list[ListOffsetsTopic]

The decorators give the class slots, a keyword-only constructor, equality and a repr, as a dataclass would; they do it
themselves because a broker that starts in milliseconds cannot wait for two hundred dataclasses.
"""

import types
import uuid
from collections.abc import Callable, Iterator, Sized
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Generic, TypeAlias, TypeVar, Union, dataclass_transform, get_args

T = TypeVar("T")
ResponseT = TypeVar("ResponseT", bound="Response")

Part: TypeAlias = Sized
"""A piece of an encoded message: bytes-like, or a file region that a stream knows how to send."""

ZERO_UUID: Final = uuid.UUID(int=0)


class _Blank:
    """The default of a nested part: every field of it at Kafka's default."""

    def __repr__(self) -> str:
        return "BLANK"


BLANK: Final[Any] = _Blank()
_UNSET: Final[Any] = object()


# --- wire types -------------------------------------------------------------------------------------------------


class Kind:
    """How a value is laid out on the wire."""

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
    """UTF-8 behind its length: 16 bits, or a compact varint in flexible versions."""

    __slots__ = ()


class Blob(Kind):
    """Bytes behind their length: 32 bits, or a compact varint in flexible versions."""

    __slots__ = ()


class RecordData(Kind):
    """Record batches: laid out as bytes, but never copied."""

    __slots__ = ()


class ArrayOf(Kind):
    """A count (as a blob's length) and that many items."""

    __slots__ = ("item",)

    def __init__(self, item: Kind) -> None:
        super().__init__(f"list[{item.name}]", ())
        self.item = item


class Nested(Kind):
    """The fields of another part, one after the other."""

    __slots__ = ("cls",)

    def __init__(self, cls: type) -> None:
        super().__init__(cls.__name__, BLANK)
        self.cls = cls

    def is_plain(self) -> bool:
        """Whether the part has neither lists nor parts in it."""
        return not any(isinstance(each.kind, ArrayOf | Nested) for each in fields_of(self.cls))


BOOL: Final = Fixed("Bool", "?", 1, False)
UUID: Final = Fixed("Uuid", "16s", 16, ZERO_UUID)
TEXT: Final = Text("String", "")
BLOB: Final = Blob("Bytes", b"")
RECORD_DATA: Final = RecordData("Records", b"")

Int8 = Annotated[int, Fixed("Int8", "b", 1)]
Int16 = Annotated[int, Fixed("Int16", "h", 2)]
Int32 = Annotated[int, Fixed("Int32", "i", 4)]
Int64 = Annotated[int, Fixed("Int64", "q", 8)]
UInt16 = Annotated[int, Fixed("UInt16", "H", 2)]
UInt32 = Annotated[int, Fixed("UInt32", "I", 4)]
Float64 = Annotated[float, Fixed("Float64", "d", 8, 0.0)]
Bool = bool
String = str
Bytes = bytes
Uuid = uuid.UUID
Records = Annotated[Any, RECORD_DATA]
"""Anything with a length when sent (bytes, a file region, ...), a memoryview of the frame when received."""

_BUILT_IN: Final[dict[Any, Kind]] = {bool: BOOL, str: TEXT, bytes: BLOB, uuid.UUID: UUID}


def _kind(annotation: Any) -> Kind:
    built_in = _BUILT_IN.get(annotation)
    if built_in is not None:
        return built_in
    metadata = getattr(annotation, "__metadata__", None)
    if metadata is not None:
        return metadata[0]  # type: ignore[no-any-return]
    if getattr(annotation, "__origin__", None) is list:
        return ArrayOf(_kind(annotation.__args__[0]))
    if hasattr(annotation, "__fields__"):
        return Nested(annotation)
    raise TypeError(f"{annotation!r} is not a type of the protocol")


def _split_optional(annotation: Any) -> tuple[Any, bool]:
    if isinstance(annotation, types.UnionType) or getattr(annotation, "__origin__", None) is Union:
        [plain] = [arg for arg in get_args(annotation) if arg is not type(None)]
        return plain, True
    return annotation, False


# --- fields -----------------------------------------------------------------------------------------------------


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
        self.required = default is _UNSET
        self.null_since: int | None
        self.null_until: int | None
        self.null_since, self.null_until = nullable if isinstance(nullable, tuple) else (nullable, None)
        self.tag = tag
        self.ignorable = ignorable
        self.flexible = flexible

    def bind(self, name: str, annotation: Any) -> None:
        """Take the name and the type from the class body; a field without a default has Kafka's zero as its own."""
        plain, optional = _split_optional(annotation)
        self.name = name
        self.kind = _kind(plain)
        if optional and self.null_since is None:
            self.null_since = 0
        if self.required:
            self.default = self.kind.zero

    def present_in(self, version: int) -> bool:
        """Whether this version carries the field, tagged or not."""
        return self.since <= version and (self.until is None or version <= self.until)

    def nullable_in(self, version: int) -> bool:
        """Whether the field may be None in this version."""
        since, until = self.null_since, self.null_until
        return since is not None and since <= version and (until is None or version <= until)

    def fresh_default(self) -> Any:
        """The default, ready to be used: a list is made anew, a part of plain values is the shared blank one."""
        if self.default is BLANK:
            assert isinstance(self.kind, Nested)
            return shared_blank(self.kind.cls) if self.kind.is_plain() else blank(self.kind.cls)
        if isinstance(self.kind, ArrayOf) and self.default is not None:
            return []
        return self.default

    def __repr__(self) -> str:
        return f"<Field {self.name}: {self.kind} since {self.since}>"


def field(
    *,
    since: int = 0,
    until: int | None = None,
    default: Any = _UNSET,
    nullable: int | tuple[int, int] | None = None,
    tag: int | None = None,
    ignorable: bool = False,
    flexible: bool = True,
) -> Any:
    """A field with more to say than its type.

    `since`, `until`: the first and last version that has it. `default`: its value when it is left out or absent
    (without one it has to be given). `nullable`: the first version, or the first and last, where an optional field may
    be None (all, if not said). `tag`: its number among the tagged fields. `ignorable`: a value set in a version
    without the field is dropped silently; otherwise it is an error. `flexible=False`: a string that keeps its 16-bit
    length in flexible versions.
    """
    return Field(
        since=since, until=until, default=default, nullable=nullable, tag=tag, ignorable=ignorable, flexible=flexible
    )


def blank(cls: type[T]) -> T:
    """An instance with every field at Kafka's default, required ones too."""
    instance = object.__new__(cls)
    for each in fields_of(cls):
        setattr(instance, each.name, each.fresh_default())
    return instance


@cache
def shared_blank(cls: type[T]) -> T:
    """A blank that refuses changes: messages share it for parts of plain values that were not given or not sent.

    A Fetch response has three such parts per partition; making them would cost half as much as all the rest.
    """

    def refuse(self: object, name: str, value: object) -> None:
        raise AttributeError(f"this {cls.__name__} stands for one that was not sent; assign a new one instead")

    body: dict[str, Any] = {"__slots__": (), "__setattr__": refuse, "__hash__": None}
    body |= {"__new__": lambda _, **values: cls(**values), "__class__": property(lambda self: cls)}
    body |= {"__reduce_ex__": lambda self, protocol: (blank, (cls,))}
    shared: T = object.__new__(type(cls.__name__, (cls,), body))
    for each in fields_of(cls):
        object.__setattr__(shared, each.name, each.fresh_default())
    return shared


def fields_of(cls: type) -> tuple[Field, ...]:
    """The fields of a part or message, in wire order."""
    return cls.__fields__  # type: ignore[attr-defined, no-any-return]


# --- messages ---------------------------------------------------------------------------------------------------


class Message:
    """Base of everything that is encoded as a whole and has versions of its own."""

    __slots__ = ()

    api_key: ClassVar[int] = -1
    """The API's key, or the record type for records of internal topics; -1 where there is none."""
    versions: ClassVar[tuple[int, int]]
    """The first and last version declared."""
    flexible: ClassVar[int | None]
    """The first version with compact lengths and tagged fields; None: no version has them."""
    tolerant: ClassVar[bool] = False
    """Bytes behind the last field belong to a newer version and are ignored."""
    __encoders__: ClassVar[dict[int, Callable[[Any], list[Part]]]]
    __decoders__: ClassVar[dict[int, Callable[..., Any]]]


class Response(Message):
    """Base of responses. `name` is the API's name, as in `Produce`."""

    __slots__ = ()

    name: ClassVar[str]


class Request(Message, Generic[ResponseT]):
    """Base of requests. `name` is the API's name, `response` the class of what comes back."""

    __slots__ = ()

    name: ClassVar[str]
    response: ClassVar[type[Response]]


class CoordinatorKey(Message):
    """Base of the keys of internal topics: on disk they start with their record type, not with a version."""

    __slots__ = ()


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def part(cls: type[T]) -> type[T]:
    """Declare a part of a message."""
    return _build(cls, {})


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def api(*, key: int, versions: tuple[int, int], flexible: int | None) -> Callable[[type[T]], type[T]]:
    """Declare a request or a response."""

    def declare(cls: type[T]) -> type[T]:
        attributes: dict[str, Any] = {"name": cls.__name__.removesuffix("Request").removesuffix("Response")}
        if issubclass(cls, Request):
            [base] = cls.__orig_bases__  # type: ignore[attr-defined]
            [attributes["response"]] = get_args(base)
        return _build(cls, attributes | _message_attributes(key, versions, flexible))

    return declare


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def message(
    *, versions: tuple[int, int], flexible: int | None, key: int = -1, tolerant: bool = False
) -> Callable[[type[T]], type[T]]:
    """Declare a message that is no request or response: a record of an internal topic, a file's content, ..."""

    def declare(cls: type[T]) -> type[T]:
        return _build(cls, _message_attributes(key, versions, flexible) | {"tolerant": tolerant})

    return declare


def _message_attributes(key: int, versions: tuple[int, int], flexible: int | None) -> dict[str, Any]:
    return {"api_key": key, "versions": versions, "flexible": flexible, "__encoders__": {}, "__decoders__": {}}


def _build(cls: type[T], attributes: dict[str, Any]) -> type[T]:
    """The class again, with slots, a constructor, equality and a repr."""
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
        given = cls.__dict__.get(name, _UNSET)
        each: Field = given if isinstance(given, Field) else field(default=given)
        each.bind(name, annotation)
        yield each


def _first_init(self: Any, **values: Any) -> None:
    """Stands in until the first instance is made; most classes of a message module are never constructed."""
    cls = type(self)
    cls.__init__ = _constructor(cls)
    cls.__init__(self, **values)


def _constructor(cls: type) -> Callable[..., None]:
    names: dict[str, Any] = {"_UNSET": _UNSET}
    parameters, body = [], []
    for each in fields_of(cls):
        value = each.name
        if each.required:
            parameters.append(each.name)
        elif isinstance(each.kind, ArrayOf | Nested) and each.default is not None:
            names[f"_new_{each.name}"] = each.fresh_default
            parameters.append(f"{each.name}=_UNSET")
            value = f"_new_{each.name}() if {each.name} is _UNSET else {each.name}"
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
