"""Validation of appended batches: sizes, checksums, formats, timestamps, keys, codecs."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded.log.log_validator import (
    InvalidRecords,
    InvalidTimestamps,
    TooLongForLoop,
    check_client_batch,
)
from pyclient.records import (
    BatchBuilder,
    Compression,
    check_crc,
    decode_batch,
    iter_batches,
    read_header,
    stamp_timestamp,
)
from pyclient.records.crc import crc32c
from pyclient.types import TIMESTAMP_LOG_APPEND

HOUR = 3_600_000


def send(fixture: Any, batch: bytes, **config: Any) -> Any:
    """Append a client's batch to a new log with these configs; the log."""
    fixture.configure(**config)
    log = fixture.open()
    log.append(batch, leader_epoch=0, now_ms=fixture.now)
    return log


def stored(log: Any) -> Any:
    """Return the header and the records of the one batch in a log; its checksum is right."""
    data = log.read_bytes(0, 1 << 20)
    [(position, header)] = iter_batches(data)
    check_crc(data, position, header)
    return header, decode_batch(data, position, header, "t", 0)


def patched(batch: bytearray, at: int, layout: str, value: int) -> bytearray:
    """Return the batch with one field of its header changed, and a right checksum."""
    struct.pack_into(layout, batch, at, value)
    header = read_header(batch)
    attributes = struct.unpack_from(">h", batch, 21)[0]
    stamp_timestamp(batch, 0, header, TIMESTAMP_LOG_APPEND if attributes & 8 else 0, header.max_timestamp)
    return batch


def test_every_changed_byte_is_refused(fixture: Any) -> None:
    log = fixture.open()
    batch = bytes(fixture.batch(b"value", producer_id=1, epoch=0, sequence=0))
    for at in range(len(batch)):
        changed = bytearray(batch)
        changed[at] ^= 0x41
        if 12 <= at < 16:
            continue  # the leader epoch: the leader's own to set
        with pytest.raises((errors.CorruptMessage, errors.InvalidRecord)):
            log.append(changed, leader_epoch=0, now_ms=fixture.now)
    assert log.end_offset == 0


def test_truncated_batches_are_refused(fixture: Any) -> None:
    log = fixture.open()
    batch = bytes(fixture.batch(b"value"))
    for size in range(len(batch)):
        with pytest.raises(errors.InvalidRecord):
            log.append(batch[:size], leader_epoch=0, now_ms=fixture.now)


def test_two_batches_at_once_are_refused(fixture: Any) -> None:
    with pytest.raises(errors.InvalidRecord, match="more than one batch"):
        send(fixture, fixture.batch() + fixture.batch())


def test_size_is_checked_first(fixture: Any) -> None:
    with pytest.raises(errors.MessageTooLarge, match=r"200 bytes, max\.message\.bytes is 100"):
        send(fixture, bytes(200), max_message_bytes=100)


@pytest.mark.parametrize(
    ("at", "layout", "value", "error"),
    [
        (0, ">q", 5, errors.InvalidRecord),  # base offset
        (16, ">b", 0, errors.InvalidRecord),  # old formats
        (16, ">b", 1, errors.InvalidRecord),
        (16, ">b", 3, errors.CorruptMessage),
        (21, ">h", 0x20, errors.InvalidRecord),  # control
        (21, ">h", 0x10, errors.InvalidRecord),  # transactional without a producer
        (21, ">h", 5, errors.UnsupportedCompressionType),
        (23, ">i", 1, errors.InvalidRecord),  # last offset delta
        (57, ">i", 0, errors.InvalidRecord),  # count
        (57, ">i", 2, errors.InvalidRecord),
        (43, ">q", 1, errors.InvalidRecord),  # producer without sequence and epoch
    ],
)
def test_impossible_headers_are_refused(fixture: Any, at: int, layout: str, value: int, error: Any) -> None:
    batch = fixture.batch()
    if at == 16:
        batch[16] = value
    else:
        batch = patched(batch, at, layout, value)
    with pytest.raises(error):
        send(fixture, batch)


def test_leader_epoch_of_a_client_is_ignored(fixture: Any) -> None:
    batch = fixture.batch()
    struct.pack_into(">i", batch, 12, 99)
    assert stored(send(fixture, batch))[0].leader_epoch == 0


def test_a_record_may_be_an_hour_ahead_and_no_more(fixture: Any) -> None:
    send(fixture, fixture.batch(timestamp_ms=fixture.now + HOUR))
    with pytest.raises(
        errors.InvalidTimestamp, match=r"3600001 ms ahead of the broker, message\.timestamp\.after\.max"
    ):
        send(fixture, fixture.batch(b"a", b"b", timestamp_ms=[fixture.now, fixture.now + HOUR + 1]))


def test_timestamp_limit_applies_to_every_record(fixture: Any) -> None:
    times = [fixture.now, fixture.now - 11, fixture.now]
    send(fixture, fixture.batch(b"a", b"b", b"c", timestamp_ms=times), message_timestamp_before_max_ms=11)
    with pytest.raises(errors.InvalidTimestamp, match="11 ms behind"):
        send(fixture, fixture.batch(b"a", b"b", b"c", timestamp_ms=times), message_timestamp_before_max_ms=10)
    send(fixture, fixture.batch(timestamp_ms=-1), message_timestamp_before_max_ms=10)


@pytest.mark.parametrize("codec", list(Compression))
def test_log_append_time_replaces_the_timestamps_of_records(fixture: Any, codec: Compression) -> None:
    batch = fixture.batch(b"a", b"b", timestamp_ms=[5, 2**40], compression=codec)
    log = send(fixture, batch, message_timestamp_type="LogAppendTime")
    header, records = stored(log)
    assert (header.timestamp_type, header.max_timestamp) == (TIMESTAMP_LOG_APPEND, fixture.now)
    assert {record.timestamp_ms for record in records} == {fixture.now}
    assert log.offset_for_timestamp(fixture.now)[:2] == (0, fixture.now)
    assert log.offset_for_timestamp(fixture.now + 1) is None
    assert log.append(fixture.batch(), leader_epoch=0, now_ms=fixture.now + 9).append_time_ms == fixture.now + 9


def test_log_append_time_of_a_client_is_not_accepted(fixture: Any) -> None:
    batch = patched(fixture.batch(timestamp_ms=fixture.now), 21, ">h", 8)
    with pytest.raises(errors.InvalidTimestamp):
        send(fixture, bytes(batch), message_timestamp_type="LogAppendTime")
    header, _ = stored(send(fixture, bytes(batch)))
    assert (header.timestamp_type, header.max_timestamp) == (0, fixture.now)
    with pytest.raises(errors.InvalidTimestamp):
        send(fixture, patched(fixture.batch(timestamp_ms=-1), 21, ">h", 8))


def test_compacted_topics_need_keys(fixture: Any) -> None:
    send(fixture, fixture.batch(b"a", key=b"k"), cleanup_policy=("compact",))
    for codec in Compression:
        with pytest.raises(errors.InvalidRecord, match="without a key"):
            send(fixture, fixture.batch(b"a", compression=codec), cleanup_policy=("delete", "compact"))


@pytest.mark.parametrize("codec", list(Compression))
def test_every_invalid_record_is_named(fixture: Any, codec: Compression) -> None:
    times = [fixture.now, fixture.now + 2 * HOUR, fixture.now, fixture.now + 2 * HOUR]
    values = [b"a", b"b", b"c", b"d"]
    batch = fixture.batch(*values, timestamp_ms=times, compression=codec)
    with pytest.raises(InvalidTimestamps, match=r"2 of the batch's 4 records cannot be taken; number 1: ") as refused:
        send(fixture, bytes(batch))
    assert refused.value.records.keys() == {1, 3}
    with pytest.raises(InvalidRecords, match=r"4 of the batch's 4 records .* number 0: ") as keyless:
        send(fixture, fixture.batch(*values, compression=codec), cleanup_policy=("compact",))
    assert keyless.value.records.keys() == {0, 1, 2, 3}


def test_wrong_time_goes_before_missing_keys_in_the_error(fixture: Any) -> None:
    builder = BatchBuilder(bytearray(1_000), None)
    for key, time in ((None, fixture.now), (b"k", fixture.now + 2 * HOUR), (None, fixture.now + 2 * HOUR)):
        builder.append_many(time, [key], [b"value"], None, 0, 1)
    with pytest.raises(InvalidTimestamps) as refused:
        send(fixture, bytes(builder.seal()), cleanup_policy=("compact",))
    assert ["without a key" in refused.value.records[number] for number in range(3)] == [True, False, True]


def test_records_that_cannot_be_read_are_refused_where_they_are_looked_at(fixture: Any) -> None:
    batch = fixture.batch(b"value", key=b"k")
    batch[61] = 0x7F
    with pytest.raises(errors.InvalidRecord):
        send(fixture, patched(batch, 21, ">h", 0), cleanup_policy=("compact",))


@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("sent", list(Compression))
def test_a_topics_codec_is_what_is_stored(fixture: Any, sent: Compression, wanted: str) -> None:
    values = [b"%d" % index * 100 for index in range(20)]
    times = [fixture.now + index for index in range(20)]
    batch = fixture.batch(*values, timestamp_ms=times, compression=sent, producer_id=1, epoch=2, sequence=3)
    header, records = stored(send(fixture, batch, compression_type=wanted))
    assert header.codec == (0 if wanted == "uncompressed" else Compression.from_name(wanted))
    assert [(record.value, record.timestamp_ms) for record in records] == list(zip(values, times, strict=True))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1, 2, 3)


def test_damaged_compression_is_refused_when_it_must_be_unpacked(fixture: Any) -> None:
    batch = fixture.batch(b"value" * 50, compression=Compression.LZ4)
    batch[61] ^= 0xFF
    with pytest.raises(errors.InvalidRecord):
        send(fixture, patched(batch, 57, ">i", 1), compression_type="zstd")


def test_undecodable_data_is_refused_whatever_the_topic_wants(fixture: Any) -> None:
    batch = fixture.batch(b"value" * 50, compression=Compression.LZ4)
    batch[61] ^= 0xFF
    with pytest.raises(errors.InvalidRecord, match="lz4 data cannot be decompressed"):
        send(fixture, patched(batch, 57, ">i", 1))


@pytest.mark.parametrize("bits", [0x40, 0x80, 0x4000])
def test_unknown_attribute_bits_are_stored(fixture: Any, bits: int) -> None:
    batch = patched(fixture.batch(timestamp_ms=fixture.now), 21, ">h", 0)
    struct.pack_into(">h", batch, 21, bits)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    assert stored(send(fixture, batch))[0].attributes == bits


def test_claimed_maximum_timestamp_is_replaced_by_the_records(fixture: Any) -> None:
    log = fixture.open()
    for claimed in (fixture.now + 5, fixture.now - 5, -1, fixture.now + 2 * HOUR):
        batch = fixture.batch(b"a", b"b", timestamp_ms=[fixture.now, fixture.now - 1])
        stamp_timestamp(batch, 0, read_header(batch), 0, claimed)
        info = log.append(batch, leader_epoch=0, now_ms=fixture.now)
        [(_, header)] = iter_batches(log.read_bytes(info.base_offset, 1))
        assert header.max_timestamp == fixture.now


def test_long_decompression_is_left_to_another_thread(fixture: Any) -> None:
    log = fixture.open()
    batch = fixture.batch(bytes(4 << 20), compression=Compression.GZIP)
    with pytest.raises(TooLongForLoop):
        log.append(bytes(batch), leader_epoch=0, now_ms=fixture.now, on_loop=True)
    checked = check_client_batch(memoryview(batch), log.config, fixture.now, "t-0")
    assert log.append(batch, leader_epoch=0, now_ms=fixture.now, checked=checked, on_loop=True).base_offset == 0


def test_checks_for_other_configs_do_not_count(fixture: Any) -> None:
    log = fixture.open()
    batch = fixture.batch(b"value")
    checked = check_client_batch(memoryview(batch), fixture.configure(), fixture.now, "t-0")
    log.config = fixture.configure(cleanup_policy=("compact",))
    with pytest.raises(errors.InvalidRecord, match="without a key"):
        log.append(batch, leader_epoch=0, now_ms=fixture.now, checked=checked)


@pytest.mark.parametrize("codec", list(Compression)[1:])
def test_expansion_beyond_the_limit_is_refused(
    fixture: Any, codec: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyclient.broker_embedded.log.log_validator.MAX_DECOMPRESSED", 1 << 20)
    batch = fixture.batch(bytes(1 << 20), compression=codec)
    with pytest.raises(errors.InvalidRecord, match="expands past the limit of 1048576 bytes"):
        send(fixture, batch)


def test_recompressed_batch_may_not_exceed_max_message_bytes(fixture: Any) -> None:
    batch = fixture.batch(bytes(100_000), compression=Compression.GZIP)
    send(fixture, bytes(batch), max_message_bytes=10_000)
    with pytest.raises(errors.MessageTooLarge, match=r"in the topic's compression, max\.message\.bytes is 10000"):
        send(fixture, batch, max_message_bytes=10_000, compression_type="uncompressed")
