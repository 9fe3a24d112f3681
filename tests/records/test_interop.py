"""Interoperability with the record codecs of other clients, in both directions."""

from __future__ import annotations

from typing import Any

import pytest

from pyclient.records import Compression, build_batch, control_type, murmur2, read_header

ROWS: list[Any] = [
    (1_700_000_000_000, b"key", b"value", ()),
    (1_700_000_000_500, None, b"", (("trace", b"1"), ("é", None), ("trace", b""))),
    (1_699_999_999_000, b"", None, ()),
    (1_700_000_000_000, b"k" * 1000, b"compress me " * 5000, (("h", b"x" * 200),)),
    *[(1_700_000_000_000 + number, b"%d" % number, b"value %d" % number, ()) for number in range(200)],
]
PEERS = {
    "aiokafka-c": ("aiokafka.record._crecords.default_records", "DefaultRecordBatch", ""),
    "aiokafka-py": ("aiokafka.record.default_records", "_DefaultRecordBatch", "Py"),
    "kafka-python": ("kafka.record.default_records", "DefaultRecordBatch", ""),
}


@pytest.fixture(params=PEERS)
def classes(request: pytest.FixtureRequest, peer: Any) -> Any:
    """Another client's classes that build and read a batch."""
    module, name, suffix = PEERS[request.param]
    return getattr(peer(module), f"{name}Builder{suffix}"), getattr(peer(module), f"{name}{suffix}")


def test_batches_of_other_clients_are_read(twin: Any, classes: Any, codec: Compression) -> None:
    builder = classes[0](
        magic=2, compression_type=int(codec), is_transactional=1, producer_id=77, producer_epoch=3, base_sequence=9,
        batch_size=1 << 20,
    )  # fmt: skip
    for offset, (timestamp, key, value, headers) in enumerate(ROWS):
        assert builder.append(offset, timestamp=timestamp, key=key, value=value, headers=list(headers)) is not None
    batch = bytes(builder.build())
    header = read_header(batch)
    assert (header.codec, header.producer_id, header.producer_epoch, header.base_sequence) == (codec, 77, 3, 9)
    assert header.is_transactional and header.count == len(ROWS)
    assert twin.rows(batch) == ROWS
    assert twin.columns(batch).count == len(ROWS)


def test_other_clients_read_written_batches(twin: Any, classes: Any, codec: Compression) -> None:
    batch = twin.build(ROWS, compression=codec, producer_id=77, base_offset=1000, transactional=True)
    theirs = classes[1](batch)
    assert theirs.validate_crc()
    assert theirs.base_offset == 1000 and theirs.is_transactional and not theirs.is_control_batch
    records = list(theirs)
    assert [(r.timestamp, r.key, r.value, tuple(r.headers)) for r in records] == ROWS
    assert [r.offset for r in records] == list(range(1000, 1000 + len(ROWS)))


def test_uncompressed_data_are_returned_unchanged(twin: Any, classes: Any) -> None:
    builder = classes[0](
        magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=1 << 20,
    )  # fmt: skip
    for offset, (timestamp, key, value, headers) in enumerate(ROWS):
        builder.append(offset, timestamp=timestamp, key=key, value=value, headers=list(headers))
    theirs = bytearray(builder.build())
    theirs[12:16] = b"\xff" * 4  # the other clients write leader epoch 0
    assert bytes(theirs) == twin.build(ROWS)


def test_control_marker_is_recognised_by_aiokafka(peer: Any) -> None:
    batch = build_batch([(b"\0\0\0\1", b"\0\0\0\0\0\7")], timestamp_ms=5, producer_id=1, control=True)
    theirs = peer("aiokafka.record.default_records").DefaultRecordBatch(batch)
    assert theirs.is_control_batch
    assert [control_type(record.key) for record in theirs] == [1]


def test_keys_hash_as_kafka_python_and_aiokafka_do(peer: Any) -> None:
    theirs, others = peer("aiokafka.partitioner").murmur2, peer("kafka.partitioner.default").murmur2
    for number in range(2000):
        key = b"x%d" % number * (number % 5)
        assert murmur2(key) & 0xFFFFFFFF == theirs(key) & 0xFFFFFFFF == others(key) & 0xFFFFFFFF
