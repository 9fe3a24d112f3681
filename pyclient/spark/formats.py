"""The encodings and types of keys and values: `keyFormat`, `keySchema`, `valueFormat`, `valueSchema`.

A schema is text in Spark's DDL (`id long, name string`), which Spark itself parses; that of Avro is Avro's own JSON,
which becomes DDL here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pyclient.errors import ConfigError
from pyclient.spark.avro import avro_ddl

FormatName = Literal["json", "msgpack", "avro"]
FORMATS: Final[tuple[FormatName, ...]] = ("json", "msgpack", "avro")
DECODABLE: Final = ("key", "value")
"""The columns that can be decoded."""

_SCALARS: Final = frozenset({
    "boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary", "date", "timestamp",
    "timestamp_ntz", "decimal",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Format:
    """The encoding of the bytes of a column. `ddl` is the column's type in Spark's DDL, `schema` the text given."""

    column: str
    name: FormatName
    schema: str
    ddl: str
    permissive: bool
    confluent_header: bool


def with_formats(columns: Mapping[str, str], formats: Iterable[Format]) -> dict[str, str]:
    """Return the columns with their Spark types; a column with a format has its decoded type."""
    return {**columns, **{each.column: each.ddl for each in formats if each.column in columns}}


def ddl_of(name: FormatName, schema: str) -> str:
    """Return the Spark type, in DDL, of what is decoded; raise `ValueError` if an Avro schema has none."""
    return avro_ddl(schema) if name == "avro" else f"struct<{schema}>"


def check_types(given: Format, spark_type: Any) -> None:
    """Raise `ConfigError` if the type that Spark has for a column cannot be decoded to."""
    problems = list(_problems(given, given.column, spark_type))
    if problems:
        raise ConfigError(*problems)


def _problems(given: Format, path: str, spark_type: Any) -> Iterator[str]:
    kind = spark_type.typeName()
    match kind:
        case "struct":
            inner = [(f"{path}.{field.name}", field.dataType, field.nullable) for field in spark_type.fields]
        case "array":
            inner = [(f"{path}[]", spark_type.elementType, spark_type.containsNull)]
        case "map" if given.name != "json":
            yield from _problems(given, f"{path}'s key", spark_type.keyType)
            inner = [(f"{path}[]", spark_type.valueType, spark_type.valueContainsNull)]
        case _:
            inner = []
            if kind not in _SCALARS:
                yield (
                    f"{given.column}Schema: {path} is {spark_type.simpleString()}, to which {given.name} cannot be "
                    "decoded; leave the bytes, and use Spark's own functions such as from_json"
                )
    for name, each, nullable in inner:
        if not nullable:
            yield f"{given.column}Schema: {name} is NOT NULL, which records of Kafka cannot promise; leave NOT NULL out"
        yield from _problems(given, name, each)
