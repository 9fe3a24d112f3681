"""Compare every declaration with Kafka's definition of the message: field by field, version by version."""

from __future__ import annotations

import keyword
from typing import Any

import pytest
from kafka_definitions import definitions_in_jars
from protocol_samples import all_messages

from pyclient.protocol.fields import CoordinatorKey, Message, Request, Response
from pyclient.protocol.kinds import BLANK, ZERO_UUID, ArrayOf, Kind, Nested
from pyclient.protocol.parts import Field, fields_of
from tests.kafka.needs import skip_without_kafka

pytestmark = pytest.mark.timeout(600)  # the first run may have to download Kafka's jars

FOREVER = 10**6
Range = tuple[int, int]
Definitions = dict[str, dict[str, Any]]

WIRE_TYPES = {
    "bool": ("Bool", False),
    "bytes": ("Bytes", b""),
    "float64": ("Float64", 0.0),
    "int8": ("Int8", 0),
    "int16": ("Int16", 0),
    "int32": ("Int32", 0),
    "int64": ("Int64", 0),
    "records": ("Records", b""),
    "string": ("String", ""),
    "uint16": ("UInt16", 0),
    "uint32": ("UInt32", 0),
    "uuid": ("Uuid", ZERO_UUID),
}


@pytest.fixture(scope="module")
def definitions() -> Definitions:
    skip_without_kafka()
    return definitions_in_jars()


def test_declared_messages_are_exactly_those_of_kafka(definitions: Definitions) -> None:
    assert {cls.__name__ for cls in all_messages()} == set(definitions)


def test_keys_and_versions_match_kafkas_definitions(definitions: Definitions) -> None:
    for cls in all_messages():
        definition = definitions[cls.__name__]
        flexible = parse_range(definition["flexibleVersions"])
        assert cls.versions == parse_range(definition["validVersions"]), cls
        assert cls.flexible == (None if flexible is None else flexible[0]), cls
        assert cls.api_key == definition.get("apiKey", -1), cls
        assert issubclass(cls, Request) == (definition["type"] == "request"), cls
        assert issubclass(cls, Response) == (definition["type"] == "response"), cls
        assert issubclass(cls, CoordinatorKey) == (definition["type"] == "coordinator-key"), cls


def test_fields_match_kafkas_definitions(definitions: Definitions) -> None:
    differences = {}
    for cls in all_messages():
        expected = Definition(definitions[cls.__name__]).fields()
        declared = declared_fields(cls, cls.versions)
        if declared != expected:
            differences[cls.__name__] = [pair for pair in zip(declared, expected, strict=False) if pair[0] != pair[1]]
    assert not differences


def test_field_is_required_where_omitting_it_could_be_a_mistake(definitions: Definitions) -> None:
    for cls in all_messages():
        for path, each, within in every_field(cls, cls.versions, cls.__name__):
            always = versions_of_field(each, within) == within
            has_default = Definition(definitions[cls.__name__]).at(path).get("default") is not None
            expected = always and each.tag is None and not each.ignorable and not has_default
            assert each.required == expected, path


def test_part_names_match_kafkas_definitions(definitions: Definitions) -> None:
    for cls in all_messages():
        definition = Definition(definitions[cls.__name__])
        for path, each, _ in every_field(cls, cls.versions, cls.__name__):
            kind = each.kind.item if isinstance(each.kind, ArrayOf) else each.kind
            if isinstance(kind, Nested):
                struct = definition.at(path)["type"].removeprefix("[]")
                assert kind.name in (struct, f"{cls.__name__}{struct}"), path


# --- Kafka's side -----------------------------------------------------------------------------------------------


class Definition:
    """A definition, converted to the form that `declared_fields` returns."""

    def __init__(self, definition: dict[str, Any]) -> None:
        self.definition = definition
        self.common = {each["name"]: each["fields"] for each in definition.get("commonStructs", [])}

    def fields(self) -> list[Any]:
        valid = parse_range(self.definition["validVersions"])
        assert valid is not None
        return self._fields(self.definition["fields"], valid)

    def _fields(self, fields: list[dict[str, Any]], within: Range) -> list[Any]:
        return [self._field(each, versions) for each in fields if (versions := field_range(each, within))]

    def _field(self, each: dict[str, Any], versions: Range) -> dict[str, Any]:
        nullable = parse_range(each.get("nullableVersions", "none"))
        return {
            "name": snake_case(each["name"]),
            "type": self._type(each, versions),
            "versions": versions,
            "nullable": nullable and intersection(nullable, versions),
            "default": default_of(each),
            "tag": each.get("tag"),
            "ignorable": each.get("ignorable", False),
            "flexible": each.get("flexibleVersions") != "none",
        }

    def _type(self, each: dict[str, Any], versions: Range) -> Any:
        name = each["type"].removeprefix("[]")
        item = WIRE_TYPES[name][0] if name in WIRE_TYPES else self._fields(self.struct(each), versions)
        return ["array of", item] if each["type"].startswith("[]") else item

    def struct(self, each: dict[str, Any]) -> list[dict[str, Any]]:
        fields: list[dict[str, Any]] = each.get("fields") or self.common[each["type"].removeprefix("[]")]
        return fields

    def at(self, path: str) -> dict[str, Any]:
        """Return the field at a path like `FetchRequest.topics.partitions`."""
        each: dict[str, Any] = {}
        fields = self.definition["fields"]
        for name in path.split(".")[1:]:
            [each] = [one for one in fields if snake_case(one["name"]) == name]
            fields = self.struct(each) if each["type"].removeprefix("[]") not in WIRE_TYPES else []
        return each


def default_of(each: dict[str, Any]) -> Any:
    name, given = each["type"], each.get("default")
    if given == "null":
        return None
    if name.startswith("[]"):
        assert given is None
        return []
    if name not in WIRE_TYPES:
        assert given is None
        return "blank"
    if given is None:
        return WIRE_TYPES[name][1]
    if name == "bool":
        return {"true": True, "false": False}[str(given).lower()]
    return given if name == "string" else int(str(given), 0)


def field_range(each: dict[str, Any], within: Range) -> Range | None:
    versions = parse_range(each.get("versions") or each["taggedVersions"])
    assert versions is not None
    tagged = parse_range(each.get("taggedVersions", "none"))
    assert tagged is None or intersection(tagged, within) == intersection(versions, within)
    return intersection(versions, within)


def parse_range(text: str) -> Range | None:
    if text == "none":
        return None
    if text.endswith("+"):
        return int(text[:-1]), FOREVER
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def intersection(one: Range, other: Range) -> Range | None:
    both = max(one[0], other[0]), min(one[1], other[1])
    return both if both[0] <= both[1] else None


def snake_case(name: str) -> str:
    """Convert as Kafka's generator does: KRaftVersion -> kraft_version, Enable2Pc -> enable2_pc."""
    snake, after_capital = "", True
    for letter in name:
        snake += letter.lower() if after_capital or not letter.isupper() else f"_{letter.lower()}"
        after_capital = letter.isupper()
    return snake + "_" * keyword.iskeyword(snake)


# --- our side ---------------------------------------------------------------------------------------------------


def declared_fields(cls: type, within: Range) -> list[Any]:
    return [_declared(each, versions) for each in fields_of(cls) if (versions := versions_of_field(each, within))]


def _declared(each: Field, versions: Range) -> dict[str, Any]:
    nullable = None
    if each.null_since is not None:
        nullable = intersection((each.null_since, FOREVER if each.null_until is None else each.null_until), versions)
    default = each.default
    if default is BLANK:
        default = "blank"
    elif isinstance(each.kind, ArrayOf) and default is not None:
        default = []
    return {
        "name": each.name,
        "type": _declared_type(each.kind, versions),
        "versions": versions,
        "nullable": nullable,
        "default": default,
        "tag": each.tag,
        "ignorable": each.ignorable,
        "flexible": each.flexible,
    }


def _declared_type(kind: Kind, versions: Range) -> Any:
    if isinstance(kind, ArrayOf):
        return ["array of", _declared_type(kind.item, versions)]
    return declared_fields(kind.cls, versions) if isinstance(kind, Nested) else kind.name


def versions_of_field(each: Field, within: Range) -> Range | None:
    return intersection((each.since, FOREVER if each.until is None else each.until), within)


def every_field(cls: type, within: Range, path: str) -> list[tuple[str, Field, Range]]:
    found = []
    for each in fields_of(cls):
        found.append((f"{path}.{each.name}", each, within))
        inner = each.kind.item if isinstance(each.kind, ArrayOf) else each.kind
        versions = versions_of_field(each, within)
        if isinstance(inner, Nested) and versions:
            found += every_field(inner.cls, versions, f"{path}.{each.name}")
    return found


def test_comparison_detects_a_difference(definitions: Definitions) -> None:
    definition = definitions["FetchRequest"]
    cls: type[Message] = next(cls for cls in all_messages() if cls.__name__ == "FetchRequest")
    changed = definition | {"fields": [{**definition["fields"][0], "tag": 5}, *definition["fields"][1:]]}
    assert Definition(definition).fields() == declared_fields(cls, cls.versions)
    assert Definition(changed).fields() != declared_fields(cls, cls.versions)
