from __future__ import annotations

import random
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.errors import CorruptRecord
from pyclient.records import (
    HEADER_SIZE,
    Compression,
    ControlType,
    build_batch,
    control_key,
    control_type,
    read_header,
    stamp_timestamp,
)
from pyclient.types import TIMESTAMP_LOG_APPEND

ROWS = [
    (1_700_000_000_000, b"key", b"value", (("trace", b"1"), ("é", None))),
    (1_700_000_000_007, None, b"", ()),
    (1_699_999_999_999, b"", None, (("", b""),)),
    (1_700_000_000_300, b"k" * 70, b"v" * 300, ()),
]


def outcome(twin: Any, batch: Any, header: Any = None, **options: Any) -> Any:
    """Return the rows, or the text of the error."""
    header = read_header(batch) if header is None else header
    try:
        records = twin.module.decode_batch(batch, 0, header, "orders", 3, **options)
    except CorruptRecord as error:
        assert str(error).startswith("orders-3: batch at offset ")
        return str(error)
    return [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in records]


def with_payload(payload: bytes, count: int, last: int | None = None, **fields: int) -> bytes:
    """Return a batch with arbitrary bytes as its records."""
    values = {"base_offset": 42, "attributes": 0, "base_timestamp": 1000, **fields}
    return struct.pack(
        ">qiibIhiqqqhii", values["base_offset"], len(payload) + 49, -1, 2, 0, values["attributes"],
        count - 1 if last is None else last, values["base_timestamp"], 2000, -1, -1, -1, count,
    ) + payload  # fmt: skip


def record(body: bytes, size: int | None = None) -> bytes:
    length = len(body) if size is None else size
    assert -64 <= length < 64
    return bytes([(length << 1 ^ length >> 7) & 0x7F]) + body


GOOD = record(b"\0" + b"\0" + b"\0" + b"\x02k" + b"\x02v" + b"\0")


def test_handmade_record_is_valid(twin: Any) -> None:
    assert outcome(twin, with_payload(GOOD, 1)) == [(42, 1000, b"k", b"v", ())]


VARINT_33 = b"\x80\x80\x80\x80\x10"
PROBLEMS = {
    "ends early": [
        record(b""),
        record(b"\0"),
        record(b"\0\0"),
        record(b"\0\0\0"),
        record(b"\0\0\0\x01"),
        record(b"\0\0\0\x01\x01"),
        record(b"\0\0\0\x10k\x02v\0"),
        record(b"\0\0\0\x02k\x10v\0"),
        record(b"\0\0\0\x01\x01\x02\x02a"),
        record(b"\0\0\0\x01\x01\x02\x0eab"),
        record(b"\0\0\0\x01\x01\x02\x02a\x04b"),
        record(b"\0\x80"),
        GOOD[:-1],
        b"\xfe\xff\xff\xff\x0f" + GOOD,
        b"\x80" * 2 + GOOD[:1] + b"\x01" * 6,
    ],
    "has a varint with too many bits": [
        VARINT_33 + bytes(7),
        b"\x80" * 5 + bytes(7),
        record(b"\0" + b"\xff" * 9 + b"\x02" + bytes(5)),
        record(b"\0\0" + VARINT_33 + bytes(7)),
        record(b"\0\0\0" + VARINT_33 + bytes(7)),
        record(b"\0\0\0\x01" + VARINT_33 + bytes(7)),
        record(b"\0\0\0\x01\x01" + VARINT_33 + bytes(7)),
        record(b"\0\0\0\x01\x01\x02" + VARINT_33 + bytes(7)),
    ],
    "has a negative length": [
        record(bytes(9), -1),
        record(bytes(9), -2),
        record(b"\0\0\0\x03\x01\0\0"),
        record(b"\0\0\0\x01\x03\0\0"),
        record(b"\0\0\0\x01\x01\x02\x01\0"),
        record(b"\0\0\0\x01\x01\x02\x02a\x03\0"),
        record(b"\0\0\0\xff\xff\xff\xff\x0f\x01\0\0"),
    ],
    "has an offset delta out of order or beyond the batch's last": [
        record(b"\0\0\x01\x01\x01\0"),
        record(b"\0\0\x02\x01\x01\0"),
        record(b"\0\0\xfe\xff\xff\xff\x0f\x01\x01\0"),
    ],
    "has an impossible number of headers": [
        record(b"\0\0\0\x01\x01\x01"),
        record(b"\0\0\0\x01\x01\x02\0"),
        record(b"\0\0\0\x01\x01\x7e\0\0\0"),
        record(b"\0\0\0\x01\x01\xfe\xff\xff\xff\x0f"),
        record(b"\0\0\0\x01\x01\xff\xff\xff\xff\x0f\0\0\0"),
    ],
    "has a header name that is not UTF-8": [
        record(b"\0\0\0\x01\x01\x02\x02\xff\x01"),
        record(b"\0\0\0\x01\x01\x02\x06\xed\xa0\x80\x01"),
        record(b"\0\0\0\x01\x01\x04\x02a\x01\x04\xc3(\x01"),
    ],
    "is longer than its content": [
        record(b"\0\0\0\x01\x01\0\0"),
        record(b"\0\0\0\x02k\x02v\0" + b"\x0c\0\0\0\x01\x01\0"),
        record(b"\0\0\0\x01\x01\x02\x02a\x02b\0"),
    ],
}


@pytest.mark.parametrize(
    ("problem", "payload"), [(problem, payload) for problem, payloads in PROBLEMS.items() for payload in payloads]
)
def test_invalid_record_is_named_with_its_position(twin: Any, problem: str, payload: bytes) -> None:
    batch = with_payload(payload, 1)
    words = f"record 0 {problem}" if len(payload) >= 7 else f"1 records cannot be in {len(payload)} bytes"
    assert outcome(twin, batch) == columns_outcome(twin, batch) == f"orders-3: batch at offset 42: {words}"


def test_second_record_is_checked_like_the_first(twin: Any) -> None:
    going_back = GOOD + GOOD
    assert outcome(twin, with_payload(going_back, 2)) == (
        "orders-3: batch at offset 42: record 1 has an offset delta out of order or beyond the batch's last"
    )
    gap = GOOD + record(b"\0\0\x0a\x01\x01\0")
    assert [row[0] for row in outcome(twin, with_payload(gap, 2, 5))] == [42, 47]
    assert "record 1 has an offset delta" in outcome(twin, with_payload(gap, 2, 4))


@pytest.mark.parametrize(
    ("count", "last", "message"),
    [
        (-1, 0, "-1 records cannot be in 9 bytes"),
        (-(2**31), 0, "-2147483648 records cannot be in 9 bytes"),
        (2, 1, "2 records cannot be in 9 bytes"),
        (2**31 - 1, 2**31 - 2, "2147483647 records cannot be in 9 bytes"),
        (1, -1, "1 records cannot have -1 as their last offset delta"),
        (1, -(2**31), "1 records cannot have -2147483648 as their last offset delta"),
        (0, 0, "9 bytes are left after its last record"),
    ],
)
def test_record_counts_that_contradict_bytes_are_corrupt(twin: Any, count: int, last: int, message: str) -> None:
    assert outcome(twin, with_payload(GOOD, count, last)) == f"orders-3: batch at offset 42: {message}"


def test_bytes_after_last_record_are_corrupt(twin: Any) -> None:
    batch = with_payload(GOOD + b"\0" * 3, 1)
    assert outcome(twin, batch) == "orders-3: batch at offset 42: 3 bytes are left after its last record"


@pytest.mark.parametrize("base_offset", [-1, -(2**63), 2**63 - 1])
def test_impossible_offsets_are_corrupt(twin: Any, base_offset: int) -> None:
    batch = with_payload(GOOD, 1, 5, base_offset=base_offset)
    assert outcome(twin, batch) == f"orders-3: batch at offset {base_offset}: its offsets are out of range"


@pytest.mark.parametrize(
    ("base", "delta", "expected"), [(2**63 - 1, 5, -(2**63) + 4), (-(2**63), -1, 2**63 - 1), (-1, 2**62, 2**62 - 1)]
)
def test_timestamps_wrap_at_64_bits(twins: tuple[Any, Any], base: int, delta: int, expected: int) -> None:
    for twin in twins:
        payload = record(b"\0" + twin.module.encode_varint(delta) + b"\0\x01\x01\0")
        batch = with_payload(payload, 1, base_timestamp=base)
        assert outcome(twin, batch) == [(42, expected, None, None, ())]
        assert memoryview(twin.columns(batch).timestamps).cast("B").cast("q").tolist() == [expected]


def test_empty_batch_has_no_records(twin: Any) -> None:
    for attributes in (0, Compression.LZ4):
        batch = with_payload(b"", 0, 5, attributes=attributes)
        assert outcome(twin, batch) == []
        assert twin.columns(batch).count == 0


def test_every_prefix_of_batch_is_refused(twin: Any, codec: Compression) -> None:
    batch = twin.build(ROWS, compression=codec)
    header = read_header(batch)
    for end in range(len(batch)):
        with pytest.raises(CorruptRecord, match=r"orders-3: batch at offset 0 ends early"):
            twin.module.decode_batch(batch[:end], 0, header, "orders", 3)
        with pytest.raises(CorruptRecord):
            twin.ColumnsBuilder().add(batch[:end], 0, header, "orders", 3)


def test_every_prefix_of_records_is_refused(twin: Any, codec: Compression) -> None:
    """The length matches the prefix, so that a record or the compressed data ends early."""
    batch = twin.build(ROWS, compression=codec)
    for end in range(HEADER_SIZE, len(batch)):
        cut = batch[:8] + struct.pack(">i", end - 12) + batch[12:end]
        with pytest.raises(CorruptRecord, match="orders-3: batch at offset 0: "):
            twin.module.decode_batch(cut, 0, read_header(cut), "orders", 3)


def test_flipped_bit_in_records_decodes_or_raises_same_typed_error(twins: tuple[Any, Any]) -> None:
    compiled, pure = twins
    batch = bytearray(pure.build(ROWS))
    for bit in range(8 * HEADER_SIZE, 8 * len(batch)):
        batch[bit // 8] ^= 1 << bit % 8
        assert outcome(compiled, batch) == outcome(pure, batch)
        assert columns_outcome(compiled, batch) == columns_outcome(pure, batch)
        batch[bit // 8] ^= 1 << bit % 8


def columns_outcome(twin: Any, batch: Any) -> Any:
    try:
        return repr_columns(twin.columns(batch))
    except CorruptRecord as error:
        return str(error)


def repr_columns(columns: Any) -> Any:
    return [
        columns.count,
        *(bytes(getattr(columns, name)) for name in ("topic_ids", "partitions", "offsets", "timestamps")),
        *(
            (bytes(column.offsets), bytes(column.data), column.validity and bytes(column.validity), column.length)
            for column in (columns.keys, columns.values, columns.headers.names, columns.headers.values)
        ),
        bytes(columns.headers.offsets),
    ]


@given(seed=st.integers(0, 2**32), count=st.integers(0, 6), last=st.integers(-2, 8))
def test_mangled_records_raise_same_error_in_both_twins(
    twins: tuple[Any, Any], seed: int, count: int, last: int
) -> None:
    compiled, pure = twins
    rng = random.Random(seed)
    payload = bytearray(pure.build(ROWS)[HEADER_SIZE:])
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(payload))
        change = rng.randrange(4)
        if change == 0:
            payload[place] = rng.choice([0, 1, 2, 3, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        elif change == 1:
            payload[place : place + rng.randint(1, 5)] = b""
        elif change == 2:
            payload[place:place] = rng.randbytes(rng.randint(1, 6))
        else:
            payload[place:] = payload[: rng.randrange(len(payload))]
        payload = payload or bytearray(1)
    batch = with_payload(bytes(payload), count, last)
    assert outcome(compiled, batch) == outcome(pure, batch)
    assert columns_outcome(compiled, batch) == columns_outcome(pure, batch)


@given(payload=st.binary(max_size=60), count=st.integers(0, 8))
def test_random_records_raise_same_error_in_both_twins(twins: tuple[Any, Any], payload: bytes, count: int) -> None:
    batch = with_payload(payload, count, 10)
    assert outcome(twins[0], batch) == outcome(twins[1], batch)


def test_offset_range_selects_records(twin: Any) -> None:
    batch = twin.build([(number, None, b"%d" % number, ()) for number in range(10)], base_offset=100)
    for start in range(98, 112):
        for stop in (start, start + 3, 2**63 - 1):
            expected = [offset for offset in range(100, 110) if start <= offset < stop]
            records = twin.decode(batch, from_offset=start, to_offset=stop)
            assert [record.offset for record in records] == expected
            assert [record.value for record in records] == [b"%d" % (offset - 100) for offset in expected]
            columns = twin.columns(batch, from_offset=start, to_offset=stop)
            assert memoryview(columns.offsets).cast("B").cast("q").tolist() == expected


def test_log_append_time_is_timestamp_of_every_record(twin: Any) -> None:
    batch = bytearray(twin.build(ROWS))
    stamp_timestamp(batch, 0, read_header(batch), TIMESTAMP_LOG_APPEND, 5555)
    assert {(r.timestamp_ms, r.timestamp_type) for r in twin.decode(batch)} == {(5555, TIMESTAMP_LOG_APPEND)}
    columns = twin.columns(batch)
    assert memoryview(columns.timestamps).cast("B").cast("q").tolist() == [5555] * 4
    assert memoryview(columns.timestamp_types).cast("B").cast("b").tolist() == [TIMESTAMP_LOG_APPEND] * 4


def test_control_batch_decodes_to_its_record(twin: Any) -> None:
    marker = (control_key(ControlType.COMMIT), struct.pack(">hi", 0, 7))
    batch = build_batch([marker], timestamp_ms=5, producer_id=9, producer_epoch=1, control=True, transactional=True)
    header = read_header(batch)
    assert header.is_control and header.is_transactional
    (record_,) = twin.decode(batch)
    assert control_type(record_.key) is ControlType.COMMIT
    assert record_.value == marker[1]


def test_control_types_are_read_from_keys() -> None:
    assert control_type(b"\0\0\0\1 more") is ControlType.COMMIT
    assert control_type(struct.pack(">hh", 3, 99)) == 99
    for key in (None, b"", b"\0\0\0", struct.pack(">hh", -1, 0)):
        with pytest.raises(CorruptRecord, match="a control record's key"):
            control_type(key)


def test_huge_record_count_allocates_nothing(twin: Any) -> None:
    payload = GOOD * 10
    batch = with_payload(payload, len(payload) // 7, 2**31 - 1)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecord):
            twin.module.decode_batch(batch, 0, read_header(batch), "orders", 3)
        with pytest.raises(CorruptRecord):
            twin.columns(with_payload(GOOD, 2**31 - 1))
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


def test_expansion_past_limit_is_refused_naming_batch(twin: Any) -> None:
    batch = twin.build([(0, None, bytes(100_000), ())], compression=Compression.GZIP)
    assert outcome(twin, batch, max_size=50_000) == (
        "orders-3: batch at offset 0: gzip data expands past the limit of 50000 bytes"
    )
    assert len(outcome(twin, batch, max_size=200_000)) == 1


def test_topic_that_is_not_a_str_is_refused(twin: Any) -> None:
    batch = twin.build(ROWS)
    with pytest.raises(TypeError):
        twin.module.decode_batch(batch, "x", read_header(batch), "orders", 3)


def test_chain_yields_sources_in_order_and_continues_after_an_error(twin: Any) -> None:
    def broken() -> list[Any]:
        raise CorruptRecord("broken")

    asked: list[int] = []

    def source(number: int, *records: str) -> Any:
        return lambda: asked.append(number) or list(records)

    chain = twin.module.RecordChain([source(0, "a", "b"), source(1), broken, source(2, "c"), broken])
    assert [next(chain), next(chain), asked] == ["a", "b", [0]]
    with pytest.raises(CorruptRecord):
        next(chain)
    assert next(chain) == "c"
    with pytest.raises(CorruptRecord):
        next(chain)
    assert list(chain) == []
    assert iter(chain) is chain
