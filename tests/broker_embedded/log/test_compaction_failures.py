"""Compaction of logs that are damaged, change meanwhile or do not fit: the log is as it was, or as it should be."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from pyclient.broker_embedded.log.compaction.rewriting import rebased
from pyclient.broker_embedded.log.incremental_task import run_here
from pyclient.records.varints import encode_varint, read_varint
from tests.broker_embedded.log.compaction_tools import compact, compactor, pairs, put


@pytest.fixture
def log(fixture: Any) -> Any:
    fixture.configure(cleanup_policy=("compact",))
    return fixture.open()


def test_a_map_that_is_full_ends_the_round_and_the_next_goes_on(fixture: Any, log: Any) -> None:
    rows = [(b"k%d" % (n % 50), b"%d" % n) for n in range(200)]
    for first in range(0, 200, 20):
        put(fixture, log, *rows[first : first + 20])
    assert compact(fixture, log, keys=10) > 1
    newest = dict(rows)
    assert [(key, value) for _, key, value in pairs(fixture, log)] == list(newest.items())
    assert log.cleaned_to == 200


def test_damage_is_reported_and_the_log_is_left_as_it_is(fixture: Any, log: Any, caplog: Any) -> None:
    put(fixture, log, (b"a", b"1"), (b"a", b"2"))
    log.roll()
    path = fixture.path(f"{0:020}.log")
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    worker = compactor(fixture)
    assert run_here(worker.due([log], fixture.now)) == 0
    assert f"{path}: damaged at byte 0" in caplog.text
    caplog.clear()
    assert run_here(worker.due([log], fixture.now)) == 0
    assert not caplog.text
    assert path.read_bytes() == content


def test_a_disk_that_fills_up_leaves_the_log_as_it_was(fixture: Any, log: Any, caplog: Any) -> None:
    put(fixture, log, (b"a", b"1"), (b"b", b"2" * 300), (b"a", b"2"))
    log.roll()
    before = pairs(fixture, log)
    worker = compactor(fixture)
    for room in (0, 100, 300):
        fixture.fs.room = room
        assert run_here(worker.due([log], fixture.now)) == 0
        assert "tried again later" in caplog.text
        assert pairs(fixture, log) == before
        assert not [name for name in fixture.names() if name.endswith((".cleaned", ".swap"))]
    fixture.fs.room = None
    assert run_here(worker.due([log], fixture.now)) == 1
    assert [row[0] for row in pairs(fixture, log)] == [1, 2]


def test_cleaning_is_abandoned_if_the_log_changes(fixture: Any, log: Any) -> None:
    for n in range(4):
        put(fixture, log, (b"a", b"%d" % n))
        log.roll()
    steps = compactor(fixture).due([log], fixture.now)
    answer: Any = None
    rounds = None
    truncated = False
    while rounds is None:
        try:
            step = steps.send(answer)
            answer = step.work() if step is not None else None
            if step is not None and not truncated:
                truncated = True
                log.truncate_to(2)
        except StopIteration as end:
            rounds = end.value
    assert pairs(fixture, log)[-1] == (1, b"a", b"1")
    assert not [name for name in fixture.names() if name.endswith((".cleaned", ".swap"))]


def test_compaction_of_log_that_is_deleted_meanwhile_ends_without_error(
    new_fixture: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The directory is renamed after each number of steps of the disk thread; its next call may then fail."""
    outcomes = [_compact_until_deleted(new_fixture(), steps) for steps in range(20)]
    assert FileNotFoundError in outcomes
    assert outcomes[-1] is None  # the last ones are deleted after the end
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


def _compact_until_deleted(fixture: Any, steps_before: int) -> type[OSError] | None:
    """Delete the log after so many steps of its compaction. Return what the next step raised."""
    fixture.configure(cleanup_policy=("compact",))
    log = fixture.open()
    for n in range(4):
        put(fixture, log, (b"a", b"%d" % n))
        log.roll()
    steps = compactor(fixture).due([log], fixture.now)
    failed: type[OSError] | None = None
    taken = 0
    try:
        step = steps.send(None)
        while True:
            if taken == steps_before:
                log.deleted = True
                log.close(clean=False)
                os.rename(log.directory, f"{log.directory}.{'0' * 32}-delete")
            taken += 1
            try:
                answer = None if step is None else step.work()
            except OSError as error:
                failed = type(error)
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration:
        return failed


def test_a_crash_at_any_point_of_the_swap_leaves_the_old_or_the_new(fixture: Any, new_fixture: Any) -> None:
    outcomes = set()
    for point in range(40):
        fixture = new_fixture()
        fixture.configure(cleanup_policy=("compact",), file_delete_delay_ms=10)
        log = fixture.open()
        rng = random.Random(3)
        for _ in range(5):
            put(fixture, log, *[(b"k%d" % rng.randrange(4), b"%d" % n) for n in range(6)])
            log.roll()
        before = pairs(fixture, log)
        newest = {key: (offset, key, value) for offset, key, value in before}
        fixture.fs.renames_left = point
        failed = False
        try:
            compact(fixture, log)
        except OSError:
            failed = True
        fixture.fs.renames_left = None
        log = fixture.crash(log)
        after = pairs(fixture, log)
        assert after in (before, sorted(newest.values())), point
        assert not [name for name in fixture.names() if name.endswith((".cleaned", ".swap", ".deleted"))]
        outcomes.add((failed, after == before))
        fixture.close()
        if not failed:
            break
    assert outcomes == {(True, True), (True, False), (False, False)}


@pytest.mark.parametrize("old_base", [-(2**63), -1, 0, 2**63 - 1])
@pytest.mark.parametrize("delta", [-(2**63), -1, 10, 2**63 - 1])
@pytest.mark.parametrize("new_base", [0, 1_700_000_000_000, 2**63 - 1])
def test_rebased_timestamps_wrap_at_64_bits(old_base: int, delta: int, new_base: int) -> None:
    body = b"\0" + encode_varint(delta) + b"\0\1\1\0"
    record = rebased(encode_varint(len(body)) + body, old_base, new_base)
    size, position = read_varint(record, 0, 28)
    rebased_delta, end = read_varint(record, position + 1, 63)
    assert (size, record[end:]) == (len(record) - position, b"\0\1\1\0")
    assert (new_base + rebased_delta - old_base - delta) % 2**64 == 0
