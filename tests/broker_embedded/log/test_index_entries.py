"""Indexes loaded from files: stored and new entries answer as one sorted table."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.broker_embedded.log.filesystem import RealFileSystem
from pyclient.broker_embedded.log.indexes import OffsetIndex, TimeIndex

_FS = RealFileSystem()
_MANY = 3000


def pairs(gaps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return entries that increase by these amounts."""
    found: list[tuple[int, int]] = []
    for first, second in gaps:
        last = found[-1] if found else (0, 0)
        found.append((last[0] + first, last[1] + second))
    return found


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=30), st.integers(0, 30), st.data())
def test_stored_and_new_entries_answer_like_one_list(gaps: list[tuple[int, int]], stored: int, data: Any) -> None:
    entries = pairs(gaps)
    stored = min(stored, len(entries))
    offsets, times = OffsetIndex(_FS.file("o")), TimeIndex(_FS.file("t"))
    assert offsets.load(b"".join(struct.pack(">ii", *entry) for entry in entries[:stored]), 10_000)
    assert times.load(b"".join(struct.pack(">qi", *entry) for entry in entries[:stored]))
    for entry in entries[stored:]:
        offsets.append(*entry)
        times.append(*entry)
    assert offsets.unwritten == len(entries) - stored
    if entries and data.draw(st.booleans()):
        kept = data.draw(st.integers(stored, len(entries) - 1)) if stored < len(entries) else len(entries)
        if kept < len(entries):
            offsets.truncate(entries[kept][1])
            times.truncate(entries[kept][1])
            entries = entries[:kept]
    assert [offsets[n] for n in range(len(offsets))] == [times[n] for n in range(len(times))] == entries
    assert offsets.last() == (entries[-1] if entries else (-1, 0))
    for asked in range(300):
        below = [second for first, second in entries if first <= asked]
        assert offsets.lookup(asked) == (below[-1] if below else 0)
        assert times.lookup(asked + 1) == (below[-1] if below else 0)
        before = [second for _first, second in entries if second <= asked]
        assert offsets.boundary(asked) == (before[-1] if before else 0)


def test_stored_entries_are_truncated_from_the_file_too(tmp_path: Any) -> None:
    path = tmp_path / "i"
    content = b"".join(struct.pack(">ii", n, n * 10) for n in range(_MANY))
    path.write_bytes(content)
    index = OffsetIndex(_FS.file(str(path)))
    assert index.load(content, 10 * _MANY)
    index.append(_MANY, 10 * _MANY)
    index.truncate_offsets(_MANY - 5)
    assert (len(index), index.last()) == (_MANY - 5, (_MANY - 6, 10 * (_MANY - 6)))
    assert path.read_bytes() == content[: 8 * (_MANY - 5)]
    index.append(_MANY, 10 * _MANY)
    index.flush()
    assert path.read_bytes() == content[: 8 * (_MANY - 5)] + struct.pack(">ii", _MANY, 10 * _MANY)
    index.file.close()


@pytest.mark.parametrize("junk", [bytes(8 * _MANY), b"\xff" * 8 * _MANY, b"\0" * 5])
def test_large_index_keeps_the_entries_before_the_damage(junk: bytes) -> None:
    content = b"".join(struct.pack(">ii", n, n * 10) for n in range(_MANY))
    index = OffsetIndex(_FS.file("o"))
    assert not index.load(content + junk, 10 * _MANY)
    assert (len(index), index.last()) == (_MANY, (_MANY - 1, 10 * (_MANY - 1)))
    content = b"".join(struct.pack(">qi", 1 + n, n) for n in range(_MANY))
    times = TimeIndex(_FS.file("t"))
    assert not times.load(content + junk)
    assert (len(times), times.last()) == (_MANY, (_MANY, _MANY - 1))


def test_index_entries_after_the_end_of_the_log_are_ignored() -> None:
    content = b"".join(struct.pack(">ii", n, n * 10) for n in range(_MANY))
    index = OffsetIndex(_FS.file("o"))
    assert not index.load(content, 10 * 2000)
    assert len(index) == 2000


@pytest.mark.parametrize("position", [1, 2_000_000])
def test_wrong_entry_in_a_large_index_costs_no_data(fixture: Any, position: int) -> None:
    fixture.configure(index_interval_bytes=0)
    log = fixture.open()
    for n in range(_MANY):
        fixture.append(log, b"%d" % n)
    path = fixture.path(f"{0:020}.index")
    log.close()
    content = bytearray(path.read_bytes())
    lying = next(at for at in range(8 * 1001, len(content), 8) if (at // 8) % (1 + len(content) // 8 // 512))
    content[lying + 4 : lying + 8] = struct.pack(">i", position)
    path.write_bytes(content)
    log = fixture.open()
    for n in (*range(990, 1020), 0, _MANY - 1):
        assert [record.value for record in fixture.records(log, n, max_bytes=1)][:1] == [b"%d" % n]
    log.close()


def test_unwritable_indexes_are_reported_and_rebuilt_at_the_next_start(fixture: Any, caplog: Any) -> None:
    fixture.configure(index_interval_bytes=0)
    log = fixture.open()
    for number in range(20):
        fixture.append(log, b"%d" % number)
    log.close()
    written = {suffix: fixture.path(f"{0:020}.{suffix}").read_bytes() for suffix in ("index", "timeindex")}
    for suffix in written:
        fixture.path(f"{0:020}.{suffix}").unlink()
    fixture.fs.room = 10  # a part of an entry
    log = fixture.open()
    assert [record.value for record in fixture.records(log, 13)][:1] == [b"13"]
    [said] = caplog.messages
    assert said.startswith(f"{fixture.path(f'{0:020}.log')}: its indexes cannot be written: ")
    assert "No space left on device" in said and said.endswith("the next start makes them again")
    fixture.fs.room = None
    log = fixture.crash(log)
    assert [record.value for record in fixture.records(log, 13)][:1] == [b"13"]
    log.close()
    assert {suffix: fixture.path(f"{0:020}.{suffix}").read_bytes() for suffix in written} == written
