"""The Spark types of Avro schemas, which are those of Spark's own from_avro."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

_SIMPLE: Final = {
    "null": "void",
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
    "enum": "string",
    "fixed": "binary",
}
_LOGICAL: Final = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp_ntz",
    ("long", "local-timestamp-micros"): "timestamp_ntz",
}


def avro_schema(text: str) -> Any:
    """Return a schema as Python objects, without logical types that have no Spark type.

    Values of such types keep the number or text that encodes them. Raise `ValueError` for an invalid schema.
    """
    return _reduced(_parsed(text))


def avro_ddl(text: str) -> str:
    """Return the Spark type, in DDL, that values of a schema have; raise `ValueError` if there is none."""
    return _Types().ddl(_parsed(text))


def _parsed(text: str) -> Any:
    if text.strip() in _SIMPLE:
        return text.strip()
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"an Avro schema is JSON, and this is not: {error}") from error


def _reduced(schema: Any) -> Any:
    match schema:
        case list():
            return [_reduced(each) for each in schema]
        case {"logicalType": logical} if logical != "decimal" and (schema.get("type"), logical) not in _LOGICAL:
            return {name: _reduced(each) for name, each in schema.items() if name != "logicalType"}
        case dict():
            return {name: _reduced(each) for name, each in schema.items()}
    return schema


class _Types:
    """Converts an Avro schema; keeps the named types defined so far, and those that enclose the current one."""

    def __init__(self) -> None:
        self._named: dict[str, str] = {}
        self._open: list[str] = []

    def ddl(self, schema: Any) -> str:
        """Return the Spark type that Spark's own from_avro has for a schema."""
        match schema:
            case str() if schema in _SIMPLE and schema not in ("enum", "fixed"):
                return _SIMPLE[schema]
            case str():
                return self._referred(schema)
            case list():
                return self._union(schema)
            case {"type": "record", "fields": list(fields)}:
                return self._record(schema, fields)
            case {"type": "array", "items": items}:
                return f"array<{self.ddl(items)}>"
            case {"type": "map", "values": values}:
                return f"map<string, {self.ddl(values)}>"
            case {"type": "bytes" | "fixed", "logicalType": "decimal", "precision": int(precision)}:
                return self._remember(schema, f"decimal({precision}, {schema.get('scale', 0)})")
            case {"type": str(name), "logicalType": str(logical)} if (name, logical) in _LOGICAL:
                return _LOGICAL[name, logical]
            case {"type": str(name)} if name in _SIMPLE:
                return self._remember(schema, _SIMPLE[name])
            case {"type": inner}:
                return self.ddl(inner)
        raise ValueError(f"this is no Avro schema: {schema!r:.100}")

    def _field(self, field: Any) -> str:
        match field:
            case {"name": str(name), "type": inner}:
                return f"`{name}` {self.ddl(inner)}"
        raise ValueError(f"a field of a record needs a name and a type: {field!r:.100}")

    def _union(self, branches: list[Any]) -> str:
        given = [each for each in branches if each not in ("null", {"type": "null"})]
        if len(given) == 1:
            return self.ddl(given[0])
        if set(map(str, given)) == {"int", "long"}:
            return "bigint"
        if set(map(str, given)) == {"float", "double"}:
            return "double"
        raise ValueError(f"a union of other types than null and one more has no type in Spark: {branches!r:.100}")

    def _record(self, schema: Mapping[str, Any], fields: list[Any]) -> str:
        names = _names_of(schema)
        self._open += names
        made = f"struct<{', '.join(self._field(each) for each in fields)}>"
        del self._open[-len(names) :]
        return self._remember(schema, made)

    def _remember(self, schema: Mapping[str, Any], ddl: str) -> str:
        self._named.update(dict.fromkeys(_names_of(schema), ddl))
        return ddl

    def _referred(self, name: str) -> str:
        if name in self._named:
            return self._named[name]
        if name in self._open:
            raise ValueError(f"the type {name} contains itself: Spark has no such types")
        raise ValueError(f"unknown type {name!r}")


def _names_of(schema: Mapping[str, Any]) -> list[str]:
    name, namespace = str(schema.get("name", "")), schema.get("namespace")
    return [name, name.rpartition(".")[2], f"{namespace}.{name}"]
