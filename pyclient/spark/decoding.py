"""Decode keys and values, a batch at a time, to the Arrow arrays of a Spark type."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pyclient.errors import ConfigError
from pyclient.spark.avro import avro_schema
from pyclient.spark.formats import Format, check_types

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Check = Callable[[Any], None]
"""Raises `TypeError` for a value that Arrow would convert to a different one."""

_BLANKS: Final = " \t\n\r"
"""The characters that JSON allows around a value."""

_NO_NUMBERS: Final = r"[:,\[\s-]Inf[,}\]\s]|-NaN"
"""Matches every text with Inf or -NaN in place of a number, and few others."""

_SCALARS: Final = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def decoders_of(formats: Iterable[Format], schema: StructType) -> tuple[Decoder, ...]:
    """Return the decoders of a source with this schema; raise `ConfigError` for a type that cannot be decoded to."""
    types, made = {each.name: each.dataType for each in schema.fields}, []
    for each in formats:
        check_types(each, types[each.column])
        if each.name == "avro":
            _check_avro(each)
        made.append(Decoder(each, arrow_type(types[each.column])))
    return tuple(made)


def arrow_type(given: Any) -> pa.DataType:
    """Return the Arrow type that Spark expects for a type that `check_types` accepts."""
    match given.typeName():
        case "struct":
            return pa.struct([pa.field(each.name, arrow_type(each.dataType)) for each in given.fields])
        case "array":
            return pa.list_(pa.field("element", arrow_type(given.elementType)))
        case "map":
            return pa.map_(arrow_type(given.keyType), arrow_type(given.valueType))
        case "decimal":
            return pa.decimal128(given.precision, given.scale)
    return _SCALARS[given.typeName()]


def _check_avro(given: Format) -> None:
    try:
        avro_reader(given.schema)
    except ImportError as error:
        raise ConfigError(
            f"{given.column}Format=avro needs the package fastavro: pip install 'pyclient-kafka[avro]'"
        ) from error
    except Exception as error:  # fastavro's, which share no class
        raise ConfigError(f"{given.column}Schema is no schema that fastavro reads: {error}") from error


class Malformed(Exception):
    """The value in a row of a batch cannot be decoded."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(row, reason)
        self.row = row
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Decoder:
    """Decodes a column's values to `type`; pickled to the executors."""

    format: Format
    type: pa.DataType = field(repr=False)

    def decode(self, values: pa.Array) -> pa.Array:
        """Return the decoded values; null stays null.

        A malformed value becomes null if the format is permissive, else raise `Malformed` with the first one.
        """
        arrays = self._decoded(values, 0)
        return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)

    def _decoded(self, values: pa.Array, first: int) -> list[pa.Array]:
        """Decode all at once; if that fails, decode halves, until what fails is one value."""
        try:
            return [self._at_once(values)]
        except ImportError:  # a package that this process lacks is no malformed value
            raise
        except Exception as error:  # decoders of damaged bytes raise all kinds of errors: EOFError, IndexError, ...
            count = len(values)
            if count > 1:
                half = count // 2
                return [*self._decoded(values[:half], first), *self._decoded(values[half:], first + half)]
            if isinstance(error, MemoryError):  # says nothing about the value, which must not become null
                raise
            if not self.format.permissive:
                raise Malformed(first, f"{error}" or type(error).__name__) from error
            return [pa.nulls(1, self.type)]

    def _at_once(self, values: pa.Array) -> pa.Array:
        given = _without_header(values) if self.format.confluent_header else values
        match self.format.name:
            case "json":
                return _from_json(given, self.type)
            case "msgpack":
                return _from_objects(given, _unpack, self.type, _strict(self.type))
            case "avro":
                return _from_objects(given, avro_reader(self.format.schema), self.type, None)


def _without_header(values: pa.Array) -> pa.Array:
    """Remove Confluent's header, a zero and the four bytes of a schema's id; raise `ValueError` where there is none."""
    there = pc.and_(pc.greater_equal(pc.binary_length(values), 5), pc.starts_with(values.cast(pa.binary()), b"\0"))
    if pc.all(there).as_py() is False:
        raise ValueError("it does not begin with the header of Confluent's serializers (confluentHeader=true)")
    return pc.binary_slice(values, 5)


def _from_json(values: pa.Array, wanted: pa.StructType) -> pa.Array:
    """Read all values as one text, with a newline after each.

    A value that is no JSON by itself cannot pass as a part of others, or as several values. No string of JSON contains
    a newline, so each newline is outside of strings. Values begin with { and end with }; between } and { JSON
    allows blanks only where one object ends and the next begins. So every value is one object or more, and as many
    rows as values leave one for each.
    """
    import pyarrow.json

    count = len(values)
    if not count:
        return pa.array([], wanted)
    texts = pc.ascii_trim(values.cast(pa.string()), _BLANKS)  # the cast raises unless it is UTF-8
    absent = pc.equal(texts, "null").fill_null(True)
    objects = pc.if_else(absent, "{}", texts)
    if not pc.all(pc.and_(pc.starts_with(objects, "{"), pc.ends_with(objects, "}"))).as_py():
        raise ValueError("it is no JSON object")
    lines = pc.binary_join_element_wise(objects, "", "\n")
    size = pc.sum(pc.binary_length(lines)).as_py()
    document = lines.buffers()[2].slice(0, size)
    text = document.to_pybytes()
    if b"\0" in text:  # where the reader would take the text to end
        raise ValueError("it contains a zero byte")
    if b"Inf" in text or b"-NaN" in text:  # the reader takes Inf and -NaN for numbers, too
        for value in objects.filter(pc.match_substring_regex(objects, _NO_NUMBERS)).to_pylist():
            json.loads(value)
    readable = _readable(wanted)
    table = pyarrow.json.read_json(
        pa.BufferReader(document),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=size),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=pa.schema(list(readable)), unexpected_field_behavior="ignore"
        ),
    ).combine_chunks()
    if table.num_rows != count:
        raise ValueError("it is more than one JSON value")
    columns = [column.chunk(0) for column in table.columns]
    found = pa.StructArray.from_arrays(columns, fields=list(readable), mask=absent)
    return found if readable == wanted else found.cast(wanted)


@lru_cache(32)
def _readable(wanted: pa.DataType) -> pa.DataType:
    """Return the type to read JSON as: Arrow reads dates as times only."""
    if pa.types.is_date(wanted):
        return pa.timestamp("s")
    if pa.types.is_struct(wanted):
        return pa.struct([each.with_type(_readable(each.type)) for each in wanted])
    if pa.types.is_list(wanted):
        return pa.list_(wanted.value_field.with_type(_readable(wanted.value_type)))
    return wanted


def _from_objects(values: pa.Array, read: Callable[[bytes], Any], wanted: pa.DataType, check: Check | None) -> pa.Array:
    objects = [None if value is None else read(value) for value in values.to_pylist()]
    if check is not None:
        for each in objects:
            if each is not None:
                check(each)
    return pa.array(objects, wanted)


def _unpack(value: bytes) -> Any:
    from msgpack import unpackb

    return unpackb(value, strict_map_key=False, timestamp=3)


@lru_cache(8)
def avro_reader(schema: str) -> Callable[[bytes], Any]:
    """Return a function that decodes values of an Avro schema."""
    from fastavro import parse_schema, schemaless_reader

    parsed = parse_schema(avro_schema(schema))

    def read(value: bytes) -> Any:
        stream = BytesIO(value)
        found = schemaless_reader(stream, parsed, None)
        if stream.tell() != len(value):
            raise ValueError(f"{len(value) - stream.tell()} bytes are left over after a value of this schema")
        return found

    return read


@lru_cache(32)
def _strict(wanted: pa.DataType) -> Check | None:
    """Return a check of what Arrow converts silently: 1.5 to an integer, an integer to a time, a list to a struct."""
    kinds = pa.types
    if kinds.is_integer(wanted):
        return _refuse(float, wanted)
    if kinds.is_temporal(wanted):
        return _refuse(int, wanted)
    if kinds.is_struct(wanted):
        return _struct_check(wanted)
    if kinds.is_map(wanted):
        inner = _strict(wanted.item_type)
        return None if inner is None else _values_check(inner)
    if kinds.is_list(wanted):
        inner = _strict(wanted.value_type)
        return None if inner is None else partial(_check_all, inner)
    return None


def _refuse(refused: type, wanted: pa.DataType) -> Check:
    def check(value: Any) -> None:
        if value.__class__ is refused:
            raise TypeError(f"{value!r} is of type {refused.__name__}, which is no {wanted}")

    return check


def _struct_check(wanted: pa.StructType) -> Check:
    checks = [(each.name, inner) for each in wanted if (inner := _strict(each.type)) is not None]

    def check(value: Any) -> None:
        if value.__class__ is not dict:
            raise TypeError(f"a value of type {type(value).__name__} is no struct")
        for name, inner in checks:
            given = value.get(name)
            if given is not None:
                inner(given)

    return check


def _values_check(check: Check) -> Check:
    return lambda value: _check_all(check, value.values())


def _check_all(check: Check, values: Any) -> None:
    for each in values:
        if each is not None:
            check(each)
