"""Compress record batches with Kafka's four codecs as the Java client expects, and decompress them within a limit."""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum
from typing import Final

from pyclient.errors import CorruptRecord
from pyclient.records.columns import Buffer

MAX_DECOMPRESSED: Final = 128 * 1024 * 1024
_GZIP_WINDOW: Final = 31  # zlib's number for a gzip member
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK: Final = 32 * 1024
_SNAPPY_RATIO: Final = 32  # above the format's 64 bytes from 3
_ZSTD_RATIO: Final = 128 * 1024 // 3  # above the format's 128 KiB from 4 bytes
_ZSTD_SLICE: Final = 256
_ZSTD_WINDOW: Final = 128 * 1024 * 1024  # zstd's default limit for readers; level 22 needs it
_FIRST_GUESS: Final = 16
_LZ4_FLAGS_AT: Final = 4
_LZ4_INDEPENDENT: Final = 0x20
_LZ4_BLOCK_SUM: Final = 0x10
_LZ4_SIZE: Final = 0x08


class DecompressedTooLarge(CorruptRecord):
    """Compressed data expand past the caller's limit."""


class Compression(IntEnum):
    """Kafka's codecs; the value is the codec number in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def from_name(cls, name: str) -> Compression:
        """Return the codec for a value of Kafka's option `compression.type` ("none", "gzip", ...)."""
        try:
            return cls[name.upper()]
        except KeyError:
            known = ", ".join(codec.name.lower() for codec in cls)
            raise ValueError(f"compression {name!r} does not exist; there are {known}") from None


LEVELS: Final = {Compression.GZIP: (1, 9), Compression.LZ4: (1, 17), Compression.ZSTD: (-131072, 22)}
"""The lowest and highest level of each codec (KIP-390)."""


def compress(codec: Compression, data: Buffer, level: int | None = None) -> Buffer:
    """Compress `data`; `level` None is the codec's default. Raise `ValueError` for a level it does not have."""
    if level is not None:
        _check_level(codec, level)
    if codec == Compression.LZ4:
        return _compress_lz4(data, level)
    if codec == Compression.ZSTD:
        import zstandard

        return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)
    if codec == Compression.SNAPPY:
        return _compress_snappy(data)
    if codec == Compression.GZIP:
        packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW)
        return packer.compress(data) + packer.flush()
    return data


def decompress(codec: Compression, data: Buffer, max_size: int = MAX_DECOMPRESSED) -> Buffer:
    """Decompress `data`.

    Raise `CorruptRecord` for invalid data, and `DecompressedTooLarge` once the output exceeds `max_size` bytes.
    """
    if codec == Compression.NONE:
        if len(data) > max_size:
            raise _too_large(codec, max_size)
        return data
    return _DECOMPRESSORS[codec](data, max_size)


def _check_level(codec: Compression, level: int) -> None:
    if codec not in LEVELS:
        raise ValueError(f"{codec.name.lower()} compression has no levels")
    low, high = LEVELS[codec]
    if not low <= level <= high:
        raise ValueError(f"{codec.name.lower()} compression has levels {low} to {high}, not {level}")


def _too_large(codec: Compression, max_size: int) -> DecompressedTooLarge:
    return DecompressedTooLarge(f"{codec.name.lower()} data expands past the limit of {max_size} bytes")


def _damaged(codec: Compression, reason: object) -> CorruptRecord:
    return CorruptRecord(f"{codec.name.lower()} data cannot be decompressed: {reason}")


def _decompress_gzip(data: Buffer, max_size: int) -> Buffer:
    unpacker = zlib.decompressobj(_GZIP_WINDOW)
    try:
        out = unpacker.decompress(data, max_size + 1)
    except zlib.error as error:
        raise _damaged(Compression.GZIP, error) from error
    if len(out) > max_size:
        raise _too_large(Compression.GZIP, max_size)
    if not unpacker.eof:
        raise _damaged(Compression.GZIP, "it ends early")
    if unpacker.unused_data:
        raise _damaged(Compression.GZIP, "bytes are left after its end")
    return out


def _compress_snappy(data: Buffer) -> Buffer:
    import snappy

    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = snappy.compress(view[start : start + _XERIAL_BLOCK])
        out += len(block).to_bytes(4, "big")
        out += block
    return out


def _decompress_snappy(data: Buffer, max_size: int) -> Buffer:
    """Decompress Xerial's blocks, or the single raw block that librdkafka writes."""
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, max_size, max_size)
    blocks: list[bytes] = []
    room = max_size
    position = len(_XERIAL_HEADER)
    if position > len(view):
        raise _damaged(Compression.SNAPPY, "it ends early")
    while position < len(view):
        start = position + 4
        end = start + int.from_bytes(view[position:start], "big")
        if end > len(view):
            raise _damaged(Compression.SNAPPY, "it ends early")
        blocks.append(_decompress_snappy_block(view[start:end], room, max_size))
        room -= len(blocks[-1])
        position = end
    return b"".join(blocks)


def _decompress_snappy_block(block: memoryview, room: int, max_size: int) -> bytes:
    import snappy

    # The library allocates the size that the block states, so check it first.
    size = 0
    for index, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            break
    else:
        raise _damaged(Compression.SNAPPY, "a block has no size")
    if size > room:
        raise _too_large(Compression.SNAPPY, max_size)
    if size > _SNAPPY_RATIO * len(block):
        raise _damaged(Compression.SNAPPY, "a block states a larger size than its bytes can hold")
    try:
        out: bytes = snappy.uncompress(block)
    except snappy.UncompressError as error:
        raise _damaged(Compression.SNAPPY, error.__cause__ or error) from error
    return out


def _compress_lz4(data: Buffer, level: int | None) -> Buffer:
    import lz4.frame

    # Java reads only independent blocks, and writes 64 KiB ones without size or checksums.
    out: bytes = lz4.frame.compress(
        data,
        compression_level=0 if level is None else level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return out


def _decompress_lz4(data: Buffer, max_size: int) -> Buffer:
    import lz4.frame

    unpacker = lz4.frame.LZ4FrameDecompressor()
    chunks: list[bytes] = []
    room = max_size + 1
    wanted = min(room, max(4 * len(data), 1024))
    pending = data
    try:
        while room and not unpacker.eof:
            chunk = unpacker.decompress(pending, wanted)
            if not chunk and not unpacker.eof:
                raise _damaged(Compression.LZ4, "it ends early")
            chunks.append(chunk)
            room -= len(chunk)
            wanted = min(room, 4 * wanted)
            pending = b""
    except (RuntimeError, ValueError) as error:
        raise _damaged(Compression.LZ4, error) from error
    if not room:
        raise _too_large(Compression.LZ4, max_size)
    if unpacker.unused_data:
        raise _damaged(Compression.LZ4, "bytes are left after its end")
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def lz4_blocks_depend(data: Buffer) -> bool:
    """Return True if a frame has several blocks that refer to earlier ones, which Java cannot read."""
    view = memoryview(data)
    if len(view) < _LZ4_FLAGS_AT + 2 or view[_LZ4_FLAGS_AT] & _LZ4_INDEPENDENT:
        return False
    flags = view[_LZ4_FLAGS_AT]
    position = _LZ4_FLAGS_AT + 3 + (8 if flags & _LZ4_SIZE else 0)
    block_overhead = 8 if flags & _LZ4_BLOCK_SUM else 4
    size = int.from_bytes(view[position : position + 4], "little") & 0x7FFFFFFF
    following = position + block_overhead + size
    return size > 0 and int.from_bytes(view[following : following + 4], "little") != 0


def _decompress_zstd(data: Buffer, max_size: int) -> Buffer:
    import zstandard

    try:
        # python-zstandard ignores max_output_size if the frame states its size.
        size = zstandard.get_frame_parameters(data).content_size
        if size != zstandard.CONTENTSIZE_UNKNOWN:
            if size > max_size:
                raise _too_large(Compression.ZSTD, max_size)
            if size > _ZSTD_RATIO * len(data):
                raise _damaged(Compression.ZSTD, "it states a larger size than its bytes can hold")
            # The library stops reading a frame that states 0 bytes.
            return _zstd_at_once(data, size) if size else _zstd_by_slices(data, 0)
        try:
            return _zstd_at_once(data, min(max_size, _FIRST_GUESS * len(data)))
        except zstandard.ZstdError:
            return _zstd_by_slices(data, max_size)
    except zstandard.ZstdError as error:
        raise _damaged(Compression.ZSTD, error) from error


def _zstd_at_once(data: Buffer, size: int) -> Buffer:
    import zstandard

    unpacker = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    return unpacker.decompress(data, max_output_size=max(size, 1), allow_extra_data=False)


def _zstd_by_slices(data: Buffer, max_size: int) -> Buffer:
    """Decompress if the first guess was too small or the data are corrupt; a slice expands to about 8 MiB at most."""
    import zstandard

    unpacker = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()
    view = memoryview(data)
    chunks: list[bytes] = []
    room = max_size
    for start in range(0, len(view), _ZSTD_SLICE):
        if unpacker.eof:
            raise _damaged(Compression.ZSTD, "bytes are left after its end")
        chunks.append(unpacker.decompress(view[start : start + _ZSTD_SLICE]))
        room -= len(chunks[-1])
        if room < 0:
            raise _too_large(Compression.ZSTD, max_size)
    if not unpacker.eof:
        raise _damaged(Compression.ZSTD, "it ends early")
    if unpacker.unused_data:
        raise _damaged(Compression.ZSTD, "bytes are left after its end")
    return b"".join(chunks)


_DECOMPRESSORS: Final = {
    Compression.GZIP: _decompress_gzip,
    Compression.SNAPPY: _decompress_snappy,
    Compression.LZ4: _decompress_lz4,
    Compression.ZSTD: _decompress_zstd,
}
