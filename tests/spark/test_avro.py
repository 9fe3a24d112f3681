"""Avro schemas as types of Spark."""

from __future__ import annotations

import json

import pytest

from pyclient.spark.avro import avro_ddl, avro_schema

NODE = {"type": "record", "name": "Node", "namespace": "n", "fields": [{"name": "next", "type": ["null", "n.Node"]}]}


def record(*types: object) -> str:
    return json.dumps(
        {"type": "record", "name": "r", "fields": [{"name": f"f{n}", "type": each} for n, each in enumerate(types)]}
    )


@pytest.mark.parametrize(
    ("schema", "ddl"),
    [
        ("long", "bigint"),
        ('{"type": "string"}', "string"),
        (record("int", ["null", "bytes"]), "struct<`f0` int, `f1` binary>"),
        (record({"type": "array", "items": "float"}), "struct<`f0` array<float>>"),
        (record({"type": "map", "values": ["double", "null"]}), "struct<`f0` map<string, double>>"),
        (record({"type": "enum", "name": "e", "symbols": ["A"]}, "e"), "struct<`f0` string, `f1` string>"),
        (record({"type": "fixed", "name": "f", "size": 2}, {"type": "f"}), "struct<`f0` binary, `f1` binary>"),
        (record({"type": "int", "logicalType": "date"}), "struct<`f0` date>"),
        (record({"type": "long", "logicalType": "timestamp-millis"}), "struct<`f0` timestamp>"),
        (record({"type": "long", "logicalType": "local-timestamp-micros"}), "struct<`f0` timestamp_ntz>"),
        (record({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}), "struct<`f0` decimal(9, 2)>"),
        (record({"type": "string", "logicalType": "uuid"}), "struct<`f0` string>"),
        (record(["int", "long"], ["float", "double"]), "struct<`f0` bigint, `f1` double>"),
    ],
)
def test_a_schema_has_a_type(schema: str, ddl: str) -> None:
    assert avro_ddl(schema) == ddl


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("id long", "an Avro schema is JSON"),
        (record(["int", "string"]), "a union of other types"),
        (json.dumps(NODE), "the type n.Node contains itself"),
        (record("nothing"), "unknown type 'nothing'"),
        ('{"type": "record", "name": "r", "fields": [{"name": "a"}]}', "a field of a record needs a name and a type"),
        ("7", "this is no Avro schema: 7"),
    ],
)
def test_a_schema_without_a_type_is_refused(schema: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        avro_ddl(schema)


def test_logical_types_without_a_type_in_spark_are_left_out() -> None:
    times = {"type": "int", "logicalType": "time-millis"}
    dates = {"type": "int", "logicalType": "date"}
    assert avro_schema(record(times, dates)) == json.loads(record({"type": "int"}, dates))
