from __future__ import annotations

import copy
import gc
import pickle
from typing import Any

import pytest

from pyclient.records import Record

FIELDS = ("orders", 3, 42, 1_700_000_000_000, 0, 7, b"key", b"value", (("trace", b"1"), ("empty", None)))
NAMES = (
    "topic", "partition", "offset", "timestamp_ms", "timestamp_type", "leader_epoch", "key", "value", "headers",
)  # fmt: skip


def test_record_exposes_its_fields(twin: Any) -> None:
    record = twin.Record(*FIELDS)
    assert tuple(getattr(record, name) for name in NAMES) == FIELDS
    assert twin.Record(**dict(zip(NAMES, FIELDS, strict=True))) == record
    assert twin.Record(*FIELDS[:-1]).headers == ()


@pytest.mark.parametrize("name", NAMES)
def test_record_cannot_be_changed(twin: Any, name: str) -> None:
    record = twin.Record(*FIELDS)
    with pytest.raises(AttributeError):
        setattr(record, name, getattr(record, name))
    with pytest.raises(AttributeError):
        delattr(record, name)
    with pytest.raises(AttributeError):
        record.another = 1


@pytest.mark.parametrize("place", range(len(NAMES)))
def test_records_differ_when_one_field_does(twin: Any, place: int) -> None:
    record = twin.Record(*FIELDS)
    other = list(FIELDS)
    other[place] = "x" if place == 0 else () if place == 8 else 1
    assert record == twin.Record(*FIELDS) and hash(record) == hash(twin.Record(*FIELDS))
    assert record != twin.Record(*other) and record != FIELDS


def test_repr_shows_every_field(twin: Any) -> None:
    assert repr(twin.Record(*FIELDS)) == (
        "Record(topic='orders', partition=3, offset=42, timestamp_ms=1700000000000, timestamp_type=0, leader_epoch=7, "
        "key=b'key', value=b'value', headers=(('trace', b'1'), ('empty', None)))"
    )


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_both_twins_pickle_to_same_bytes(twins: tuple[Any, Any], protocol: int) -> None:
    compiled, pure = (pickle.dumps(twin.Record(*FIELDS), protocol) for twin in twins)
    assert compiled == pure
    assert pickle.loads(compiled) == Record(*FIELDS)


def test_record_copies_to_equal_one(twin: Any) -> None:
    record = twin.Record(*FIELDS)
    assert repr(copy.copy(record)) == repr(copy.deepcopy(record)) == repr(record)


def test_record_can_be_parametrised(twin: Any) -> None:
    assert "Record[str, int]" in str(twin.Record[str, int])


def test_record_matches_by_position(twin: Any) -> None:
    match twin.Record(*FIELDS):
        case twin.Record(topic, _, offset):
            assert (topic, offset) == ("orders", 42)
        case _:
            pytest.fail("no match")


def test_replacing_key_and_value_keeps_rest(twin: Any) -> None:
    record = twin.Record(*FIELDS).replace("k", {"v": 1})
    assert type(record) is twin.Record
    assert (record.key, record.value) == ("k", {"v": 1})
    assert (record.topic, record.offset, record.headers) == ("orders", 42, FIELDS[-1])
    with pytest.raises(TypeError):
        hash(record)


def test_wrong_field_types_are_refused(twin: Any) -> None:
    for place in range(6):
        wrong = list(FIELDS)
        wrong[place] = None  # type: ignore[call-overload]
        with pytest.raises(TypeError):
            twin.Record(*wrong)
    with pytest.raises(TypeError):
        twin.Record(*FIELDS[:-1], [])


def test_reference_cycle_through_record_is_collected(twin: Any) -> None:
    class Value:
        alive = 0

        def __init__(self) -> None:
            Value.alive += 1

        def __del__(self) -> None:
            Value.alive -= 1

    value: Any = Value()
    value.record = twin.Record(*FIELDS[:6], None, value)
    assert Value.alive == 1
    del value
    gc.collect()
    assert Value.alive == 0
