"""What a client may append, and what becomes of it: sizes, checksums, formats, times, keys, codecs."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded.log.validate import (
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


def send(bench: Any, batch: bytes, **config: Any) -> Any:
    """Append a client's batch to a new log with these configs; the log."""
    bench.configure(**config)
    log = bench.open()
    log.append(batch, leader_epoch=0, now_ms=bench.now)
    return log


def stored(log: Any) -> Any:
    """The header and the records of the one batch in a log; its checksum is right."""
    data = log.read_bytes(0, 1 << 20)
    [(position, header)] = iter_batches(data)
    check_crc(data, position, header)
    return header, decode_batch(data, position, header, "t", 0)


def patched(batch: bytearray, at: int, layout: str, value: int) -> bytearray:
    """The batch with one field of its header changed, and a right checksum."""
    struct.pack_into(layout, batch, at, value)
    header = read_header(batch)
    attributes = struct.unpack_from(">h", batch, 21)[0]
    stamp_timestamp(batch, 0, header, TIMESTAMP_LOG_APPEND if attributes & 8 else 0, header.max_timestamp)
    return batch


def test_every_changed_byte_is_refused(bench: Any) -> None:
    log = bench.open()
    batch = bytes(bench.batch(b"value", producer_id=1, epoch=0, sequence=0))
    for at in range(len(batch)):
        changed = bytearray(batch)
        changed[at] ^= 0x41
        if 12 <= at < 16:
            continue  # the leader epoch: the leader's own to set
        with pytest.raises((errors.CorruptMessage, errors.InvalidRecord)):
            log.append(changed, leader_epoch=0, now_ms=bench.now)
    assert log.end_offset == 0


def test_every_batch_that_is_cut_is_refused(bench: Any) -> None:
    log = bench.open()
    batch = bytes(bench.batch(b"value"))
    for size in range(len(batch)):
        with pytest.raises(errors.InvalidRecord):
            log.append(batch[:size], leader_epoch=0, now_ms=bench.now)


def test_two_batches_at_once_are_refused(bench: Any) -> None:
    with pytest.raises(errors.InvalidRecord, match="more than one batch"):
        send(bench, bench.batch() + bench.batch())


def test_size_is_looked_at_first(bench: Any) -> None:
    with pytest.raises(errors.MessageTooLarge, match=r"200 bytes, max\.message\.bytes is 100"):
        send(bench, bytes(200), max_message_bytes=100)


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
def test_impossible_headers_are_refused(bench: Any, at: int, layout: str, value: int, error: Any) -> None:
    batch = bench.batch()
    if at == 16:
        batch[16] = value
    else:
        batch = patched(batch, at, layout, value)
    with pytest.raises(error):
        send(bench, batch)


def test_the_leader_epoch_a_client_sends_means_nothing(bench: Any) -> None:
    batch = bench.batch()
    struct.pack_into(">i", batch, 12, 99)
    assert stored(send(bench, batch))[0].leader_epoch == 0


def test_a_record_may_be_an_hour_ahead_and_no_more(bench: Any) -> None:
    send(bench, bench.batch(timestamp_ms=bench.now + HOUR))
    with pytest.raises(
        errors.InvalidTimestamp, match=r"3600001 ms ahead of the broker, message\.timestamp\.after\.max"
    ):
        send(bench, bench.batch(b"a", b"b", timestamp_ms=[bench.now, bench.now + HOUR + 1]))


def test_a_limit_on_old_records_looks_at_every_record(bench: Any) -> None:
    times = [bench.now, bench.now - 11, bench.now]
    send(bench, bench.batch(b"a", b"b", b"c", timestamp_ms=times), message_timestamp_before_max_ms=11)
    with pytest.raises(errors.InvalidTimestamp, match="11 ms behind"):
        send(bench, bench.batch(b"a", b"b", b"c", timestamp_ms=times), message_timestamp_before_max_ms=10)
    send(bench, bench.batch(timestamp_ms=-1), message_timestamp_before_max_ms=10)


@pytest.mark.parametrize("codec", list(Compression))
def test_the_brokers_time_takes_the_place_of_the_records(bench: Any, codec: Compression) -> None:
    batch = bench.batch(b"a", b"b", timestamp_ms=[5, 2**40], compression=codec)
    log = send(bench, batch, message_timestamp_type="LogAppendTime")
    header, records = stored(log)
    assert (header.timestamp_type, header.max_timestamp) == (TIMESTAMP_LOG_APPEND, bench.now)
    assert {record.timestamp_ms for record in records} == {bench.now}
    assert log.offset_for_timestamp(bench.now)[:2] == (0, bench.now)
    assert log.offset_for_timestamp(bench.now + 1) is None
    assert log.append(bench.batch(), leader_epoch=0, now_ms=bench.now + 9).append_time_ms == bench.now + 9


def test_a_client_may_not_claim_the_brokers_time(bench: Any) -> None:
    batch = patched(bench.batch(timestamp_ms=bench.now), 21, ">h", 8)
    with pytest.raises(errors.InvalidTimestamp):
        send(bench, bytes(batch), message_timestamp_type="LogAppendTime")
    header, _ = stored(send(bench, bytes(batch)))
    assert (header.timestamp_type, header.max_timestamp) == (0, bench.now)
    with pytest.raises(errors.InvalidTimestamp):
        send(bench, patched(bench.batch(timestamp_ms=-1), 21, ">h", 8))


def test_compacted_topics_need_keys(bench: Any) -> None:
    send(bench, bench.batch(b"a", key=b"k"), cleanup_policy=("compact",))
    for codec in Compression:
        with pytest.raises(errors.InvalidRecord, match="without a key"):
            send(bench, bench.batch(b"a", compression=codec), cleanup_policy=("delete", "compact"))


@pytest.mark.parametrize("codec", list(Compression))
def test_every_record_that_is_at_fault_is_named(bench: Any, codec: Compression) -> None:
    times = [bench.now, bench.now + 2 * HOUR, bench.now, bench.now + 2 * HOUR]
    values = [b"a", b"b", b"c", b"d"]
    batch = bench.batch(*values, timestamp_ms=times, compression=codec)
    with pytest.raises(InvalidTimestamps, match=r"2 of the batch's 4 records cannot be taken; number 1: ") as refused:
        send(bench, bytes(batch))
    assert refused.value.records.keys() == {1, 3}
    with pytest.raises(InvalidRecords, match=r"4 of the batch's 4 records .* number 0: ") as keyless:
        send(bench, bench.batch(*values, compression=codec), cleanup_policy=("compact",))
    assert keyless.value.records.keys() == {0, 1, 2, 3}


def test_one_wrong_time_beside_missing_keys_makes_the_error_that_of_times(bench: Any) -> None:
    builder = BatchBuilder(bytearray(1_000), None)
    for key, time in ((None, bench.now), (b"k", bench.now + 2 * HOUR), (None, bench.now + 2 * HOUR)):
        builder.append_many(time, [key], [b"value"], None, 0, 1)
    with pytest.raises(InvalidTimestamps) as refused:
        send(bench, bytes(builder.seal()), cleanup_policy=("compact",))
    assert ["without a key" in refused.value.records[number] for number in range(3)] == [True, False, True]


def test_records_that_cannot_be_read_are_refused_where_they_are_looked_at(bench: Any) -> None:
    batch = bench.batch(b"value", key=b"k")
    batch[61] = 0x7F
    with pytest.raises(errors.InvalidRecord):
        send(bench, patched(batch, 21, ">h", 0), cleanup_policy=("compact",))


@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("sent", list(Compression))
def test_a_topics_codec_is_what_is_stored(bench: Any, sent: Compression, wanted: str) -> None:
    values = [b"%d" % index * 100 for index in range(20)]
    times = [bench.now + index for index in range(20)]
    batch = bench.batch(*values, timestamp_ms=times, compression=sent, producer_id=1, epoch=2, sequence=3)
    header, records = stored(send(bench, batch, compression_type=wanted))
    assert header.codec == (0 if wanted == "uncompressed" else Compression.from_name(wanted))
    assert [(record.value, record.timestamp_ms) for record in records] == list(zip(values, times, strict=True))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1, 2, 3)


def test_what_cannot_be_unpacked_is_refused_when_it_must_be(bench: Any) -> None:
    batch = bench.batch(b"value" * 50, compression=Compression.LZ4)
    batch[61] ^= 0xFF
    with pytest.raises(errors.InvalidRecord):
        send(bench, patched(batch, 57, ">i", 1), compression_type="zstd")


def test_undecodable_data_is_refused_whatever_the_topic_wants(bench: Any) -> None:
    batch = bench.batch(b"value" * 50, compression=Compression.LZ4)
    batch[61] ^= 0xFF
    with pytest.raises(errors.InvalidRecord, match="lz4 data cannot be decompressed"):
        send(bench, patched(batch, 57, ">i", 1))


@pytest.mark.parametrize("bits", [0x40, 0x80, 0x4000])
def test_unknown_attribute_bits_are_stored(bench: Any, bits: int) -> None:
    batch = patched(bench.batch(timestamp_ms=bench.now), 21, ">h", 0)
    struct.pack_into(">h", batch, 21, bits)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    assert stored(send(bench, batch))[0].attributes == bits


def test_claimed_maximum_timestamp_is_replaced_by_the_records(bench: Any) -> None:
    log = bench.open()
    for claimed in (bench.now + 5, bench.now - 5, -1, bench.now + 2 * HOUR):
        batch = bench.batch(b"a", b"b", timestamp_ms=[bench.now, bench.now - 1])
        stamp_timestamp(batch, 0, read_header(batch), 0, claimed)
        info = log.append(batch, leader_epoch=0, now_ms=bench.now)
        [(_, header)] = iter_batches(log.read_bytes(info.base_offset, 1))
        assert header.max_timestamp == bench.now


def test_long_decompression_is_left_to_another_thread(bench: Any) -> None:
    log = bench.open()
    batch = bench.batch(bytes(4 << 20), compression=Compression.GZIP)
    with pytest.raises(TooLongForLoop):
        log.append(bytes(batch), leader_epoch=0, now_ms=bench.now, on_loop=True)
    checked = check_client_batch(memoryview(batch), log.config, bench.now, "t-0")
    assert log.append(batch, leader_epoch=0, now_ms=bench.now, checked=checked, on_loop=True).base_offset == 0


def test_checks_for_other_configs_do_not_count(bench: Any) -> None:
    log = bench.open()
    batch = bench.batch(b"value")
    checked = check_client_batch(memoryview(batch), bench.configure(), bench.now, "t-0")
    log.config = bench.configure(cleanup_policy=("compact",))
    with pytest.raises(errors.InvalidRecord, match="without a key"):
        log.append(batch, leader_epoch=0, now_ms=bench.now, checked=checked)


@pytest.mark.parametrize("codec", list(Compression)[1:])
def test_expansion_beyond_the_limit_is_refused(bench: Any, codec: Compression, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyclient.broker_embedded.log.validate.MAX_DECOMPRESSED", 1 << 20)
    batch = bench.batch(bytes(1 << 20), compression=codec)
    with pytest.raises(errors.InvalidRecord, match="expands past the limit of 1048576 bytes"):
        send(bench, batch)


def test_recompressed_batch_may_not_exceed_max_message_bytes(bench: Any) -> None:
    batch = bench.batch(bytes(100_000), compression=Compression.GZIP)
    send(bench, bytes(batch), max_message_bytes=10_000)
    with pytest.raises(errors.MessageTooLarge, match=r"in the topic's compression, max\.message\.bytes is 10000"):
        send(bench, batch, max_message_bytes=10_000, compression_type="uncompressed")
