"""Checksums of many batches in one call."""

from __future__ import annotations

import struct
from typing import Any

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.errors import CorruptRecord
from pyclient.records import BatchBuilder, BatchHeader, Compression, build_batch, read_header
from pyclient.records.payload import open_batch

Piece = tuple[Any, int, BatchHeader]


def piece_of(size: int, seed: int = 7) -> Piece:
    """Return a batch with one value of that size, after a few unrelated bytes."""
    value = bytes((seed * place * place + place) & 0xFF for place in range(size))
    buffer = memoryview(bytes(seed % 5) + build_batch([(None, value)], timestamp_ms=seed))
    return buffer, seed % 5, read_header(buffer, seed % 5)


def corrupted(piece: Piece, at: int) -> Piece:
    buffer, position, header = piece
    changed = bytearray(buffer)
    changed[position + at] ^= 1
    return memoryview(changed), position, header


SIZES = (0, 1, 7, 100, 4095, 12_000, 12_288, 12_400, 30_011, 131_072)


def with_crc(batch: bytearray) -> Piece:
    """Return the batch with a correct checksum."""
    batch[17:21] = crc32c.crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return memoryview(bytes(batch)), 0, read_header(batch)


def readable_batch() -> bytes:
    rows = [(b"k", b"v", (("h", b"w"), ("ü", None))), (None, None, None), (b"", bytes(300), None)]
    builder = BatchBuilder(bytearray(1000), None)
    for key, value, headers in rows:
        builder.append(5, key, value, headers)
    return bytes(builder.seal())


def count_intact(twin: Any, pieces: list[Piece]) -> int:
    """Return the count of intact batches, and check which ones are marked."""
    batches = [twin.module.PlacedBatch("t", 0, *piece) for piece in pieces]
    intact: int = twin.module.count_intact(batches)
    assert [batch.checked for batch in batches] == [number < intact for number in range(len(batches))]
    return intact


def test_batches_of_all_sizes_are_counted_as_intact(twin: Any) -> None:
    pieces = [piece_of(size, seed) for seed, size in enumerate(SIZES)]
    assert count_intact(twin, pieces) == len(SIZES)
    assert count_intact(twin, []) == 0


@given(size=st.sampled_from(SIZES), seed=st.integers(0, 255), data=st.data())
def test_any_flipped_bit_is_detected(twins: tuple[Any, Any], size: int, seed: int, data: st.DataObject) -> None:
    good = piece_of(size, seed)
    at = data.draw(st.integers(21, good[2].size - 1))
    for twin in twins:
        assert count_intact(twin, [good, corrupted(good, at), good]) == 1


@pytest.mark.parametrize("place", [0, 3, 9])
def test_count_intact_stops_before_truncated_batch(twin: Any, place: int) -> None:
    pieces = [piece_of(size) for size in SIZES]
    buffer, position, header = pieces[place]
    pieces[place] = buffer[:-1], position, header
    assert count_intact(twin, pieces) == place
    pieces[place] = buffer, -1, header
    assert count_intact(twin, pieces) == place


def test_count_intact_stops_before_old_formats(twin: Any) -> None:
    message = struct.pack(">qiIbbqii", 0, 22, 0, 1, 0, 0, -1, -1)
    old = memoryview(message), 0, read_header(message)
    assert count_intact(twin, [piece_of(10), old]) == 1


def test_any_bytes_like_buffer_is_accepted(twin: Any) -> None:
    buffer, position, header = piece_of(500)
    assert count_intact(twin, [(bytes(buffer), position, header), (bytearray(buffer), position, header)]) == 2


@given(data=st.data())
def test_batch_counts_only_if_all_its_records_can_be_decoded(twins: tuple[Any, Any], data: st.DataObject) -> None:
    batch = bytearray(readable_batch())
    for at in data.draw(st.lists(st.integers(57, len(batch) - 1), min_size=1, max_size=3)):
        batch[at] = data.draw(st.integers(0, 255))
    piece = with_crc(batch)
    for twin in twins:
        try:
            twin.module.decode_batch(*piece, "t", 0)
            expected = 1
        except CorruptRecord:
            expected = 0
        for crcs in (True, False):
            placed = twin.module.PlacedBatch("t", 0, *piece)
            assert twin.module.count_intact([placed], crcs) == expected
            assert (placed.checked, placed.readable) == (crcs and bool(expected), bool(expected))


def test_count_intact_without_crcs_checks_only_records(twin: Any) -> None:
    batch = bytearray(readable_batch())
    batch[17] ^= 1
    placed = twin.module.PlacedBatch("t", 0, bytes(batch), 0, read_header(batch))
    assert twin.module.count_intact([placed]) == 0
    assert twin.module.count_intact([placed], crcs=False) == 1
    assert (placed.checked, placed.readable) == (False, True)


def test_records_of_compressed_batch_are_not_checked(twin: Any) -> None:
    batch = build_batch([(None, bytes(100))] * 3, timestamp_ms=1, compression=Compression.LZ4)
    placed = twin.module.PlacedBatch("t", 0, batch, 0, read_header(batch))
    assert twin.module.count_intact([placed]) == 1
    assert (placed.checked, placed.readable) == (True, False)


@given(data=st.data())
def test_rows_are_refused_with_same_errors_as_decoding(twins: tuple[Any, Any], data: st.DataObject) -> None:
    batch = bytearray(readable_batch())
    batch[data.draw(st.integers(61, len(batch) - 1))] = data.draw(st.integers(0, 255))
    for twin in twins:
        payload = open_batch(batch, 0, read_header(batch), "t", 0, 10**6)
        refusals = []
        for read in (twin.module.check_rows, twin.module.decode_payload):
            try:
                read(payload)
                refusals.append("")
            except CorruptRecord as error:
                refusals.append(str(error))
        assert refusals[0] == refusals[1]
