"""Compare `validate_records` with the decoder on valid, broken and random records."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from pyclient.errors import CorruptRecord
from pyclient.records import HEADER_SIZE, KEYLESS, MOST_NAMED, OUT_OF_RANGE, read_header
from pyclient.records.crc import crc32c
from tests.records.raw_batches import NOW, batch, body, encode_varint, field, record

MOST = 2**63 - 1
ONE = encode_varint(1)
SURROGATE = b"\xed\xa0\x80"


def validate(twin: Any, data: bytes, **rules: int) -> Any:
    """Return the result for a batch; an error as text."""
    header = read_header(data)
    keyed, before, after = rules.get("keyed", False), rules.get("before", MOST), rules.get("after", MOST)
    try:
        return twin.module.validate_records(
            data, HEADER_SIZE, header.count, header.base_timestamp, keyed, NOW, before, after
        )
    except CorruptRecord as error:
        return str(error)


def varied_records(rng: random.Random, count: int) -> bytes:
    """Return records of every shape that producers write."""
    out = b""
    for number in range(count):
        names = [
            rng.choice(["a", "trace", "\u00e4\u20ac\U0001f600", ""]).encode() for _ in range(rng.choice([0, 0, 3]))
        ]
        headers = encode_varint(len(names)) + b"".join(
            field(name) + field(rng.choice([None, b"", rng.randbytes(70)])) for name in names
        )
        out += record(
            number,
            timestamp=rng.choice([0, 1, -1, 5000, -(2**40), 2**62]),
            key=field(rng.choice([None, b"", b"key", rng.randbytes(200)])),
            value=field(rng.choice([None, b"", b"value", rng.randbytes(9000)])),
            headers=headers,
        )
    return out


def test_valid_records_return_their_latest_timestamp(twin: Any) -> None:
    rng = random.Random(1)
    for count in (1, 2, 30, 300):
        data = batch(varied_records(rng, count), count=count)
        assert validate(twin, data) == (max(-1, *(r.timestamp_ms for r in twin.decode(data))), 0, ())


def test_offset_deltas_of_every_length_are_valid(twin: Any) -> None:
    data = batch(b"".join(record(number) for number in range(9000)), count=9000)
    assert validate(twin, data) == (NOW, 0, ())


def test_records_larger_than_one_megabyte_are_valid(twin: Any) -> None:
    data = batch(b"".join(record(number, value=field(bytes(100_000))) for number in range(30)), count=30)
    assert validate(twin, data) == (NOW, 0, ())


def test_records_without_keys_are_named_when_keys_are_required(twin: Any) -> None:
    keys = [b"k", None, b"", None]
    data = batch(b"".join(record(number, key=field(key)) for number, key in enumerate(keys)), count=4)
    assert validate(twin, data, keyed=True) == (NOW, 2, ((1, KEYLESS, NOW), (3, KEYLESS, NOW)))


def test_timestamps_out_of_range_are_named(twin: Any) -> None:
    deltas = [0, 10, 11, -10, -11, -NOW - 1, -(2**63) + NOW]
    data = batch(b"".join(record(number, timestamp=delta) for number, delta in enumerate(deltas)), count=len(deltas))
    latest, refused, named = validate(twin, data, before=10, after=10)
    assert (latest, refused) == (NOW + 11, 3)
    assert [index for index, problem, _ in named if problem == OUT_OF_RANGE] == [2, 4, 6]
    assert [timestamp - NOW for _, _, timestamp in named] == [11, -11, -(2**63) + NOW]


def test_at_most_1000_refused_records_are_named(twin: Any) -> None:
    count = MOST_NAMED + 5
    data = batch(b"".join(record(number, key=field(None)) for number in range(count)), count=count)
    latest, refused, named = validate(twin, data, keyed=True)
    assert (latest, refused, len(named)) == (NOW, count, MOST_NAMED)


@pytest.mark.parametrize(
    ("records", "count", "error"),
    [
        (record() + b"\0", 1, "1 bytes are left after its last record"),
        (record(0) + record(1), 3, "record 2 ends early"),
        (b"", 1, "1 records cannot be in 0 bytes"),
        (bytes(70), 2**31 - 1, "2147483647 records cannot be in 70 bytes"),
        (record(1), 1, "record 0 has an offset delta out of order or beyond the batch's last"),
        (record(0) * 2, 2, "record 1 has an offset delta out of order or beyond the batch's last"),
        (record(add=-1), 1, "record 0 ends early"),
        (record(add=1) + b"\0", 1, "record 0 is longer than its content"),
        (encode_varint(-1) + body(), 1, "record 0 has a negative length"),
        (record(key=field(None, -2)), 1, "record 0 has a negative length"),
        (record(value=field(b"v", 100)), 1, "record 0 ends early"),
        (record(headers=encode_varint(9)), 1, "record 0 has an impossible number of headers"),
        (record(headers=encode_varint(1) + field(None) + field(b"")), 1, "record 0 has a negative length"),
        (record(headers=ONE + field(SURROGATE) + field(b"")), 1, "record 0 has a header name that is not UTF-8"),
    ],
)  # fmt: skip
def test_unreadable_records_are_refused(twin: Any, records: bytes, count: int, error: str) -> None:
    assert validate(twin, batch(records, count=count)) == error


def test_utf8_of_header_names_matches_pythons_decoder(twins: tuple[Any, Any]) -> None:
    rng = random.Random(2)
    parts = [bytes([byte]) for byte in range(256)] + [chr(c).encode() for c in (0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF)]
    parts += [
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xf0\x8f\xbf\xbf",
        b"\xe0\x9f\xbf",
        b"\xf4\x8f\xbf\xbf",
        b"\xc1\x81",
    ]
    names = [*parts, *(b"".join(rng.choices(parts[120:], k=rng.randint(1, 3))) for _ in range(3000))]
    for name in names:
        try:
            name.decode()
            good = True
        except UnicodeDecodeError:
            good = False
        data = batch(record(headers=encode_varint(1) + field(name) + field(b"v")), count=1)
        for twin in twins:
            assert isinstance(validate(twin, data), tuple) == good, name


def changed(data: bytes, at: int, value: int) -> bytes:
    """Return the batch with one byte changed and a correct checksum."""
    out = bytearray(data)
    out[at] = value
    struct.pack_into(">I", out, 17, crc32c(bytes(out[21:])))
    return bytes(out)


def test_changed_byte_is_refused_or_decodes(twins: tuple[Any, Any]) -> None:
    rng = random.Random(3)
    headers = encode_varint(1) + field("\u00e4".encode()) + field(None)
    plain = b"".join(record(number, timestamp=number * 90) for number in range(3)) + record(3, headers=headers)
    good = batch(plain + record(4, value=field(bytes(70))), count=5)
    accepted = 0
    for at in range(HEADER_SIZE, len(good)):
        for value in {0, 1, 2, 0x7F, 0x80, 0xFF, good[at] ^ 1, good[at] ^ 0x80, rng.randrange(256)}:
            data = changed(good, at, value)
            found = [validate(twin, data) for twin in twins]
            assert found[0] == found[1], (at, value)
            if isinstance(found[0], tuple):
                accepted += 1
                for twin in twins:
                    assert [each.offset for each in twin.decode(data)] == [0, 1, 2, 3, 4]
                    assert twin.columns(data).count == 5
    assert accepted > 300


def test_both_twins_and_decoder_agree_on_random_bytes(twins: tuple[Any, Any]) -> None:
    rng = random.Random(4)
    for _ in range(3000):
        count = rng.randint(1, 4)
        records = bytearray(varied_records(rng, count)[:300])
        for _ in range(rng.randint(0, 3)):
            records[rng.randrange(len(records))] = rng.choice([0, 1, 2, 0x80, 0xFF, rng.randrange(256)])
        data = batch(bytes(records), count=count)
        found = [validate(twin, data) for twin in twins]
        assert found[0] == found[1], data.hex()
        for twin in twins:
            try:
                decodes = [each.offset for each in twin.decode(data)] == list(range(count))
            except CorruptRecord:
                decodes = False
            assert decodes == isinstance(found[0], tuple), data.hex()
