"""Declare messages: wire types, `field()`, and the decorators `@part`, `@api`, `@message`.

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

The decorators give the class slots, a keyword-only constructor, equality and a repr, as a dataclass would.
"""

import uuid
from collections.abc import Callable, Sized
from typing import Annotated, Any, ClassVar, Generic, TypeAlias, TypeVar, dataclass_transform, get_args

from pyclient.protocol.kinds import BLANK, RECORD_DATA, ZERO_UUID, Fixed
from pyclient.protocol.parts import UNSET, Field, build_class

__all__ = [
    "BLANK",
    "ZERO_UUID",
    "Bool",
    "Bytes",
    "CoordinatorKey",
    "Float64",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Message",
    "Part",
    "Records",
    "Request",
    "Response",
    "String",
    "UInt16",
    "UInt32",
    "Uuid",
    "api",
    "field",
    "message",
    "part",
]

T = TypeVar("T")
ResponseT = TypeVar("ResponseT", bound="Response")

Part: TypeAlias = Sized
"""A part of an encoded message: bytes-like, or a file region that a stream can send."""

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
"""Record batches: anything with a length when sent (bytes, a file region), a memoryview of the frame when received."""


def field(
    *,
    since: int = 0,
    until: int | None = None,
    default: Any = UNSET,
    nullable: int | tuple[int, int] | None = None,
    tag: int | None = None,
    ignorable: bool = False,
    flexible: bool = True,
) -> Any:
    """Declare a field that needs more than a type.

    `since`, `until`: the first and last version that has it. `default`: its value if it is omitted or absent (a field
    without a default is required). `nullable`: the first version, or the first and last, in which an optional field
    may be None (default: all). `tag`: its number among the tagged fields. `ignorable`: a value set in a version
    without the field is dropped silently; otherwise it is an error. `flexible=False`: a string that keeps its 16-bit
    length in flexible versions.
    """
    return Field(
        since=since, until=until, default=default, nullable=nullable, tag=tag, ignorable=ignorable, flexible=flexible
    )


class Message:
    """Base of requests, responses and stored messages: each is encoded as a whole and versioned."""

    __slots__ = ()

    api_key: ClassVar[int] = -1
    """The API's key, or the record type for records of internal topics; -1 where there is none."""
    versions: ClassVar[tuple[int, int]]
    """The first and last version declared."""
    flexible: ClassVar[int | None]
    """The first version with compact lengths and tagged fields; None: no version has them."""
    tolerant: ClassVar[bool] = False
    """Bytes after the last field are ignored: a newer version's, or those of a client with a known bug."""
    __encoders__: ClassVar[dict[int, Callable[[Any], list[Part]]]]
    __decoders__: ClassVar[dict[int, Callable[..., Any]]]


class Response(Message):
    """Base of responses. `name` is the API's name, as in `Produce`."""

    __slots__ = ()

    name: ClassVar[str]


class Request(Message, Generic[ResponseT]):
    """Base of requests. `name` is the API's name, `response` the class of the response."""

    __slots__ = ()

    name: ClassVar[str]
    response: ClassVar[type[Response]]


class CoordinatorKey(Message):
    """Base of the keys of internal topics, which start with a record type instead of a version."""

    __slots__ = ()


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def part(cls: type[T]) -> type[T]:
    """Declare a part of a message."""
    return build_class(cls, {})


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def api(
    *, key: int, versions: tuple[int, int], flexible: int | None, tolerant: bool = False
) -> Callable[[type[T]], type[T]]:
    """Declare a request or a response."""

    def declare(cls: type[T]) -> type[T]:
        attributes: dict[str, Any] = {"name": cls.__name__.removesuffix("Request").removesuffix("Response")}
        if issubclass(cls, Request):
            [base] = cls.__orig_bases__  # type: ignore[attr-defined]
            [attributes["response"]] = get_args(base)
        return build_class(cls, attributes | _message_attributes(key, versions, flexible) | {"tolerant": tolerant})

    return declare


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def message(
    *, versions: tuple[int, int], flexible: int | None, key: int = -1, tolerant: bool = False
) -> Callable[[type[T]], type[T]]:
    """Declare a message that is neither request nor response, e.g. a record of an internal topic or a file."""

    def declare(cls: type[T]) -> type[T]:
        return build_class(cls, _message_attributes(key, versions, flexible) | {"tolerant": tolerant})

    return declare


def _message_attributes(key: int, versions: tuple[int, int], flexible: int | None) -> dict[str, Any]:
    return {"api_key": key, "versions": versions, "flexible": flexible, "__encoders__": {}, "__decoders__": {}}
