"""Old data goes: by age, by size, and where DeleteRecords said so; by whole segments, oldest first."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.broker_embedded.log.config import LogConfig
from pyclient.broker_embedded.log.retention import SegmentFacts, expired


def rolled(fixture: Any, count: int = 4, **config: Any) -> Any:
    """Return a log of `count` segments of one batch each, the newest one active, a second apart."""
    fixture.configure(**config)
    log = fixture.open()
    for index in range(count):
        log.roll()
        fixture.append(log, b"%d" % index, timestamp_ms=fixture.now + 1000 * index)
    return log


def test_segments_go_when_their_newest_record_is_too_old(fixture: Any) -> None:
    log = rolled(fixture, retention_ms=5000)
    assert log.apply_retention(fixture.now + 5000) == 0
    assert log.apply_retention(fixture.now + 6001) == 2
    assert (log.start_offset, fixture.values(log)) == (2, [b"2", b"3"])
    assert [name for name in fixture.names() if name.endswith(".log")] == [f"{2:020}.log", f"{3:020}.log"]


def test_the_active_segment_goes_as_well_and_offsets_go_on(fixture: Any) -> None:
    log = rolled(fixture, retention_ms=5000)
    assert log.apply_retention(fixture.now + 100_000) == 4
    assert (log.start_offset, log.end_offset, log.size) == (4, 4, 0)
    assert log.apply_retention(fixture.now + 100_000) == 0
    assert fixture.append(log, b"new").base_offset == 4
    assert fixture.values(fixture.reopen(log)) == [b"new"]


def test_a_log_that_was_emptied_keeps_its_offsets_over_a_restart(fixture: Any) -> None:
    log = rolled(fixture, retention_ms=5000)
    log.apply_retention(fixture.now + 100_000)
    log.close()
    log = fixture.open(start_offset=log.start_offset)
    assert (log.start_offset, log.end_offset) == (4, 4)


def test_the_oldest_segments_go_until_the_size_is_right(fixture: Any) -> None:
    size = len(fixture.batch(b"0"))
    log = rolled(fixture, retention_ms=-1, retention_bytes=2 * size + size // 2)
    assert log.apply_retention(fixture.now) == 1
    log.config = LogConfig(retention_ms=-1, retention_bytes=2 * size, file_delete_delay_ms=0)
    assert log.apply_retention(fixture.now) == 1
    assert log.size == 2 * size


def test_retention_without_limits_removes_nothing(fixture: Any) -> None:
    assert rolled(fixture, retention_ms=-1, retention_bytes=-1).apply_retention(10**15) == 0


def test_a_compacted_topic_loses_only_what_is_before_its_start(fixture: Any) -> None:
    fixture.configure(cleanup_policy=("compact",), retention_ms=1, retention_bytes=0)
    log = fixture.open()
    for _ in range(3):
        log.roll()
        fixture.append(log, b"v", key=b"k")
    assert log.apply_retention(10**15) == 0
    log.delete_records_before(2)
    assert log.apply_retention(10**15) == 2
    assert fixture.names()[0].startswith(f"{2:020}")


def test_retention_keeps_uncommitted_segments(fixture: Any) -> None:
    fixture.configure(retention_ms=1)
    log = fixture.open(high_watermark=0)
    for _ in range(3):
        log.roll()
        fixture.append(log)
    log.advance_high_watermark(1)
    assert log.apply_retention(10**15) == 1
    assert log.start_offset == 1


def test_records_without_a_time_are_as_old_as_their_file(fixture: Any) -> None:
    fixture.configure(retention_ms=5000)
    log = fixture.open()
    fixture.append(log, timestamp_ms=-1)
    path = fixture.path(f"{0:020}.log")
    os.utime(path, (fixture.now / 1000, fixture.now / 1000))
    assert log.apply_retention(fixture.now + 5000) == 0
    assert log.apply_retention(fixture.now + 5001) == 1


def test_deleted_files_stay_for_a_while(fixture: Any) -> None:
    log = rolled(fixture, retention_ms=5000, file_delete_delay_ms=100)
    log.apply_retention(fixture.now + 6001)
    gone = [name for name in fixture.names() if name.endswith(".deleted")]
    assert f"{0:020}.log.deleted" in gone
    log.apply_retention(fixture.now + 6100)
    assert [name for name in fixture.names() if name.endswith(".deleted")] == gone
    log.apply_retention(fixture.now + 6101)
    assert not [name for name in fixture.names() if name.endswith(".deleted")]


def test_a_reader_of_a_deleted_segment_reads_on(fixture: Any) -> None:
    log = rolled(fixture, retention_ms=5000)
    read = log.read(0, 1000)
    log.apply_retention(fixture.now + 6001)
    assert b"0" in read.parts[0].read()
    read.parts[0].release()


def test_epochs_before_the_start_are_forgotten(fixture: Any) -> None:
    fixture.configure(retention_ms=5000)
    log = fixture.open()
    for epoch in range(4):
        log.roll()
        fixture.append(log, leader_epoch=epoch, timestamp_ms=fixture.now + 1000 * epoch)
    log.apply_retention(fixture.now + 6001)
    assert log.end_offset_for_epoch(0) == (0, 2)
    assert fixture.path("leader-epoch-checkpoint").read_text() == "0\n2\n2 2\n3 3\n"


_FACTS = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 50), st.integers(0, 20)), min_size=1, max_size=8)


@given(_FACTS, st.integers(-1, 20), st.integers(-1, 120), st.integers(0, 40), st.integers(0, 40), st.booleans())
def test_retention_deletes_the_longest_prefix_that_may_go(
    rows: list[tuple[int, int, int]], age: int, limit: int, start: int, high_watermark: int, deletes: bool
) -> None:
    segments, end = [], 0
    for length, size, timestamp in rows:
        end += length
        segments.append(SegmentFacts(end, size, timestamp))
    policy = ("delete",) if deletes else ("compact",)
    config = LogConfig(cleanup_policy=policy, retention_ms=age, retention_bytes=limit)
    count = expired(segments, config, now_ms=20, start_offset=start, high_watermark=high_watermark)
    assert all(segment.end_offset <= high_watermark for segment in segments[:count])
    for index in range(count + 1):
        rest = sum(segment.size for segment in segments[index:])
        if index == len(segments):
            continue
        segment = segments[index]
        reasons = [
            deletes and age >= 0 and 20 - segment.timestamp > age,
            deletes and limit >= 0 and rest - segment.size >= limit,
            segment.end_offset <= start,
        ]
        if index < count:
            assert any(reasons)
        else:
            is_empty_and_active = index + 1 == len(segments) and segment.size == 0
            assert not any(reasons) or segment.end_offset > high_watermark or is_empty_and_active


@pytest.mark.parametrize("size", [0, 1])
def test_only_an_empty_active_segment_stays(size: int) -> None:
    facts = [SegmentFacts(1, size, 0)]
    assert expired(facts, LogConfig(retention_ms=1), now_ms=100, start_offset=0, high_watermark=1) == size
