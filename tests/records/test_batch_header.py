from __future__ import annotations

import struct
from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.errors import CorruptRecord, TruncatedMessage
from pyclient.records import (
    HEADER_SIZE,
    BatchHeader,
    Compression,
    build_batch,
    check_crc,
    decode_key_values,
    iter_batches,
    read_header,
    stamp_offsets,
    stamp_producer,
    stamp_timestamp,
)
from pyclient.types import TIMESTAMP_CREATE, TIMESTAMP_LOG_APPEND


def batch(**options: object) -> bytearray:
    return bytearray(build_batch([(b"key", b"value"), (None, b"")], timestamp_ms=1_700_000_000_000, **options))  # type: ignore[arg-type]


def test_batch_bytes_match_the_format() -> None:
    expected = (
        struct.pack(">qiib", 7, 49 + 15 + 7, 4, 2)
        + struct.pack(">I", 0)
        + struct.pack(">hiqqqhii", 0x10, 1, 1_700_000_000_000, 1_700_000_000_000, 9000, 3, 17, 2)
        + bytes.fromhex("1c 00 00 00 06 6b6579 0a 76616c7565 00")
        + bytes.fromhex("0c 00 00 02 01 00 00")
    )
    made = batch(
        base_offset=7, leader_epoch=4, producer_id=9000, producer_epoch=3, base_sequence=17, transactional=True
    )
    made[17:21] = bytes(4)
    assert made.hex() == expected.hex()


def test_crc_is_crc32c_over_everything_after_it() -> None:
    made = batch()
    crc = 0xFFFFFFFF
    for byte in made[21:]:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    assert read_header(made).crc == crc ^ 0xFFFFFFFF


def test_header_round_trips() -> None:
    made = batch(base_offset=42, leader_epoch=5, compression=Compression.LZ4, producer_id=1, producer_epoch=2,
                 base_sequence=3, transactional=True, control=True)  # fmt: skip
    header = read_header(made)
    assert header.size == len(made)
    assert (header.base_offset, header.leader_epoch, header.magic, header.count) == (42, 5, 2, 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1, 2, 3)
    assert header.codec is Compression.LZ4
    assert header.is_transactional and header.is_control and not header.has_delete_horizon
    assert header.timestamp_type == TIMESTAMP_CREATE
    assert (header.last_offset, header.next_offset, header.last_sequence) == (43, 44, 4)


def test_sequences_wrap_after_largest() -> None:
    assert read_header(batch(producer_id=1, base_sequence=2**31 - 1)).last_sequence == 0
    assert read_header(batch()).last_sequence == -1


@given(st.binary(max_size=100))
def test_random_bytes_give_header_or_typed_error(data: bytes) -> None:
    try:
        header = read_header(data)
    except (CorruptRecord, TruncatedMessage):
        return
    assert header.magic in (0, 1, 2) and header.size >= 26


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_every_prefix_of_header_is_truncated(magic: int) -> None:
    size = {0: 18, 1: 26, 2: HEADER_SIZE}[magic]
    data = struct.pack(">qiib", 0, 100, 0, magic) + bytes(100)
    for end in range(size):
        with pytest.raises(TruncatedMessage, match="ends early"):
            read_header(data[:end])
    assert read_header(data[:size]).magic == magic


@pytest.mark.parametrize(("magic", "length"), [(0, 13), (1, 21), (2, 48), (2, 0), (2, -1), (2, -(2**31)), (0, -5)])
def test_length_too_small_for_its_magic_is_corrupt(magic: int, length: int) -> None:
    data = struct.pack(">qiib", 0, length, 0, magic) + bytes(100)
    with pytest.raises(CorruptRecord, match="too small"):
        read_header(data)


@pytest.mark.parametrize("magic", [3, 4, 127, -1, -128])
def test_unknown_magic_is_corrupt(magic: int) -> None:
    with pytest.raises(CorruptRecord, match="magic"):
        read_header(struct.pack(">qiib", 0, 100, 0, magic) + bytes(100))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec_is_corrupt(codec: int) -> None:
    made = batch()
    made[22] = codec
    with pytest.raises(CorruptRecord, match=f"codec {codec} does not exist"):
        _ = read_header(made).codec


def test_iter_batches_ends_at_a_truncated_last_batch() -> None:
    parts = [bytes(batch(base_offset=offset)) for offset in (0, 2, 4)]
    data = b"".join(parts)
    for end in range(len(data) + 1):
        whole = [header.base_offset for _, header in iter_batches(data[:end])]
        assert whole == [0, 2, 4][: end // len(parts[0])]
    assert [position for position, _ in iter_batches(data, len(parts[0]))] == [len(parts[0]), 2 * len(parts[0])]


def test_iter_batches_raises_at_malformed_header() -> None:
    with pytest.raises(CorruptRecord):
        list(iter_batches(bytes(batch()) + b"\xff" * 100))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_type_is_accepted(kind: type) -> None:
    data = kind(b"junk" + batch())
    header = read_header(data, 4)
    check_crc(data, 4, header)
    assert decode_key_values(data, 4, header) == [
        (0, 1_700_000_000_000, b"key", b"value"),
        (1, 1_700_000_000_000, None, b""),
    ]


def test_every_flipped_bit_after_crc_is_detected() -> None:
    made = batch()
    header = read_header(made)
    check_crc(made, 0, header)
    for bit in range(8 * 17, 8 * len(made)):
        made[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptRecord, match="CRC"):
            check_crc(made, 0, read_header(made))
        made[bit // 8] ^= 1 << bit % 8


def test_crc_check_of_truncated_batch_names_its_position() -> None:
    made = batch(base_offset=42)
    with pytest.raises(CorruptRecord, match=r"^orders-3: batch at offset 42 ends early$"):
        check_crc(made[:-1], 0, read_header(made), "orders", 3)


def test_offsets_are_stamped_without_touching_crc() -> None:
    made = bytearray(b"????") + batch()
    stamp_offsets(made, 4, 1234567890123, 8)
    header = read_header(made, 4)
    assert (header.base_offset, header.leader_epoch) == (1234567890123, 8)
    check_crc(made, 4, header)


def test_producer_is_stamped_with_new_crc() -> None:
    made = batch(producer_id=1, producer_epoch=0, base_sequence=0)
    stamp_producer(made, 77, 5, 123)
    assert made == batch(producer_id=77, producer_epoch=5, base_sequence=123)


def test_log_append_time_is_stamped_with_new_crc() -> None:
    made = bytearray(b"??") + batch()
    stamp_timestamp(made, 2, read_header(made, 2), TIMESTAMP_LOG_APPEND, 999)
    header = read_header(made, 2)
    check_crc(made, 2, header)
    assert (header.timestamp_type, header.max_timestamp) == (TIMESTAMP_LOG_APPEND, 999)
    assert {timestamp for _, timestamp, _, _ in decode_key_values(made, 2, header)} == {999}
    stamp_timestamp(made, 2, header, TIMESTAMP_CREATE, 1_700_000_000_000)
    assert made[2:] == batch()


def test_header_repr_shows_its_fields() -> None:
    header = BatchHeader(*range(13))
    assert astuple(header) == tuple(range(13))
    assert "base_offset=0, size=1" in repr(header)


def test_batch_without_records_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="without records"):
        build_batch([], timestamp_ms=0)
