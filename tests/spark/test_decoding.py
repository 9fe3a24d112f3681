"""Keys and values decoded by the batch: JSON, MessagePack and Avro to the types of Spark."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib import import_module
from io import BytesIO
from itertools import pairwise
from typing import Any

import msgpack
import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql import types

from pyclient import errors
from pyclient.spark import decoding
from pyclient.spark.decoding import Decoder, Malformed, arrow_type, decoders_of
from pyclient.spark.formats import Format, FormatName

ORDER = types.StructType([types.StructField("id", types.LongType()), types.StructField("name", types.StringType())])
AVRO_ORDER = json.dumps(
    {
        "type": "record",
        "name": "order",
        "fields": [{"name": "id", "type": ["null", "long"]}, {"name": "name", "type": ["null", "string"]}],
    }
)


def format_of(name: FormatName, *, permissive: bool = True, schema: str = AVRO_ORDER, header: bool = False) -> Format:
    return Format("value", name, schema, "", permissive, header)


def decoder(name: FormatName, spark_type: types.DataType = ORDER, **options: Any) -> Decoder:
    return Decoder(format_of(name, **options), arrow_type(spark_type))


def decoded(made: Decoder, values: list[bytes | None]) -> list[Any]:
    array = made.decode(pa.array(values, pa.binary()))
    assert array.type == made.type
    return list(array.to_pylist())


def in_avro(value: Any, schema: str = AVRO_ORDER) -> bytes:
    stream = BytesIO()
    schemaless_writer(stream, parse_schema(json.loads(schema)), value)
    return stream.getvalue()


WRITTEN = {"json": lambda value: json.dumps(value, indent=1).encode(), "msgpack": msgpack.packb, "avro": in_avro}
orders = st.fixed_dictionaries(
    {"id": st.none() | st.integers(-(2**63), 2**63 - 1), "name": st.none() | st.text(st.characters(codec="utf-8"))}
)
pieces = st.lists(
    st.sampled_from(
        [b"", b"{", b"}", b'{"id":1}', b'{"v":', b"]", b"[", b",", b'"', b"1", b"\n", b"\xff", b"null", b"\\", b"-Inf"]
    ),
    max_size=4,
).map(b"".join)


@pytest.mark.parametrize("name", WRITTEN)
@settings(max_examples=40)
@given(data=st.data())
def test_decoder_returns_the_encoded_values(name: FormatName, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | orders, max_size=5))
    write = WRITTEN[name]
    made = decoder(name, permissive=False)
    assert decoded(made, [None if each is None else write(each) for each in values]) == values


@pytest.mark.parametrize("name", WRITTEN)
@settings(max_examples=40)
@given(data=st.data())
def test_damaged_values_change_no_other_row(name: FormatName, data: st.DataObject) -> None:
    value = orders.map(WRITTEN[name])
    cut = st.tuples(value, st.integers(0, 20)).map(lambda drawn: drawn[0][: drawn[1]])
    values = data.draw(st.lists(st.none() | value | cut | pieces | st.binary(max_size=8), max_size=6))
    made = decoder(name)
    assert decoded(made, values) == [decoded(made, [each])[0] for each in values]


class Members(list[tuple[str, Any]]):
    """The members of a JSON object in their order, repeated names among them."""


def by_pythons_parser(value: bytes | None) -> dict[str, Any] | None:
    """Return the order in a JSON text, None if it is none or if the text is malformed."""
    try:
        found = json.loads((value or b"").decode(), object_pairs_hook=Members)
        json.dumps(found, ensure_ascii=False).encode()  # escapes can be halves of characters
    except ValueError:
        return None
    if not isinstance(found, Members):
        return None
    order = {name: [each for given_name, each in found if given_name == name] or [None] for name in ("id", "name")}
    [[number, *more_numbers], [name, *more_names]] = order.values()
    fits = number is None or (type(number) is int and -(2**63) <= number < 2**63)
    if more_numbers or more_names or not fits or not (name is None or isinstance(name, str)):
        return None
    return {"id": number, "name": name}


inner_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["id", "x", "}{"]), inner, max_size=2),
    max_leaves=4,
)
objects_in_json = st.builds(
    lambda members, indent: json.dumps(members, indent=indent).encode(),
    orders | st.dictionaries(st.sampled_from(["id", "name", "x", "y"]), inner_json, max_size=3),
    st.none() | st.just(1),
)
between = st.sampled_from([b"", b"", b",", b"\n", b" ", b"]", b"[", b"}", b"{", b"},{", b'"', b"null", b"\0", b"}\0{"])


@st.composite
def cut_anywhere(draw: st.DrawFn) -> list[bytes]:
    """Return a text of several JSON values, cut into pieces at any places."""
    parts = draw(st.lists(st.tuples(objects_in_json, between), max_size=4))
    text = b"".join(part for pair in parts for part in pair)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=4)))
    return [text[start:stop] for start, stop in pairwise([0, *cuts, len(text)])]


lists_of_texts = st.lists(
    st.none() | objects_in_json | pieces | st.builds(bytes.__add__, objects_in_json, between), max_size=5
)


@settings(max_examples=300)
@given(st.one_of(lists_of_texts, cut_anywhere()))
@example([b'{"id":1}], "x":[{"id":2}'])
@example([b'{"id":1}{"id":', b"2}"])
@example([b'{"id":1}{"x":{}', b'{},"id":2}'])
@example([b'{"id":1}', b'{"id":2}\0{}'])
@example([b'{"id":1}{"id":2}', b'{"id":3}\0}'])
@example([b'{"id":1}{"name":"}', b'{"}'])
@example([b'{"id":1} null', b" "])
def test_json_is_what_pythons_parser_finds_in_each_value(values: list[bytes | None]) -> None:
    expected = [by_pythons_parser(each) for each in values]
    assert decoded(decoder("json"), values) == expected
    if None not in expected:
        assert decoded(decoder("json", permissive=False), values) == expected


@pytest.mark.parametrize(
    ("name", "damaged"),
    [
        ("json", b'{"id":'),
        ("json", b'{"id":1}{"id":2}'),
        ("json", b'{"id":1},{"id":2}'),
        ("json", b'{"id":1}], "x":[{"id":2}'),
        ("json", b'{"id":1}\x00{"id":2}'),
        ("json", b'{"id":1}\n{"id":2}'),
        ("json", b'{"id":1}}'),
        ("json", b'\xef\xbb\xbf{"id":1}'),
        ("json", b'{"id":1,"id":2}'),
        ("json", b'{"name":"a\nb"}'),
        ("json", b'{"name":"\\ud800"}'),
        ("json", b'{"x":Inf}'),
        ("json", b'{"x":-NaN}'),
        ("json", b'{"x":[1,-Inf\n]}'),
        ("json", b'{"x": [Inf, 1]}'),
        ("json", b'{"id":1} // comment {}'),
        ("json", b'{"id":1.5}'),
        ("json", b'{"id":"1"}'),
        ("json", b'{"name":"\xe9"}'),
        ("json", b"[]"),
        ("json", b""),
        ("msgpack", b"\x81"),
        ("msgpack", msgpack.packb({"id": 1.5})),
        ("msgpack", msgpack.packb({"id": 1}) + b"\x00"),
        ("msgpack", msgpack.packb([])),
        ("avro", b"\x02"),
        ("avro", in_avro({"id": 1, "name": "a"}) + b"\x00"),
    ],
)
def test_the_first_malformed_value_is_named_or_null(name: FormatName, damaged: bytes) -> None:
    good = WRITTEN[name]({"id": 1, "name": "a"})
    values = [good, None, damaged, good, damaged]
    with pytest.raises(Malformed) as caught:
        decoded(decoder(name, permissive=False), values)
    assert caught.value.row == 2
    assert caught.value.reason
    assert decoded(decoder(name), values) == [{"id": 1, "name": "a"}, None, None, {"id": 1, "name": "a"}, None]


@pytest.mark.parametrize("permissive", [False, True])
def test_missing_package_raises_its_own_error(permissive: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made = decoder("avro", permissive=permissive)
    monkeypatch.setattr(decoding, "avro_reader", lambda _schema: import_module("no_such_package"))
    with pytest.raises(ModuleNotFoundError):
        decoded(made, [in_avro({"id": 1, "name": "a"})])


def test_lack_of_memory_is_raised_instead_of_a_null(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(_value: bytes) -> Any:
        raise MemoryError

    made = decoder("avro", permissive=True)
    monkeypatch.setattr(decoding, "avro_reader", lambda _schema: read)
    with pytest.raises(MemoryError):
        decoded(made, [in_avro({"id": 1, "name": "a"}), None])


def test_types_of_json() -> None:
    every = types.StructType(
        [
            types.StructField("day", types.DateType()),
            types.StructField("days", types.ArrayType(types.DateType())),
            types.StructField("time", types.TimestampType()),
            types.StructField("price", types.DecimalType(10, 2)),
            types.StructField("inner", types.StructType([types.StructField("ok", types.BooleanType())])),
        ]
    )
    text = """{"day": "2026-01-02", "days": ["2026-01-03", null], "time": "2026-01-02T03:04:05.5+02:00", "price": 1.5,
               "inner": {"ok": true, "other": [{}]}, "more": {"a": 1}}"""
    assert decoded(decoder("json", every), [text.encode()]) == [
        {
            "day": date(2026, 1, 2),
            "days": [date(2026, 1, 3), None],
            "time": datetime(2026, 1, 2, 1, 4, 5, 500_000, UTC),
            "price": Decimal("1.50"),
            "inner": {"ok": True},
        }
    ]


def test_types_of_msgpack() -> None:
    every = types.StructType(
        [
            types.StructField("raw", types.BinaryType()),
            types.StructField("time", types.TimestampType()),
            types.StructField("sizes", types.MapType(types.StringType(), types.IntegerType())),
        ]
    )
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    packed = msgpack.packb({"raw": b"\xff", "time": moment, "sizes": {"a": 1}, "more": 1}, datetime=True)
    assert decoded(decoder("msgpack", every), [packed]) == [{"raw": b"\xff", "time": moment, "sizes": [("a", 1)]}]
    assert decoded(decoder("msgpack", every), [msgpack.packb({"time": 5})]) == [None]


def test_types_of_avro() -> None:
    schema = json.dumps(
        {
            "type": "record",
            "name": "r",
            "fields": [
                {"name": "day", "type": {"type": "int", "logicalType": "date"}},
                {"name": "time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
                {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
                {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
                {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            ],
        }
    )
    wanted = types.StructType(
        [
            types.StructField("day", types.DateType()),
            types.StructField("time", types.TimestampType()),
            types.StructField("clock", types.IntegerType()),
            types.StructField("id", types.StringType()),
            types.StructField("price", types.DecimalType(9, 2)),
        ]
    )
    value = {"day": date(2026, 1, 2), "time": datetime(2026, 1, 2, tzinfo=UTC), "id": "a-b", "price": Decimal("1.50")}
    plain = schema.replace(', "logicalType": "uuid"', "").replace(', "logicalType": "time-millis"', "")
    data = in_avro({**value, "clock": 7}, plain)
    assert decoded(decoder("avro", wanted, schema=schema), [data]) == [{**value, "clock": 7}]


@pytest.mark.parametrize("name", WRITTEN)
def test_the_header_of_confluents_serializers_is_left_out(name: FormatName) -> None:
    good = WRITTEN[name]({"id": 1, "name": "a"})
    values = [b"\x00\x00\x00\x00\x07" + good, None, good, b"\x00\x00"]
    assert decoded(decoder(name, header=True), values) == [{"id": 1, "name": "a"}, None, None, None]


@pytest.mark.parametrize(
    ("name", "spark_type", "said"),
    [
        ("json", types.MapType(types.StringType(), types.LongType()), "value.f is map<string,bigint>, to which json"),
        ("msgpack", types.DayTimeIntervalType(), "value.f is interval day to second, to which msgpack"),
        ("json", types.ArrayType(types.LongType(), False), r"value.f\[\] is NOT NULL"),
    ],
)
def test_types_that_cannot_be_decoded_to_are_refused(name: FormatName, spark_type: Any, said: str) -> None:
    schema = types.StructType([types.StructField("value", types.StructType([types.StructField("f", spark_type)]))])
    with pytest.raises(errors.ConfigError, match=said):
        decoders_of([format_of(name)], schema)


def test_a_schema_that_fastavro_refuses_is_an_error() -> None:
    schema = '{"type": "record", "name": "r", "fields": [{"name": "e", "type": {"type": "enum", "name": "e"}}]}'
    wanted = types.StructType([types.StructField("value", ORDER)])
    with pytest.raises(errors.ConfigError, match="valueSchema is no schema that fastavro reads"):
        decoders_of([format_of("avro", schema=schema)], wanted)
