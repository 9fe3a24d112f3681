"""After a crash, with any content of the files, every batch that was whole is there, and all other state fits it."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from pyclient import errors
from pyclient.records import iter_batches


def fill(fixture: Any, log: Any, count: int = 12) -> None:
    """Append batches of one producer in several epochs."""
    for index in range(count):
        fixture.append(
            log,
            b"%04d" % index * 20,
            b"x",
            leader_epoch=index // 4,
            timestamp_ms=fixture.now + index * 7 % 5,
            producer_id=5,
            epoch=1,
            sequence=2 * index,
        )


def state(log: Any) -> tuple[Any, ...]:
    """Return the state that must not depend on how the log was opened."""
    producers = [(entry.producer_id, entry.epoch, entry.last_sequence, entry.last_offset) for entry in log.producers]
    epochs = [log.end_offset_for_epoch(epoch) for epoch in range(5)]
    return log.start_offset, log.end_offset, log.leader_epoch, epochs, producers, log.latest_timestamp_offset()


def indexes(log: Any) -> list[Any]:
    """Return the results of lookups in the indexes."""
    found: list[Any] = [log.offset_for_timestamp(log.local.clock.time_ms() + late) for late in range(-1, 7)]
    for segment in log.segments:
        found.append([segment.indexes.offsets.lookup(offset) for offset in range(9)])
        found.append((segment.largest_timestamp, segment.indexes.largest_timestamp_offset))
    return found


@pytest.fixture
def filled(fixture: Any) -> Any:
    """Return a log of three segments, with an index entry for nearly every batch."""
    size = len(fixture.batch(b"%04d" % 0 * 20, b"x"))
    fixture.configure(segment_bytes=4 * size, index_interval_bytes=size - 1)
    log = fixture.open()
    fill(fixture, log)
    assert [segment.base_offset for segment in log.segments] == [0, 8, 16]
    return log


def test_a_crash_loses_nothing_that_was_written(fixture: Any, filled: Any) -> None:
    before, entries, values = state(filled), indexes(filled), fixture.values(filled)
    log = fixture.crash(filled, recovery_point=0)
    assert (state(log), indexes(log), fixture.values(log)) == (before, entries, values)
    assert log.damage is None


@pytest.mark.parametrize(("segment", "batch"), [(0, 1), (0, 2), (8, 0), (16, 1), (16, 2)])
def test_batch_with_a_higher_offset_is_truncated_but_not_its_successor(
    fixture: Any, filled: Any, segment: int, batch: int
) -> None:
    values = fixture.values(filled)
    filled.close(clean=False)
    path = fixture.path(f"{segment:020}.log")
    content = bytearray(path.read_bytes())
    position, header = list(iter_batches(bytes(content)))[batch]
    content[position + 6] ^= 1  # the offset is higher by 256, and outside of the checksum
    path.write_bytes(content)
    log = fixture.open(clean=False)
    assert log.end_offset == header.base_offset
    assert fixture.values(log) == values[: header.base_offset]
    assert [entry.last_offset for entry in log.producers] == [header.base_offset - 1]


def test_torn_tail_is_truncated_at_every_byte_of_the_last_batch(fixture: Any, filled: Any, caplog: Any) -> None:
    values = fixture.values(filled)
    filled.close(clean=False)
    last = fixture.path(f"{16:020}.log")
    content = last.read_bytes()
    [*_, (position, header)] = iter_batches(content)
    for size in range(position, len(content)):
        last.write_bytes(content[:size])
        log = fixture.open(clean=False)
        assert log.end_offset == header.base_offset
        assert fixture.values(log) == values[:-2]
        assert last.stat().st_size == position
        assert (log.damage is None) == (size == position)
        assert [record.levelname for record in caplog.records] == ["WARNING"] * (size > position)
        caplog.clear()
        assert next(iter(log.producers)).last_sequence == 21
        log.close(clean=False)


def test_zero_filled_tail_is_truncated(fixture: Any, filled: Any) -> None:
    before = state(filled)
    filled.close(clean=False)
    with fixture.path(f"{16:020}.log").open("ab") as file:
        file.write(bytes(5000))
    log = fixture.open(clean=False)
    assert state(log) == before


def test_every_flipped_byte_after_the_recovery_point_is_found(fixture: Any, caplog: Any) -> None:
    log = fixture.open()
    fill(fixture, log, 3)
    values = fixture.values(log)
    log.close(clean=False)
    path = fixture.path(f"{0:020}.log")
    content = path.read_bytes()
    bounds = [position for position, _ in iter_batches(content)]
    for at in range(bounds[1], bounds[2]):
        if 12 <= at - bounds[1] < 16:
            continue  # the leader epoch, which no checksum covers
        damaged = bytearray(content)
        damaged[at] ^= 0x55
        path.write_bytes(damaged)
        log = fixture.open(clean=False)
        offset_changed = at - bounds[1] < 8
        assert log.end_offset == 2 or offset_changed
        if log.end_offset == 2:
            assert fixture.values(log) == values[:2]
            assert (log.damage.path, log.damage.position) == (str(path), bounds[1])
            assert f"{path}: damaged at byte {bounds[1]}" in caplog.text
            assert "ERROR" in caplog.text or 8 <= at - bounds[1] < 12  # a changed length looks like a torn write
        log.close(clean=False)
        caplog.clear()


def test_damage_in_a_closed_segment_ends_the_log_there(fixture: Any, filled: Any) -> None:
    filled.close(clean=False)
    path = fixture.path(f"{8:020}.log")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    log = fixture.open(clean=False)
    assert log.end_offset == 14
    assert [segment.base_offset for segment in log.segments] == [0, 8]
    assert not fixture.path(f"{16:020}.log").exists()
    assert state(fixture.crash(log)) == state(log)


def test_recovery_does_not_read_below_the_recovery_point(fixture: Any, filled: Any) -> None:
    filled.flush()
    fixture.append(filled, b"late", b"later", leader_epoch=2, producer_id=5, epoch=1, sequence=24)
    before, point = state(filled), filled.recovery_point
    filled.close(clean=False)
    first = fixture.path(f"{0:020}.log")
    first.write_bytes(bytes(first.stat().st_size))
    log = fixture.open(clean=False, recovery_point=point)
    assert log.end_offset == before[1]
    assert log.damage is None


@pytest.mark.parametrize("megabytes", [6, 24])
def test_recovery_reads_as_much_as_was_not_flushed(fixture: Any, megabytes: int) -> None:
    fixture.configure(segment_bytes=1 << 30)
    log = fixture.open()
    value = b"x" * 100_000
    for sequence in range(10 * megabytes):
        fixture.append(log, value, producer_id=1, epoch=0, sequence=sequence)
        if sequence % 10 == 9:
            log.flush()
    point = log.recovery_point
    for sequence in range(point, point + 5):
        fixture.append(log, value, producer_id=1, epoch=0, sequence=sequence)
    log.close(clean=False)
    fixture.fs.bytes_read = 0
    log = fixture.open(clean=False, recovery_point=point)
    assert (log.end_offset, next(iter(log.producers)).last_sequence) == (point + 5, point + 4)
    assert fixture.fs.bytes_read < 2_000_000
    assert len([name for name in fixture.names() if name.endswith(".snapshot")]) == 1


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "zeros", "random", "extended", "foreign"])
def test_indexes_are_made_again(fixture: Any, filled: Any, clean: bool, suffix: str, damage: str) -> None:
    before, entries, values = state(filled), indexes(filled), fixture.values(filled)
    filled.flush()
    filled.close(clean=clean)
    contents = {base: fixture.path(f"{base:020}.{suffix}").read_bytes() for base in (0, 8, 16)}
    for base, content in contents.items():
        path = fixture.path(f"{base:020}.{suffix}")
        changed = {
            "empty": b"",
            "cut": content[: len(content) // 2 + 1],
            "zeros": bytes(len(content)),
            "random": random.Random(base).randbytes(len(content)),
            "extended": content + bytes(160),
            "foreign": contents[(base + 8) % 24],
        }
        path.unlink() if damage == "missing" else path.write_bytes(changed[damage])
    log = fixture.open(clean=clean, recovery_point=filled.recovery_point)
    assert (state(log), fixture.values(log)) == (before, values)
    for offset in range(24):
        assert fixture.records(log, offset)[0].offset == offset
    assert indexes(log) == entries


def test_an_index_that_points_into_a_batch_costs_no_data(fixture: Any, filled: Any) -> None:
    values = fixture.values(filled)
    filled.flush()
    filled.close(clean=False)
    for base in (0, 8, 16):
        path = fixture.path(f"{base:020}.index")
        content = bytearray(path.read_bytes())
        for entry in range(7, len(content), 8):
            content[entry] += 1
        path.write_bytes(content)
    for point in (0, 12, 24):
        log = fixture.open(clean=False, recovery_point=point)
        assert (fixture.values(log), log.damage) == (values, None)
        log.close(clean=False)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("content", [None, b"", b"0\n", b"0\n9\n0 0\n", b"0\n2\n5 0\n4 1\n", b"\xff\xfe", b"1\n0\n"])
def test_the_epoch_file_is_made_again(fixture: Any, filled: Any, clean: bool, content: bytes | None) -> None:
    before = state(filled)
    filled.close(clean=clean)
    path = fixture.path("leader-epoch-checkpoint")
    path.unlink() if content is None else path.write_bytes(content)
    log = fixture.open(clean=clean)
    assert state(log) == before
    log.flush()
    log.close(clean=False)
    assert path.read_text() == "0\n3\n0 0\n1 8\n2 16\n"


@pytest.mark.parametrize("clean", [True, False])
def test_snapshots_are_not_needed(fixture: Any, filled: Any, clean: bool) -> None:
    before = state(filled)
    filled.close(clean=clean)
    for path in Path(fixture.directory).glob("*.snapshot"):
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    log = fixture.open(clean=clean)
    assert state(log) == before
    log.close()
    for path in Path(fixture.directory).glob("*.snapshot"):
        path.unlink()
    assert state(fixture.open(clean=clean)) == before


def test_snapshots_of_batches_that_are_gone_are_not_used(fixture: Any, filled: Any) -> None:
    filled.close()
    last = fixture.path(f"{16:020}.log")
    last.write_bytes(last.read_bytes()[:-1])
    log = fixture.open(clean=False)
    assert next(iter(log.producers)).last_sequence == 21
    assert f"{24:020}.snapshot" not in fixture.names()


def test_incomplete_batch_after_a_clean_stop_is_dropped(fixture: Any, filled: Any) -> None:
    values = fixture.values(filled)
    filled.close()
    with fixture.path(f"{16:020}.log").open("ab") as file:
        file.write(b"an incomplete batch of unknown origin, which is longer than a header of 61 bytes")
    log = fixture.open(clean=True)
    assert fixture.values(log) == values


def test_log_that_ends_before_its_start_is_emptied(fixture: Any, filled: Any) -> None:
    filled.close(clean=False)
    fixture.path(f"{16:020}.log").unlink()
    log = fixture.open(clean=False, start_offset=20)
    assert (log.start_offset, log.end_offset, fixture.values(log)) == (20, 20, [])
    fixture.append(log, b"new")
    assert fixture.names()[0] == f"{20:020}.log"


def test_leftovers_of_deletions_and_unfinished_work_are_removed(fixture: Any, filled: Any) -> None:
    before, values = state(filled), fixture.values(filled)
    filled.close()
    junk = [f"{0:020}.log.deleted", f"{0:020}.log.cleaned", f"{8:020}.log.swap", "leader-epoch-checkpoint.tmp"]
    for name in (*junk, f"{3:020}.index", f"{3:020}.timeindex"):
        fixture.path(name).write_bytes(b"junk")
    log = fixture.open()
    assert (state(log), fixture.values(log)) == (before, values)
    assert not {*junk, f"{3:020}.index", f"{3:020}.timeindex"} & set(fixture.names())


def test_finished_swap_replaces_its_source_segments(fixture: Any, filled: Any) -> None:
    values = fixture.values(filled)
    filled.close()
    for suffix in ("log", "index", "timeindex"):
        source = fixture.path(f"{0:020}.{suffix}")
        shutil.copy(source, f"{source}.swap")
    merged = fixture.path(f"{0:020}.log").read_bytes() + fixture.path(f"{8:020}.log").read_bytes()
    fixture.path(f"{0:020}.log.swap").write_bytes(merged)
    log = fixture.open(clean=False)
    assert [segment.base_offset for segment in log.segments] == [0, 16]
    assert fixture.values(log) == values


def test_gap_between_batches_is_accepted(fixture: Any, new_fixture: Any) -> None:
    """Compaction leaves holes, and a follower copies them."""
    other = new_fixture()
    leader = other.open()
    for value in (b"a", b"b", b"c"):
        other.append(leader, value)
    follower = fixture.open(high_watermark=0)
    for offset in (0, 2):
        size = follower.end_offset
        data = leader.read_bytes(offset, 80)
        follower.append(data, leader_epoch=-1, now_ms=0, origin="replica")
        assert follower.end_offset == offset + 1 > size
    log = fixture.crash(follower, recovery_point=0)
    assert fixture.values(log) == [b"a", b"c"]
    assert fixture.records(log, 1)[0].offset == 2
    other.close()


def test_error_for_a_damaged_batch_names_the_file_and_the_byte(fixture: Any, filled: Any) -> None:
    filled.close()
    path = fixture.path(f"{0:020}.log")
    content = bytearray(path.read_bytes())
    position = [at for at, _ in iter_batches(bytes(content))][1]
    content[position + 16] = 9
    path.write_bytes(content)
    fixture.path(f"{0:020}.index").unlink()
    log = fixture.open()
    with pytest.raises(errors.CorruptMessage, match=f"{path}: damaged at byte {position}: "):
        log.read(5, 1000)
    assert fixture.records(log, 8)[0].offset == 8


@pytest.mark.parametrize("point", [0, 2, 4])
def test_first_of_two_damaged_batches_ends_the_log(fixture: Any, point: int) -> None:
    """The later one is met first: it is in a header, which is read on the way to the place where checking begins."""
    log = fixture.open()
    fill(fixture, log, 6)
    fixture.end(log, 5, 1, commit=False)
    values = fixture.values(log)
    log.close(clean=False)
    path = fixture.path(f"{0:020}.log")
    content = bytearray(path.read_bytes())
    bounds = [position for position, _ in iter_batches(bytes(content))]
    content[bounds[2] + 70] ^= 1
    content[bounds[4] : bounds[4] + 30] = bytes(30)
    path.write_bytes(content)
    fixture.path(f"{0:020}.txnindex").write_bytes(b"junk")
    log = fixture.open(clean=False, recovery_point=point)
    assert (log.end_offset, fixture.values(log)) == (4, values[:4])
    assert log.damage.position == bounds[2]
    assert next(iter(log.producers)).last_sequence == 3
    assert fixture.path(f"{0:020}.log").stat().st_size == bounds[2]


def test_a_flipped_byte_is_found_without_a_crash(fixture: Any, filled: Any) -> None:
    assert [step for step in filled.verify() if step is not None] == []
    path = fixture.path(f"{8:020}.log")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    [damage] = [step for step in filled.verify() if step is not None]
    [*_, (position, _)] = iter_batches(bytes(content))
    assert (damage.path, damage.position) == (str(path), position)
