"""Messages of magic 0 and 1, the formats before Kafka 0.11."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.errors import CorruptRecord
from pyclient.records import Compression, check_crc, compress, iter_batches, read_header
from pyclient.types import TIMESTAMP_CREATE, TIMESTAMP_LOG_APPEND, TIMESTAMP_NONE

Message = tuple[int, int, bytes | None, bytes | None]  # offset, timestamp, key, value
CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
SAMPLE: list[Message] = [(10, 1000, b"key", b"value"), (11, 999, None, b""), (14, 1005, b"", None)]


def sized(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def message(
    magic: int, offset: int, timestamp: int, key: bytes | None, value: bytes | None, attributes: int = 0
) -> bytes:
    body = struct.pack(">bb", magic, attributes)
    if magic == 1:
        body += struct.pack(">q", timestamp)
    body += sized(key) + sized(value)
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(
    magic: int, codec: Compression, messages: list[Message], *, offset: int | None = None, flags: int = 0
) -> bytes:
    """Wrap messages as a broker stores them: the offset of the last one; with magic 1 relative offsets from 0."""
    first = messages[0][0] if magic == 1 else 0
    inner = b"".join(message(magic, number - first, *rest) for number, *rest in messages)
    return message(magic, messages[-1][0], messages[-1][1], None, bytes(compress(codec, inner)), codec | flags)


def rows(twin: Any, data: bytes, **options: Any) -> list[Any]:
    found = []
    for position, header in iter_batches(data):
        check_crc(data, position, header)
        records = twin.module.decode_batch(data, position, header, "old", 1, **options)
        found += [(r.offset, r.timestamp_ms, r.key, r.value, r.headers, r.timestamp_type) for r in records]
    return found


def expected(magic: int, messages: list[Message], kind: int = TIMESTAMP_CREATE) -> list[Any]:
    return [
        (offset, timestamp if magic else -1, key, value, (), kind if magic else TIMESTAMP_NONE)
        for offset, timestamp, key, value in messages
    ]


@pytest.mark.parametrize("magic", [0, 1])
def test_plain_messages_are_read_one_by_one(twin: Any, magic: int) -> None:
    data = b"".join(message(magic, *parts) for parts in SAMPLE)
    assert rows(twin, data) == expected(magic, SAMPLE)
    header = read_header(data)
    assert (header.magic, header.base_offset, header.next_offset, header.count) == (magic, 10, 11, 1)
    assert header.max_timestamp == (1000 if magic else -1)
    assert not header.is_control and not header.is_transactional


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name.lower())
def test_wrapped_messages_are_read_with_their_own_offsets(twin: Any, magic: int, codec: Compression) -> None:
    data = wrapper(magic, codec, SAMPLE)
    assert read_header(data).next_offset == 15
    assert rows(twin, data) == expected(magic, SAMPLE)
    assert rows(twin, data, from_offset=11, to_offset=14) == expected(magic, SAMPLE[1:2])
    columns = twin.columns(data)
    assert memoryview(columns.offsets).cast("B").cast("q").tolist() == [10, 11, 14]


def test_log_append_time_of_wrapper_applies_to_every_message(twin: Any) -> None:
    data = wrapper(1, Compression.GZIP, SAMPLE, flags=8)
    messages = [(offset, 1005, key, value) for offset, _, key, value in SAMPLE]
    assert rows(twin, data) == expected(1, messages, TIMESTAMP_LOG_APPEND)


@pytest.mark.parametrize("store_size", [False, True])
def test_lz4_frames_with_kafkas_old_checksum_are_read(twin: Any, store_size: bool) -> None:
    inner = message(0, 5, -1, b"k", b"v" * 100)
    frame = bytearray(lz4.frame.compress(inner, store_size=store_size))
    frame[14 if store_size else 6] ^= 0xFF
    with pytest.raises(RuntimeError):
        lz4.frame.decompress(frame)
    data = message(0, 5, -1, None, bytes(frame), Compression.LZ4)
    assert rows(twin, data) == expected(0, [(5, -1, b"k", b"v" * 100)])
    with pytest.raises(CorruptRecord, match="lz4"):
        rows(twin, message(1, 5, -1, None, bytes(frame), Compression.LZ4))


# kafka-python writes the old lz4 checksum of magic 0 only with xxhash, which is not installed.
WRITTEN = [(magic, codec) for magic in (0, 1) for codec in (Compression.NONE, *CODECS) if (magic, codec) != (0, 3)]


@pytest.mark.parametrize(("magic", "codec"), WRITTEN)
def test_kafka_python_and_this_library_read_each_others_records(
    twin: Any, peer: Any, magic: int, codec: Compression
) -> None:
    kafka = peer("kafka.record.legacy_records")
    builder = kafka.LegacyRecordBatchBuilder(magic=magic, compression_type=int(codec), batch_size=1 << 20)
    for offset in range(5):
        builder.append(offset, timestamp=1000 + offset, key=b"k%d" % offset, value=None if offset == 3 else b"v" * 50)
    data = bytearray(builder.build())
    if codec != Compression.NONE:
        struct.pack_into(">q", data, 0, 4)
    messages = [(n, 1000 + n, b"k%d" % n, None if n == 3 else b"v" * 50) for n in range(5)]
    assert rows(twin, data) == expected(magic, messages)
    if codec == Compression.NONE:
        return
    theirs = list(kafka.LegacyRecordBatch(bytearray(wrapper(magic, codec, messages)), magic))
    assert [(r.offset, r.key, r.value) for r in theirs] == [(n, key, value) for n, _, key, value in messages]


@given(
    magic=st.integers(0, 1),
    codec=st.sampled_from([Compression.NONE, *CODECS]),
    place=st.integers(0, 10_000),
    value=st.integers(0, 255),
    end=st.one_of(st.none(), st.integers(0, 200)),
)
def test_mangled_messages_raise_same_error_in_both_twins(
    twins: tuple[Any, Any], magic: int, codec: Compression, place: int, value: int, end: int | None
) -> None:
    data = bytearray(wrapper(magic, codec, SAMPLE) if codec else message(magic, *SAMPLE[0]))
    data[17 + place % (len(data) - 17)] = value
    if end is not None:
        del data[max(end, 40) :]
        struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">I", data, 12, zlib.crc32(data[16:]))
    outcomes: list[Any] = []
    for twin in twins:
        try:
            outcomes.append(rows(twin, bytes(data)))
        except CorruptRecord as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


def wrapping(inner: bytes, magic: int = 1, codec: Compression = Compression.GZIP, offset: int = 9) -> bytes:
    return message(magic, offset, 0, None, bytes(compress(codec, inner)), codec)


GOOD = message(1, 0, 0, b"k", b"v")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (message(1, 9, 0, None, None, 1), "a message with compression gzip has no value or an unsupported codec"),
        (message(1, 9, 0, None, b"x", 4), "a message with compression zstd has no value or an unsupported codec"),
        (wrapping(b""), "inside its wrapper: a record batch header ends early"),
        (wrapping(GOOD[:10]), "inside its wrapper: a record batch header ends early"),
        (wrapping(GOOD + GOOD[:-1]), "a wrapper's last message ends early"),
        (wrapping(message(0, 0, 0, b"k", b"v")), "a wrapper holds a message of another format, or another wrapper"),
        (wrapping(wrapping(GOOD)), "a wrapper holds a message of another format, or another wrapper"),
        (wrapping(GOOD[:-1] + b"w"), "a message's CRC is"),
        (wrapping(GOOD + GOOD), "record 1 has an offset delta out of order"),
        (wrapping(message(1, 5, 0, None, b"") + GOOD), "its offsets are out of range"),
        (wrapping(GOOD + message(1, 2**40, 0, None, b"")), "its offsets are out of range"),
        (wrapping(GOOD, offset=-5), "its offsets are out of range"),
        (message(1, 9, 0, b"k", b"v")[:-1], "ends early"),
    ],
)
def test_impossible_messages_are_corrupt(twin: Any, data: bytes, words: str) -> None:
    with pytest.raises(CorruptRecord, match=r"old-1: batch at offset -?\d+.*" + words):
        twin.module.decode_batch(data, 0, read_header(data), "old", 1)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (struct.pack(">i", -2), sized(b"v"), "a message states -2 bytes where 5 are left"),
        (struct.pack(">i", 100) + b"k", sized(b"v"), "a message states 100 bytes where"),
        (sized(b"k"), struct.pack(">i", 2**31 - 1) + b"v", "a message states 2147483647 bytes where 1 are left"),
        (sized(b"k"), sized(b"v") + b"more", "a message is longer than its content"),
        (sized(b"key and more"), b"", "a message ends early"),
    ],
)
def test_lengths_inside_message_are_checked(twin: Any, key: bytes, value: bytes, words: str) -> None:
    body = struct.pack(">bbq", 1, 0, 0) + key + value
    data = struct.pack(">qiI", 9, len(body) + 4, zlib.crc32(body)) + body
    with pytest.raises(CorruptRecord, match=f"old-1: batch at offset 9: {words}"):
        twin.module.decode_batch(data, 0, read_header(data), "old", 1)


def test_wrapper_that_expands_past_limit_is_refused(twin: Any) -> None:
    data = wrapping(message(1, 0, 0, None, bytes(100_000)))
    with pytest.raises(CorruptRecord, match="old-1: batch at offset 9: gzip data expands past the limit of 1000 bytes"):
        twin.module.decode_batch(data, 0, read_header(data), "old", 1, max_size=1000)
