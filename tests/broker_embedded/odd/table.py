"""Scenarios, among them generated ones: empty requests, and null in every nullable field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from pyclient.broker_embedded.served_apis import SERVED
from pyclient.protocol.kinds import ArrayOf, Kind, Nested, Text
from pyclient.protocol.parts import fields_of
from pyclient.protocol.versions import API_KEYS, request_class
from tests.broker_embedded.odd.wire import UNKNOWN_TAG

ABSENT: Final = "nobody"
"""A name of no topic, group, user or option."""

NOT_RECORDED: Final = frozenset({"AddRaftVoter", "RemoveRaftVoter"})
"""APIs whose answers are compared by Kafka's own tool (tests/kafka/test_quorum_tools_on_ours.py), and not recorded."""

PATIENCE: Final = 5000  # milliseconds: Kafka does nothing in none


class Scenario(NamedTuple):
    """One request: an API, its version and the fields, parts as dicts."""

    label: str
    api: str
    version: int
    fields: Mapping[str, Any]


def ask(api: str, label: str, versions: tuple[int, ...] = (), **fields: Any) -> Iterator[Scenario]:
    """Return a scenario in the oldest and newest served version, or in the given versions."""
    served = SERVED[api]
    for version in versions or sorted({served.first, served.last}):
        yield Scenario(f"{api} v{version}: {label}", api, version, fields)


def derived(*apis: str) -> Iterator[Scenario]:
    """Yield for every API: empty fields, one item of everything with null in each place, and unknown tags."""
    for api in apis:
        cls = request_class(API_KEYS[api])
        served = SERVED[api]
        for version in sorted({served.first, served.last}):
            head = f"{api} v{version}: "
            if api != "Produce":  # with acks=0 it is not answered
                yield Scenario(head + "nothing", api, version, {})
            yield Scenario(head + "one of everything", api, version, _one(cls, version))
            for path in _places(cls, version):
                yield Scenario(f"{head}null {'.'.join(path)}", api, version, _with_null(_one(cls, version), path))
            if cls.flexible is not None and version >= cls.flexible:
                yield Scenario(head + "unknown tags", api, version, _tagged(_one(cls, version)))


def _one(cls: Any, version: int) -> dict[str, Any]:
    return {
        each.name: PATIENCE if each.name == "timeout_ms" else _value(each.kind, each.default, version)
        for each in fields_of(cls)
        if each.present_in(version)
    }


def _value(kind: Kind, default: Any, version: int) -> Any:
    if isinstance(kind, ArrayOf):
        return [_value(kind.item, kind.item.zero, version)]
    if isinstance(kind, Nested):
        return _one(kind.cls, version)
    return ABSENT if isinstance(kind, Text) else kind.zero if default is None else default


def _places(cls: Any, version: int) -> Iterator[tuple[str, ...]]:
    for each in fields_of(cls):
        if not each.present_in(version) or not (hasattr(each.kind, "item") or not hasattr(each.kind, "size")):
            continue
        kind = each.kind.item if isinstance(each.kind, ArrayOf) else each.kind
        if not isinstance(each.kind, Nested) or each.nullable_in(version):
            yield (each.name,)
        if isinstance(kind, Nested):
            for inner in _places(kind.cls, version):
                yield (each.name, *inner)


def _with_null(fields: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    inside: Any = fields
    for name in path[:-1]:
        inside = inside[name][0] if isinstance(inside[name], list) else inside[name]
    inside[path[-1]] = None
    return fields


def _tagged(value: Any) -> Any:
    """Return the same with an unknown tag in every part."""
    if isinstance(value, dict):
        return {UNKNOWN_TAG: b"", **{name: _tagged(item) for name, item in value.items()}}
    return [_tagged(item) for item in value] if isinstance(value, list) else value
