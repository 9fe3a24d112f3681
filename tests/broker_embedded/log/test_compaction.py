"""Compaction keeps the last value of each key under its own offset, and loses nothing that is still needed."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded.log.incremental_task import run_here
from pyclient.records import Compression
from tests.broker_embedded.log.compaction_tools import CODECS, DAY, compact, compactor, keyed, pairs, put


def batches(log: Any) -> list[Any]:
    """Return the headers of all batches, as they are stored."""
    return [header for segment in log.segments for _, header in segment.records.walk(0)]


@pytest.fixture
def log(fixture: Any) -> Any:
    fixture.configure(cleanup_policy=("compact",))
    return fixture.open()


def test_the_last_value_of_each_key_stays_at_its_offset(fixture: Any, log: Any) -> None:
    put(fixture, log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    log.roll()
    put(fixture, log, (b"b", b"2"), (b"c", b"1"))
    assert compact(fixture, log) == 1
    expected = [(2, b"a", b"2"), (3, b"b", b"2"), (4, b"c", b"1")]
    assert pairs(fixture, log) == expected
    assert (log.start_offset, log.end_offset, log.cleaned_to) == (0, 5, 5)
    assert pairs(fixture, fixture.reopen(log)) == expected


def test_batch_without_removed_records_is_not_changed(fixture: Any, log: Any) -> None:
    put(fixture, log, (b"a", b"1"), (b"b", b"1"), compression=Compression.ZSTD)
    before = log.read_bytes(0, 1 << 20)
    compact(fixture, log)
    assert log.read_bytes(0, 1 << 20) == before


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_loses_records_keeps_everything_else(fixture: Any, log: Any, codec: Compression) -> None:
    rows = [(b"k%d" % (n % 7), b"value %d" % n) for n in range(40)]
    put(fixture, log, *rows, compression=codec, producer_id=5, producer_epoch=1, base_sequence=0)
    (before,) = batches(log)
    kept = fixture.records(log)[-7:]
    compact(fixture, log)
    (after,) = batches(log)
    assert fixture.records(log) == kept
    for name in ("base_offset", "last_offset_delta", "producer_id", "producer_epoch", "base_sequence", "codec"):
        assert getattr(after, name) == getattr(before, name), name
    assert (after.count, after.max_timestamp, after.base_timestamp) == (7, fixture.now + 39, fixture.now)


def test_batches_of_many_records_are_cleaned_in_pieces(fixture: Any, log: Any) -> None:
    rows = [(b"k%d" % (n % 3000), b"%d" % n) for n in range(5000)]
    put(fixture, log, *rows, compression=Compression.LZ4)
    compact(fixture, log)
    newest = dict(rows)
    assert [(key, value) for _, key, value in pairs(fixture, log)] == [row for row in rows if newest[row[0]] == row[1]]


def test_a_tombstone_stays_for_delete_retention_from_the_first_cleaning_on(fixture: Any) -> None:
    fixture.configure(cleanup_policy=("compact",), delete_retention_ms=1000)
    log = fixture.open()
    put(fixture, log, (b"a", b"1"), (b"b", b"1"))
    put(fixture, log, (b"a", None), (b"c", b"1"))
    compact(fixture, log, after_ms=DAY)
    expected = [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1")]
    assert pairs(fixture, log) == expected
    header = batches(log)[-1]
    assert (header.has_delete_horizon, header.base_timestamp) == (True, fixture.now + DAY + 1000)
    assert [record.timestamp_ms for record in fixture.records(log)][-2:] == [fixture.now, fixture.now + 1]
    compact(fixture, log, after_ms=DAY + 999)
    assert pairs(fixture, log) == expected
    compact(fixture, log, after_ms=DAY + 1000)
    assert pairs(fixture, log) == [(1, b"b", b"1"), (3, b"c", b"1")]
    assert [record.timestamp_ms for record in fixture.records(log)] == [fixture.now + 1, fixture.now + 1]


def test_active_and_young_segments_are_not_cleaned(fixture: Any) -> None:
    fixture.configure(cleanup_policy=("compact",), min_compaction_lag_ms=10_000)
    log = fixture.open()
    put(fixture, log, (b"a", b"1"), (b"a", b"2"))
    log.roll()
    assert run_here(compactor(fixture).due([log], fixture.now)) == 0
    assert run_here(compactor(fixture).due([log], fixture.now + 10_002)) == 1
    put(fixture, log, (b"a", b"3"))
    log.cleaned_to = 0
    assert run_here(compactor(fixture).due([log], fixture.now + DAY)) == 1
    assert pairs(fixture, log) == [(1, b"a", b"2"), (2, b"a", b"3")]


def test_undecided_records_are_not_compacted(fixture: Any, log: Any) -> None:
    put(fixture, log, (b"a", b"1"))
    log.roll()
    put(fixture, log, (b"a", b"2"), producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    assert compact(fixture, log) == 1
    assert pairs(fixture, log) == [(0, b"a", b"1"), (1, b"a", b"2")]
    fixture.end(log, 1, 0, commit=True)
    assert compact(fixture, log) == 1
    assert [row for row in pairs(fixture, log) if row[1] == b"a"] == [(1, b"a", b"2")]


def test_log_is_cleaned_when_it_is_dirty_enough(fixture: Any) -> None:
    fixture.configure(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.5)
    log = fixture.open()
    for n in range(3):
        put(fixture, log, (b"%d" % n, b"x"))
        log.roll()
    assert run_here(compactor(fixture).due([log], fixture.now)) == 1
    put(fixture, log, (b"3", b"x"))
    log.roll()
    assert run_here(compactor(fixture).due([log], fixture.now)) == 0
    for n in range(3):
        put(fixture, log, (b"%d" % n, b"y"))
        log.roll()
    assert run_here(compactor(fixture).due([log], fixture.now)) == 1


def test_log_is_cleaned_after_max_compaction_lag(fixture: Any) -> None:
    fixture.configure(cleanup_policy=("compact",), min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000)
    log = fixture.open()
    put(fixture, log, (b"a", b"1"), (b"a", b"2"))
    log.roll()
    assert run_here(compactor(fixture).due([log], fixture.now + 1001)) == 0
    assert run_here(compactor(fixture).due([log], fixture.now + 1002)) == 1


def test_segment_of_compacted_topic_is_rolled_after_max_compaction_lag(fixture: Any) -> None:
    fixture.configure(cleanup_policy=("compact",), max_compaction_lag_ms=1000)
    log = fixture.open()
    for later in (0, 1000, 1001):
        log.append(keyed((b"a", b"1"), timestamp_ms=fixture.now + later), leader_epoch=0, now_ms=fixture.now)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_producer_continues_after_its_records_were_compacted(fixture: Any, log: Any) -> None:
    put(fixture, log, (b"a", b"1"), (b"a", b"2"), producer_id=7, producer_epoch=3, base_sequence=0)
    put(fixture, log, (b"a", b"3"))
    compact(fixture, log)
    assert pairs(fixture, log) == [(2, b"a", b"3")]
    log = fixture.crash(log, recovery_point=0)
    again = {"producer_id": 7, "producer_epoch": 3}
    assert put(fixture, log, (b"a", b"1"), (b"a", b"2"), base_sequence=0, **again).duplicate
    with pytest.raises(errors.OutOfOrderSequenceNumber):
        put(fixture, log, (b"a", b"4"), base_sequence=3, **again)
    put(fixture, log, (b"a", b"4"), base_sequence=2, **again)


def test_empty_batch_marks_the_end_of_the_cleaned_part(fixture: Any, log: Any) -> None:
    fixture.configure(cleanup_policy=("compact",), delete_retention_ms=0)
    log.config = fixture.config
    put(fixture, log, (b"a", None))
    compact(fixture, log)
    compact(fixture, log, after_ms=1)
    assert (pairs(fixture, log), [header.next_offset for header in batches(log)]) == ([], [1])
    put(fixture, log, (b"b", b"1"))
    compact(fixture, log, after_ms=1)
    assert pairs(fixture, log) == [(1, b"b", b"1")]


def test_aborted_records_go_and_the_marker_stays_until_they_are_gone(fixture: Any) -> None:
    fixture.configure(cleanup_policy=("compact",), delete_retention_ms=1000)
    log = fixture.open()
    producer = {"producer_id": 1, "producer_epoch": 0, "transactional": True}
    put(fixture, log, (b"a", b"kept"))
    put(fixture, log, (b"a", b"aborted"), (b"b", b"aborted"), base_sequence=0, **producer)
    fixture.end(log, 1, 0, commit=False)
    put(fixture, log, (b"c", b"committed"), base_sequence=2, **producer)
    fixture.end(log, 1, 0, commit=True)
    compact(fixture, log)
    assert pairs(fixture, log)[0] == (0, b"a", b"kept")
    markers = [header for header in batches(log) if header.is_control]
    assert [header.base_offset for header in markers] == [3, 5]
    assert [row[2] for row in pairs(fixture, log) if row[1] in (b"a", b"b", b"c")] == [b"kept", b"committed"]
    for after_ms in (0, 1000):
        compact(fixture, log, after_ms=after_ms)
    markers = [header for header in batches(log) if header.is_control]
    assert [header.base_offset for header in markers] == [5]  # its transaction still has data here


def test_aborted_transaction_is_listed_as_long_as_data_may_remain(fixture: Any, log: Any) -> None:
    producer = {"producer_id": 1, "producer_epoch": 0, "transactional": True}
    put(fixture, log, (b"a", b"aborted"), base_sequence=0, **producer)
    log.roll()
    put(fixture, log, (b"b", b"aborted"), base_sequence=1, **producer)
    fixture.end(log, 1, 0, commit=False)
    put(fixture, log, (b"c", b"1"))
    assert compact(fixture, log) == 1
    assert [row for row in pairs(fixture, log) if row[1] in (b"a", b"b", b"c")] == [(3, b"c", b"1")]
    assert log.read(0, 1 << 20, isolation="committed").aborted == [(1, 0)]
    assert fixture.reopen(log).read(0, 1 << 20, isolation="committed").aborted == [(1, 0)]


def test_small_segments_become_one_and_no_larger_than_a_segment(fixture: Any) -> None:
    fixture.configure(cleanup_policy=("compact",), segment_bytes=400)
    log = fixture.open()
    for n in range(30):
        put(fixture, log, (b"k%d" % n, b"x" * 20))
    assert len(log.segments) == 8
    for n in range(0, 30, 2):
        put(fixture, log, (b"k%d" % n, b"y" * 20))
    expected = [
        row for row in pairs(fixture, log) if not (row[2] or b"").startswith(b"x") or int((row[1] or b"")[1:]) % 2
    ]
    compact(fixture, log)
    compact(fixture, log)
    assert pairs(fixture, log) == expected
    assert [segment.base_offset for segment in log.segments] == [0, 8, 16, 24, 28, 32, 36, 40, 44, 45]
    assert all(segment.size <= 400 for segment in log.segments)
    names = [name for name in fixture.names() if not name.startswith(("0", "leader", "partition"))]
    assert not names
    assert pairs(fixture, fixture.reopen(log)) == expected


def test_the_time_of_a_kept_record_is_found(fixture: Any, log: Any) -> None:
    for n in range(20):
        batch = keyed((b"k%d" % (n % 4), b"%d" % n), timestamp_ms=fixture.now + 1000 * n)
        log.append(batch, leader_epoch=0, now_ms=fixture.now)
    compact(fixture, log)
    assert log.offset_for_timestamp(fixture.now).offset == 16
    assert log.offset_for_timestamp(fixture.now + 17_500).offset == 18
    assert log.latest_timestamp_offset().offset == 19
    assert fixture.reopen(log).offset_for_timestamp(fixture.now + 17_500).offset == 18


def old_message(offset: int, key: bytes, value: bytes, timestamp_ms: int) -> bytes:
    """Return a message of magic 1, as Kafka 0.10 wrote it."""
    body = struct.pack(">bbqi", 1, 0, timestamp_ms, len(key)) + key + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def test_old_formats_are_compacted_as_well(fixture: Any, log: Any) -> None:
    for offset, (key, value) in enumerate(((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))):
        message = memoryview(old_message(offset, key, value, fixture.now))
        log.local.append(log.segments.active, message, offset, fixture.now)
        log.high_watermark = offset + 1
    compact(fixture, log)
    assert pairs(fixture, log) == [(1, b"b", b"1"), (2, b"a", b"2")]
