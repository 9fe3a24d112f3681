"""Checksums of many batches in one step."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.records import BatchHeader, build_batch, read_header

Piece = tuple[Any, int, BatchHeader]


def piece_of(size: int, seed: int = 7) -> Piece:
    """A batch with one value of that size, behind a few bytes of something else."""
    value = bytes((seed * place * place + place) & 0xFF for place in range(size))
    buffer = memoryview(bytes(seed % 5) + build_batch([(None, value)], timestamp_ms=seed))
    return buffer, seed % 5, read_header(buffer, seed % 5)


def spoiled(piece: Piece, at: int) -> Piece:
    buffer, position, header = piece
    changed = bytearray(buffer)
    changed[position + at] ^= 1
    return memoryview(changed), position, header


SIZES = (0, 1, 7, 100, 4095, 12_000, 12_288, 12_400, 30_011, 131_072)


def count_intact(twin: Any, pieces: list[Piece]) -> int:
    """What the twin counts, after a look at what it marks."""
    batches = [twin.module.PlacedBatch("t", 0, *piece) for piece in pieces]
    intact: int = twin.module.count_intact(batches)
    assert [batch.checked for batch in batches] == [number < intact for number in range(len(batches))]
    return intact


def test_batches_of_all_sizes_are_intact(twin: Any) -> None:
    pieces = [piece_of(size, seed) for seed, size in enumerate(SIZES)]
    assert count_intact(twin, pieces) == len(SIZES)
    assert count_intact(twin, []) == 0


@given(size=st.sampled_from(SIZES), seed=st.integers(0, 255), data=st.data())
def test_one_wrong_bit_anywhere_is_found(twins: tuple[Any, Any], size: int, seed: int, data: st.DataObject) -> None:
    good = piece_of(size, seed)
    at = data.draw(st.integers(21, good[2].size - 1))
    for twin in twins:
        assert count_intact(twin, [good, spoiled(good, at), good]) == 1


@pytest.mark.parametrize("place", [0, 3, 9])
def test_it_ends_in_front_of_a_batch_that_is_cut(twin: Any, place: int) -> None:
    pieces = [piece_of(size) for size in SIZES]
    buffer, position, header = pieces[place]
    pieces[place] = buffer[:-1], position, header
    assert count_intact(twin, pieces) == place
    pieces[place] = buffer, -1, header
    assert count_intact(twin, pieces) == place


def test_it_ends_in_front_of_the_old_formats(twin: Any) -> None:
    message = struct.pack(">qiIbbqii", 0, 22, 0, 1, 0, 0, -1, -1)
    old = memoryview(message), 0, read_header(message)
    assert count_intact(twin, [piece_of(10), old]) == 1


def test_any_bytes_like_buffer_will_do(twin: Any) -> None:
    buffer, position, header = piece_of(500)
    assert count_intact(twin, [(bytes(buffer), position, header), (bytearray(buffer), position, header)]) == 2
