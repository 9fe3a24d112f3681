"""Hostile batches with their topics and Produce versions."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from itertools import chain
from typing import Final, NamedTuple

from pyclient.records import Compression, compress, encode_varint
from tests.records.raw_batches import (
    NOW,
    THREE,
    batch,
    body,
    field,
    lz4_frame,
    of_length,
    overlong,
    record,
    two_members,
    zstd_frame,
)

TOPICS: Final = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "recent": {"message.timestamp.before.max.ms": "3600000"},
    "gzipped": {"compression.type": "gzip"},
    "unpacked": {"compression.type": "uncompressed"},
    "small": {"max.message.bytes": "1000"},
    "small-unpacked": {"max.message.bytes": "1000", "compression.type": "uncompressed"},
}
"""The topics and their options."""

FAR: Final = 4_000_000_000_000
"""A time far in the future."""

NOISE: Final = random.Random(7).randbytes(100)


class Case(NamedTuple):
    """One batch in one Produce request."""

    name: str
    data: bytes
    topic: str = "plain"
    version: int = 9


def _records() -> Iterator[tuple[str, bytes, int]]:
    """Yield what is wrong with the records, the records, and the count in the header."""
    yield from _counts_and_lengths()
    yield from _keys_and_values()
    yield from _headers_of_records()
    yield from _deltas()


def _counts_and_lengths() -> Iterator[tuple[str, bytes, int]]:
    yield "nothing wrong", THREE, 3
    yield "too few announced", THREE, 2
    yield "one record too many announced", THREE, 4
    yield "2147483647 records announced", THREE, 2**31 - 1
    yield "records announced and none there", b"", 3
    yield "noise", NOISE, 3
    yield "zeros", bytes(100), 3
    yield "a byte behind", THREE + b"\0", 3
    yield "noise behind", THREE + NOISE, 3
    yield "cut off", THREE[:-1], 3
    yield "length negative", encode_varint(-1) + body(), 1
    yield "length 0", encode_varint(0) + body(), 1
    yield "length too short by one", record(add=-1), 1
    yield "length too long by one", record(add=1), 1
    yield "length too long by one and a byte there", record(add=1) + b"\0", 1
    yield "length too short in the middle", record(0) + record(1, add=-1) + record(2), 3
    yield "length 2147483647", encode_varint(2**31 - 1) + body(), 1
    yield "length of six bytes", b"\xff\xff\xff\xff\xff\x01" + body(), 1
    yield "length of needless bytes", overlong(len(body()), 3) + body(), 1
    yield "six bytes of offset delta", _raw(b"\0" + encode_varint(0) + b"\xff\xff\xff\xff\xff\x01"), 1
    yield "five bytes of offset delta with high bits", _raw(b"\0\0\x80\x80\x80\x80\x10" + _rest()), 1
    yield "eleven bytes of timestamp delta", _raw(b"\0" + b"\xff" * 10 + b"\x01" + encode_varint(0) + _rest()), 1
    yield (
        "ten bytes of timestamp delta with high bits",
        _raw(b"\0" + b"\x80" * 9 + b"\x02" + encode_varint(0) + _rest()),
        1,
    )
    yield "record attributes", record(attributes=0x7F), 1


def _keys_and_values() -> Iterator[tuple[str, bytes, int]]:
    yield "key null", record(key=field(None)), 1
    yield "key length -2", record(key=field(None, -2)), 1
    yield "key length too long", record(key=field(b"k", 100)), 1
    yield "key length 2147483647", record(key=field(b"k", 2**31 - 1)), 1
    yield "key length -2147483648", record(key=field(None, -(2**31))), 1
    yield "value null", record(value=field(None)), 1
    yield "value length -2", record(value=field(None, -2)), 1
    yield "value length too long", record(value=field(b"v", 100)), 1
    yield "value length too long by one", record(value=field(b"v", 2)), 1


def _headers_of_records() -> Iterator[tuple[str, bytes, int]]:
    yield "headers -1", record(headers=encode_varint(-1)), 1
    yield "headers 1 and none there", record(headers=encode_varint(1)), 1
    yield "headers 2147483647", record(headers=encode_varint(2**31 - 1)), 1
    yield "header", record(headers=encode_varint(1) + field(b"h") + field(b"v")), 1
    yield "header value null", record(headers=encode_varint(1) + field(b"h") + field(None)), 1
    yield "header value length -2", record(headers=encode_varint(1) + field(b"h") + field(None, -2)), 1
    yield "header value too long", record(headers=encode_varint(1) + field(b"h") + field(b"v", 9)), 1
    yield "header key null", record(headers=encode_varint(1) + field(None) + field(b"v")), 1
    yield "header key length -2", record(headers=encode_varint(1) + field(None, -2) + field(b"v")), 1
    yield "header key too long", record(headers=encode_varint(1) + field(b"h", 9) + field(b"v")), 1
    yield "header key empty", record(headers=encode_varint(1) + field(b"") + field(b"v")), 1
    yield "header key not UTF-8", record(headers=encode_varint(1) + field(b"\xff\xfe") + field(b"v")), 1
    yield "header more than counted", record(headers=encode_varint(0) + field(b"h") + field(b"v")), 1


def _deltas() -> Iterator[tuple[str, bytes, int]]:
    yield "offset deltas all 0", record() * 3, 3
    yield "offset deltas 0 2 1", record(0) + record(2) + record(1), 3
    yield "offset deltas 1 2 3", record(1) + record(2) + record(3), 3
    yield "offset deltas 5 6 7", record(5) + record(6) + record(7), 3
    yield "offset deltas 0 1 5", record(0) + record(1) + record(5), 3
    yield "offset deltas -3 -2 -1", record(-3) + record(-2) + record(-1), 3
    yield "timestamp delta most", record(timestamp=2**63 - 1), 1
    yield "timestamp delta least", record(timestamp=-(2**63)), 1
    yield "record without a time", record(timestamp=-NOW - 1), 1
    yield "record far behind", record(timestamp=-NOW), 1
    yield "record far ahead", record(0) + record(1, timestamp=FAR) + record(2), 3


def _raw(content: bytes) -> bytes:
    return encode_varint(len(content)) + content


def _rest() -> bytes:
    return field(b"k") + field(b"value") + encode_varint(0)


def _of_records() -> Iterator[Case]:
    for codec in Compression:
        for name, records, count in _records():
            yield Case(f"{codec.name.lower()}: {name}", batch(records, count=count, codec=codec))


def _of_topics() -> Iterator[Case]:
    for codec in (Compression.NONE, Compression.GZIP, Compression.LZ4):
        for topic, names in (
            ("compacted", ("nothing wrong", "key null", "key length -2", "a byte behind")),
            ("stamped", ("nothing wrong", "record far ahead", "noise", "offset deltas all 0")),
            ("recent", ("nothing wrong", "record without a time", "record far behind")),
            ("gzipped", ("nothing wrong", "noise", "offset deltas all 0", "offset deltas 5 6 7", "a byte behind",
                         "key length -2", "header key not UTF-8", "record attributes", "too few announced")),
            ("unpacked", ("nothing wrong", "noise", "offset deltas all 0", "offset deltas 5 6 7", "a byte behind",
                         "key length -2", "value length -2", "header value length -2", "record attributes")),
        ):  # fmt: skip
            for name, records, count in _records():
                if name in names:
                    yield Case(f"{topic} {codec.name.lower()}: {name}", batch(records, count=count, codec=codec), topic)
    yield Case("small: over max.message.bytes", batch(record(value=field(bytes(1000))), count=1), "small")
    yield Case("small: over it and a wrong CRC", batch(record(value=field(bytes(1000))), count=1)[:-1] + b"x", "small")
    yield Case("small: over it and control", batch(record(value=field(bytes(1000))), count=1, attributes=32), "small")
    zeros = batch(record(value=field(bytes(1000))), count=1, codec=Compression.GZIP)
    yield Case("small: under it until it is unpacked", zeros, "small")
    yield Case("small-unpacked: over it once it is unpacked", zeros, "small-unpacked")
    yield Case("stamped: of the broker's time", batch(attributes=8), "stamped")
    one_key = record(0) + record(1, key=field(None)) + record(2, key=field(None))
    yield Case("compacted: one key of three", batch(one_key), "compacted")
    yield Case(
        "compacted: no key, a time far ahead, both",
        batch(record(0, key=field(None)) + record(1, timestamp=FAR) + record(2, timestamp=FAR, key=field(None))),
        "compacted",
    )


def _of_headers() -> Iterator[Case]:
    yield from _of_attributes()
    yield from _of_times()
    yield from _of_counts()
    yield from _of_framing()


def _of_attributes() -> Iterator[Case]:
    for bit in range(3, 16):
        bits = 1 << bit
        attributes = bits - (1 << 16) if bit == 15 else bits
        yield Case(f"attributes {bits:#06x}", batch(attributes=attributes))
        yield Case(f"attributes {bits:#06x} and another maximum", batch(attributes=attributes, max_timestamp=NOW + 1))
        yield Case(f"attributes {bits:#06x} gzip", batch(attributes=attributes, codec=Compression.GZIP))
    for codec in (5, 6, 7):
        yield Case(f"codec {codec}", batch(attributes=codec))
    yield Case("control with a producer", batch(attributes=0x30, producer_id=7, epoch=0, sequence=0))
    yield Case("the broker's time, none", batch(record(), count=1, attributes=8, max_timestamp=-1))


def _of_times() -> Iterator[Case]:
    for codec in (Compression.NONE, Compression.LZ4):
        name = codec.name.lower()
        for label, timestamp in (
            ("later", NOW + 5),
            ("earlier", NOW - 5),
            ("none", -1),
            ("far ahead", FAR),
            ("-5", -5),
        ):
            yield Case(f"{name}: maximum {label}", batch(codec=codec, max_timestamp=timestamp))
        yield Case(f"{name}: base time -1", batch(codec=codec, base_timestamp=-1, max_timestamp=-1))
        yield Case(f"{name}: base time far ahead", batch(codec=codec, base_timestamp=FAR, max_timestamp=NOW))
        yield Case(f"{name}: base time -5", batch(codec=codec, base_timestamp=-5, max_timestamp=-5))


def _of_counts() -> Iterator[Case]:
    for label, count, last in (
        ("count 0, last -1", 0, -1), ("count 0, last 0", 0, 0), ("count -1, last 0", -1, 0), ("count 3, last 1", 3, 1),
        ("count 3, last 3", 3, 3), ("count 1, last -1", 1, -1), ("count least, last least", -(2**31), -(2**31)),
        ("count 3, last most", 3, 2**31 - 1), ("count -2147483648, last most", -(2**31), 2**31 - 1),
    ):  # fmt: skip
        yield Case(label, batch(count=count, last=last))
        yield Case(f"gzip: {label}", batch(count=count, last=last, codec=Compression.GZIP))


def _of_framing() -> Iterator[Case]:
    good = batch()
    for length in (
        -(2**31),
        -12,
        -1,
        0,
        1,
        5,
        13,
        14,
        48,
        49,
        50,
        len(good) - 13,
        len(good) - 11,
        2**31 - 1,
        2**31 - 12,
    ):
        yield Case(f"batch length {length}", of_length(good, length))
    for size in (1, 12, 16, 17, 20, 21, 60, 61, 62):
        yield Case(f"{size} bytes of a batch", good[:size])
    yield Case("a wrong CRC", good[:17] + b"\0\0\0\0" + good[21:])
    yield Case("a wrong CRC and base offset 5", good[:7] + b"\5" + good[8:17] + b"\0\0\0\0" + good[21:])
    yield Case("base offset 5", batch(base_offset=5))
    yield Case("base offset -1", batch(base_offset=-1))
    yield Case("leader epoch 99", batch(leader_epoch=99))
    for magic in (-1, 0, 1, 3, 127):
        yield Case(f"magic {magic}", batch(magic=magic))
    yield Case("two batches", good + good)
    yield Case("a batch and a byte", good + b"\0")
    yield Case("a batch and a header's half", good + good[:30])
    yield Case("a batch and a longer cut batch", good + good[:-1])


def _of_producers() -> Iterator[Case]:
    for number, (label, producer, epoch, sequence) in enumerate((
        ("no epoch", 1000, -1, 0), ("no epoch and no sequence", 1000, -1, -1), ("no sequence", 1000, 0, -1),
        ("epoch without an id", -1, 0, -1), ("sequence without an id", -1, -1, 0), ("both without an id", -1, 0, 0),
        ("id -2", -2, 0, 0), ("id -2 alone", -2, -1, -1), ("epoch -2", 1000, -2, 0), ("sequence -2", 1000, 0, -2),
        ("first sequence 7", 1000, 0, 7), ("epoch 32767", 1000, 32767, 0), ("sequence most", 1000, 0, 2**31 - 1),
    )):  # fmt: skip
        identity = -2 if producer == -2 else (producer + number if producer >= 0 else -1)
        yield Case(f"producer: {label}", batch(producer_id=identity, epoch=epoch, sequence=sequence))

    for number, (epoch, sequence) in enumerate(((-1, 0), (-1, 7), (-1, 7), (0, 5), (0, 9), (-1, 0), (0, 8))):
        label = f"producer without an epoch, {number}: epoch {epoch}, sequence {sequence}"
        yield Case(label, batch(producer_id=2000, epoch=epoch, sequence=sequence))


def _of_codecs() -> Iterator[Case]:
    long = b"".join(record(number, value=field(NOISE * 20)) for number in range(100))
    skipped = b"\x50\x2a\x4d\x18" + struct.pack("<i", 4) + b"skip"
    yield from _of_every_codec(long)
    yield packed("two members", Compression.GZIP, two_members(THREE))
    yield from _of_lz4(long, skipped)
    yield from _of_zstd(long, skipped)
    yield from _of_snappy()


def packed(label: str, codec: Compression, data: bytes, **fields: int) -> Case:
    return Case(f"{codec.name.lower()} data: {label}", batch(codec=codec, packed=data, **fields))


def _of_every_codec(long: bytes) -> Iterator[Case]:
    for codec in list(Compression)[1:]:
        good = bytes(compress(codec, THREE))
        yield packed("noise", codec, NOISE)
        yield packed("plain records", codec, THREE)
        yield packed("nothing", codec, b"")
        yield packed("a byte less", codec, good[:-1])
        yield packed("half of it", codec, good[: len(good) // 2])
        yield packed("a byte more", codec, good + b"\0")
        yield packed("noise behind", codec, good + NOISE)
        yield packed("twice", codec, good * 2)
        yield packed("the first byte changed", codec, bytes([good[0] ^ 0xFF]) + good[1:])
        yield packed("the last byte changed", codec, good[:-1] + bytes([good[-1] ^ 0xFF]))
        yield packed("many blocks", codec, bytes(compress(codec, long)), count=100)
        zeros = bytes(compress(codec, record(value=field(bytes(1 << 20)))))
        yield packed("a record of a mebibyte of zeros", codec, zeros, count=1)
        yield packed("zeros behind, many", codec, bytes(compress(codec, THREE + bytes(1 << 20))))


def _of_lz4(long: bytes, skipped: bytes) -> Iterator[Case]:
    for label, options in (
        ("linked blocks", {"block_linked": True}),
        ("its size", {"store_size": True}),
        ("a checksum of the content", {"content_checksum": True}),
        ("checksums of the blocks", {"block_checksum": True}),
        ("blocks of 4 MiB", {"block_size": 7}),
        ("level 9", {"compression_level": 9}),
    ):
        yield packed(label, Compression.LZ4, lz4_frame(THREE, **options))
        yield packed(f"{label}, many blocks", Compression.LZ4, lz4_frame(long, **options), count=100)
    spoilt = lz4_frame(THREE, content_checksum=True)
    yield packed("a wrong checksum of the content", Compression.LZ4, spoilt[:-1] + bytes([spoilt[-1] ^ 1]))
    blocks = lz4_frame(THREE, block_checksum=True)
    yield packed("a wrong checksum of a block", Compression.LZ4, blocks[:-5] + bytes([blocks[-5] ^ 1]) + blocks[-4:])
    headed = lz4_frame(THREE)
    yield packed("a wrong checksum of the header", Compression.LZ4, headed[:6] + bytes([headed[6] ^ 1]) + headed[7:])
    sized = lz4_frame(THREE, store_size=True)
    yield packed("no end mark", Compression.LZ4, headed[:-4])
    yield packed("a reserved bit", Compression.LZ4, headed[:4] + bytes([headed[4] | 2]) + headed[5:])
    yield packed("a wrong size", Compression.LZ4, sized[:6] + bytes([sized[6] ^ 1]) + sized[7:])
    yield packed("a frame to skip first", Compression.LZ4, skipped + headed)
    yield packed("a frame to skip behind", Compression.LZ4, headed + skipped)


def _of_zstd(long: bytes, skipped: bytes) -> Iterator[Case]:
    plain = zstd_frame(THREE)
    yield packed("a frame to skip first", Compression.ZSTD, skipped + plain)
    yield packed("a frame to skip behind", Compression.ZSTD, plain + skipped)
    yield packed("a checksum", Compression.ZSTD, zstd_frame(THREE, write_checksum=True))
    checked = zstd_frame(THREE, write_checksum=True)
    yield packed("a wrong checksum", Compression.ZSTD, checked[:-1] + bytes([checked[-1] ^ 1]))
    yield packed("no size", Compression.ZSTD, zstd_frame(THREE, write_content_size=False))
    yield packed("level 22", Compression.ZSTD, zstd_frame(long, level=22), count=100)
    for version in (3, 6, 7):
        yield Case(f"zstd by v{version}", batch(codec=Compression.ZSTD), version=version)


def _of_snappy() -> Iterator[Case]:
    import snappy

    xerial = bytes(compress(Compression.SNAPPY, THREE))
    yield packed("one raw block", Compression.SNAPPY, snappy.compress(THREE))
    yield packed("one raw block and a byte", Compression.SNAPPY, snappy.compress(THREE) + b"\0")
    yield packed("another version", Compression.SNAPPY, xerial[:8] + struct.pack(">ii", 2, 1) + xerial[16:])
    yield packed("a version that is too new", Compression.SNAPPY, xerial[:8] + struct.pack(">ii", 9, 9) + xerial[16:])
    yield packed("a header alone", Compression.SNAPPY, xerial[:16])
    yield packed("an empty block", Compression.SNAPPY, xerial[:16] + struct.pack(">i", 1) + b"\0" + xerial[16:])
    yield packed("a block of no bytes", Compression.SNAPPY, xerial + struct.pack(">i", 0))
    yield packed("a block of -1 bytes", Compression.SNAPPY, xerial + struct.pack(">i", -1))
    yield packed("the header again", Compression.SNAPPY, xerial + xerial[:16])
    yield packed("the framing of snappy itself", Compression.SNAPPY, snappy.StreamCompressor().compress(THREE))


def _of_versions() -> Iterator[Case]:
    for version in (3, 5, 7, 8, 11, 12):
        yield Case(f"v{version}: noise", batch(NOISE), version=version)
        yield Case(f"v{version}: a key is missing", batch(record(key=field(None)), count=1), "compacted", version)


CASES: Final = tuple(chain(_of_records(), _of_topics(), _of_headers(), _of_producers(), _of_codecs(), _of_versions()))
