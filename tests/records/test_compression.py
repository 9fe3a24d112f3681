from __future__ import annotations

import gzip
import io
import os
import random
import struct
import tracemalloc
import zlib
from contextlib import suppress
from typing import Any

import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from pyclient.errors import CorruptRecord
from pyclient.records import LEVELS, Compression, compress, decompress

MIB = 1024 * 1024
PACKED = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]
packed = pytest.mark.parametrize("codec", PACKED, ids=lambda codec: codec.name.lower())
SAMPLE = b"".join(b"line %d of a file that compresses well enough\n" % number for number in range(5000))


def bombs(size: int) -> dict[str, tuple[Compression, bytes]]:
    """Return data of every codec, with every way to state its size, that expand to `size` zeros."""
    zeros = bytes(size)
    block = snappy.compress(bytes(MIB))
    sized = zstandard.ZstdCompressor(level=3)
    unsized = zstandard.ZstdCompressor(level=3, write_content_size=False)
    return {
        "gzip": (Compression.GZIP, gzip.compress(zeros)),
        "snappy-raw": (Compression.SNAPPY, snappy.compress(zeros)),
        "snappy-xerial": (Compression.SNAPPY, XERIAL + (struct.pack(">i", len(block)) + block) * (size // MIB)),
        "lz4": (Compression.LZ4, lz4.frame.compress(zeros, store_size=False)),
        "lz4-sized": (Compression.LZ4, lz4.frame.compress(zeros, store_size=True)),
        "zstd": (Compression.ZSTD, unsized.compress(zeros)),
        "zstd-sized": (Compression.ZSTD, sized.compress(zeros)),
    }


XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
BOMBS = bombs(64 * MIB)


@given(data=st.binary(max_size=2000), repeat=st.integers(1, 200), codec=st.sampled_from(list(Compression)))
def test_compressed_data_round_trip(data: bytes, repeat: int, codec: Compression) -> None:
    original = data * repeat
    assert bytes(decompress(codec, compress(codec, original), len(original))) == original


@packed
@pytest.mark.parametrize("size", [0, 1, 32 * 1024, 32 * 1024 + 1, 64 * 1024, 64 * 1024 + 1, 3 * MIB])
@pytest.mark.parametrize("content", [bytes, lambda size: random.Random(size).randbytes(size)], ids=["zeros", "random"])
def test_data_of_any_size_round_trips(codec: Compression, size: int, content: Any) -> None:
    original = content(size)
    smaller = compress(codec, memoryview(original))
    assert bytes(decompress(codec, memoryview(smaller), size)) == original


@pytest.mark.parametrize("codec", LEVELS, ids=lambda codec: codec.name.lower())
def test_every_level_round_trips_and_others_are_refused(codec: Compression) -> None:
    low, high = LEVELS[codec]
    data = SAMPLE[:20_000]
    for level in (*range(max(low, -5), high + 1), low):
        assert bytes(decompress(codec, compress(codec, data, level), len(data))) == data
    assert compress(codec, data, high) != compress(codec, data, low)
    for level in (low - 1, high + 1):
        with pytest.raises(ValueError, match=f"{codec.name.lower()} compression has levels {low} to {high}, not"):
            compress(codec, SAMPLE, level)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.SNAPPY])
def test_codec_without_levels_refuses_level(codec: Compression) -> None:
    with pytest.raises(ValueError, match=f"{codec.name.lower()} compression has no levels"):
        compress(codec, b"data", 1)


def test_codecs_are_found_by_kafkas_names() -> None:
    assert [Compression.from_name(name) for name in ("none", "gzip", "snappy", "lz4", "zstd")] == list(Compression)
    with pytest.raises(
        ValueError, match="compression 'brotli' does not exist; there are none, gzip, snappy, lz4, zstd"
    ):
        Compression.from_name("brotli")


@packed
def test_every_prefix_is_refused(codec: Compression) -> None:
    for original in (b"", b"short", SAMPLE[:3000], os.urandom(100)):
        whole = bytes(compress(codec, original))
        for end in range(len(whole)):
            # A xerial stream may end after any block: prefixes that end there are valid and shorter.
            try:
                short = bytes(decompress(codec, whole[:end], 10_000))
            except CorruptRecord:
                continue
            assert codec == Compression.SNAPPY and len(short) < len(original)


@packed
def test_every_flipped_bit_gives_data_or_typed_error(codec: Compression) -> None:
    whole = bytearray(compress(codec, SAMPLE[:500]))
    for bit in range(8 * len(whole)):
        whole[bit // 8] ^= 1 << bit % 8
        try:
            assert len(decompress(codec, whole, 10_000)) <= 10_000
        except CorruptRecord as error:
            assert str(error).startswith(codec.name.lower())
        whole[bit // 8] ^= 1 << bit % 8


@given(data=st.binary(max_size=300), codec=st.sampled_from(PACKED))
def test_random_bytes_give_data_or_typed_error(data: bytes, codec: Compression) -> None:
    for prefix in (b"", bytes(compress(codec, b""))[:16], XERIAL):
        with suppress(CorruptRecord):
            assert len(decompress(codec, prefix + data, 1000)) <= 1000


@packed
def test_bytes_after_end_are_refused(codec: Compression) -> None:
    whole = bytes(compress(codec, SAMPLE))
    for extra in (b"\0", b"more", whole):
        if codec == Compression.SNAPPY and extra == whole:
            continue
        with pytest.raises(CorruptRecord):
            decompress(codec, whole + extra, 10 * len(SAMPLE))


@packed
def test_limit_is_exact(codec: Compression) -> None:
    whole = compress(codec, SAMPLE)
    assert bytes(decompress(codec, whole, len(SAMPLE))) == SAMPLE
    with pytest.raises(CorruptRecord, match=f"expands past the limit of {len(SAMPLE) - 1} bytes"):
        decompress(codec, whole, len(SAMPLE) - 1)
    with pytest.raises(CorruptRecord, match="limit of 3 bytes"):
        decompress(Compression.NONE, b"four", 3)


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("limit", [0, 1000, MIB])
def test_decompression_bomb_is_stopped_before_it_allocates_memory(name: str, limit: int) -> None:
    codec, data = BOMBS[name]
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecord, match=f"expands past the limit of {limit} bytes"):
            decompress(codec, data, limit)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # A zstd slice may expand to 8 MiB, and joining the slices needs as much again.
    slack = 20 * MIB if name == "zstd" else MIB
    assert peak <= 4 * limit + 8 * len(data) + slack


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (Compression.SNAPPY, b"\x80\x80\x80\x20" + b"\0" * 8),  # states 64 MiB
        (Compression.SNAPPY, XERIAL + struct.pack(">i", 12) + b"\x80\x80\x80\x20" + b"\0" * 8),
        (Compression.SNAPPY, XERIAL + struct.pack(">i", -1)),
        (Compression.SNAPPY, XERIAL + struct.pack(">i", 2**31 - 1) + b"abc"),
        (Compression.ZSTD, b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", 64 * MIB) + b"\x01\0\0"),
        (Compression.LZ4, b"\x04\x22\x4d\x18\x68\x40" + struct.pack("<Q", 64 * MIB) + b"\0" + bytes(8)),
    ],
)
def test_stated_size_alone_allocates_nothing(codec: Compression, data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecord):
            decompress(codec, data, 128 * MIB)
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


def test_lz4_output_is_readable_by_java() -> None:
    """The frame has independent 64 KiB blocks and neither checksums nor a content size."""
    frame = bytes(compress(Compression.LZ4, SAMPLE))
    assert frame[:4] == b"\x04\x22\x4d\x18"
    assert frame[4] == 0b01_1_0_0_0_00  # version 1, independent
    assert frame[5] == 4 << 4
    position, blocks = 7, []
    while (size := struct.unpack_from("<I", frame, position)[0]) != 0:
        blocks.append(size & 0x7FFFFFFF)
        position += 4 + blocks[-1]
    assert len(blocks) == -(-len(SAMPLE) // (64 * 1024)) and max(blocks) <= 64 * 1024
    assert position + 4 == len(frame)


@pytest.mark.parametrize(
    "options",
    [
        {"block_linked": True},
        {"store_size": True, "content_checksum": True, "block_checksum": True},
        {"block_size": lz4.frame.BLOCKSIZE_MAX4MB},
    ],
)
def test_lz4_frames_of_other_writers_are_read(options: dict[str, Any]) -> None:
    assert bytes(decompress(Compression.LZ4, lz4.frame.compress(SAMPLE, **options), len(SAMPLE))) == SAMPLE


def test_snappy_is_written_in_xerial_format_and_raw_is_read() -> None:
    whole = bytes(compress(Compression.SNAPPY, SAMPLE))
    assert whole[:16] == XERIAL
    position, sizes = 16, []
    while position < len(whole):
        (size,) = struct.unpack_from(">i", whole, position)
        sizes.append(len(snappy.uncompress(whole[position + 4 : position + 4 + size])))
        position += 4 + size
    assert set(sizes[:-1]) == {32 * 1024} and sum(sizes) == len(SAMPLE)
    assert bytes(decompress(Compression.SNAPPY, snappy.compress(SAMPLE), len(SAMPLE))) == SAMPLE


def test_gzip_is_one_plain_member() -> None:
    assert gzip.decompress(bytes(compress(Compression.GZIP, SAMPLE))) == SAMPLE
    assert bytes(decompress(Compression.GZIP, gzip.compress(SAMPLE, mtime=5), len(SAMPLE))) == SAMPLE
    with pytest.raises(CorruptRecord):
        decompress(Compression.GZIP, zlib.compress(SAMPLE), len(SAMPLE))


@pytest.mark.parametrize("repeat", [1, 100])
def test_zstd_without_stated_size_is_read(repeat: int) -> None:
    """Java's stream writes such frames; a high compression ratio is no problem."""
    data = SAMPLE[:1000] * repeat * 20
    target = io.BytesIO()
    with zstandard.ZstdCompressor(level=9).stream_writer(target, closefd=False) as writer:
        for start in range(0, len(data), 7000):
            writer.write(data[start : start + 7000])
    whole = target.getvalue()
    assert zstandard.get_frame_parameters(whole).content_size == zstandard.CONTENTSIZE_UNKNOWN
    assert bytes(decompress(Compression.ZSTD, whole, len(data))) == data
    for end in (0, 1, 5, len(whole) // 2, len(whole) - 1):
        with pytest.raises(CorruptRecord, match="zstd"):
            decompress(Compression.ZSTD, whole[:end], 10 * len(data))


def test_zstd_window_above_limit_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=28, write_content_size=False)
    target = io.BytesIO()
    with zstandard.ZstdCompressor(compression_params=parameters).stream_writer(target, closefd=False) as writer:
        writer.write(SAMPLE)
    with pytest.raises(CorruptRecord, match="zstd"):
        decompress(Compression.ZSTD, target.getvalue(), 128 * MIB)
