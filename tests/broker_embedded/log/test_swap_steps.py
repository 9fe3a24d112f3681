"""The swap of compaction takes many steps: reads between any two of them find the same records."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded.log.compaction.log_cleaner import LogCleaner
from pyclient.broker_embedded.log.compaction.offset_map import KEY_BYTES
from pyclient.broker_embedded.log.incremental_task import BlockingCall

SEGMENTS = 4


def filled(fixture: Any, **config: Any) -> Any:
    """Return a log of closed segments with the same three keys in each, and an open one with another."""
    fixture.configure(cleanup_policy=("compact",), file_delete_delay_ms=10, **config)
    log = fixture.open()
    for n in range(SEGMENTS):
        for key in (b"a", b"b", b"c"):
            log.append(fixture.batch(b"%d" % n, key=key), leader_epoch=0, now_ms=fixture.now)
        log.roll()
    log.append(fixture.batch(b"end", key=b"z"), leader_epoch=0, now_ms=fixture.now)
    return log


def compacting(fixture: Any, log: Any) -> Iterator[None]:
    """Yield after each step of a compaction."""
    steps = LogCleaner(fixture.fs, memory=1000 * KEY_BYTES, save=lambda: iter([None])).due([log], fixture.now)
    answer: Any = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration:
            return
        except GeneratorExit:
            steps.close()
            raise
        answer = step.work() if isinstance(step, BlockingCall) else None
        yield None


def found(fixture: Any, log: Any) -> list[tuple[int, bytes, bytes]]:
    return [(record.offset, record.key, record.value) for record in fixture.records(log)]


def steps_of(new_fixture: Any) -> int:
    fixture = new_fixture()
    count = sum(1 for _ in compacting(fixture, filled(fixture)))
    fixture.close()
    return count


def newest(before: list[tuple[int, bytes, bytes]]) -> list[tuple[int, bytes, bytes]]:
    return sorted({key: (offset, key, value) for offset, key, value in before}.values())


def test_a_kill_between_any_two_steps_leaves_the_old_or_the_new(new_fixture: Any) -> None:
    total = steps_of(new_fixture)
    assert total > SEGMENTS
    outcomes = []
    for point in range(total + 1):
        fixture = new_fixture()
        log = filled(fixture)
        before = found(fixture, log)
        steps = compacting(fixture, log)
        for _ in range(point):
            next(steps)
        now = found(fixture, log)
        assert now in (before, newest(before)), point
        copies = {name: fixture.path(name).read_bytes() for name in fixture.names()}
        steps.close()
        log.close(clean=False)
        for name in fixture.names():  # closing the generator tidies up, a kill does not
            os.unlink(fixture.path(name))
        for name, content in copies.items():
            fixture.path(name).write_bytes(content)
        again = fixture.open(clean=False, recovery_point=log.recovery_point)
        assert found(fixture, again) == now, point
        assert not [name for name in fixture.names() if name.endswith((".cleaned", ".swap", ".deleted"))]
        outcomes.append(now == before)
        fixture.close()
    assert outcomes == sorted(outcomes, reverse=True)
    assert 1 < outcomes.count(False) >= SEGMENTS


def stopped(fixture: Any, log: Any) -> Any:
    return fixture.reopen(log)


def truncated_from_start(fixture: Any, log: Any) -> Any:
    log.config = fixture.configure(cleanup_policy=("compact", "delete"), retention_ms=1000, file_delete_delay_ms=10)
    assert log.apply_retention(fixture.now + 100_000) >= 1
    return log


def truncated_from_end(fixture: Any, log: Any) -> Any:
    log.truncate_to(3 * SEGMENTS)
    return log


def emptied(fixture: Any, log: Any) -> Any:
    log.truncate_fully_and_start_at(5)
    return log


@pytest.mark.parametrize("event", [stopped, truncated_from_start, truncated_from_end, emptied])
def test_change_of_the_log_between_two_steps_finds_it_complete(new_fixture: Any, event: Any) -> None:
    for point in range(steps_of(new_fixture) + 1):
        fixture = new_fixture()
        log = filled(fixture)
        steps = compacting(fixture, log)
        for _ in range(point):
            next(steps)
        log = event(fixture, log)
        after = found(fixture, log)
        if event is not stopped:
            for _ in steps:
                pass
            assert newest(found(fixture, log)) == newest(after)
        steps.close()
        log.append(fixture.batch(b"more", key=b"y"), leader_epoch=0, now_ms=fixture.now)
        after = found(fixture, log)
        assert after[-1][2] == b"more"
        assert found(fixture, fixture.crash(log, recovery_point=0)) == after, point
        assert not [name for name in fixture.names() if name.endswith((".cleaned", ".swap", ".deleted"))]
        fixture.close()


def test_topic_recreated_between_two_steps_keeps_its_files(fixture: Any) -> None:
    log = filled(fixture)
    steps = compacting(fixture, log)
    while not [name for name in fixture.names() if name.endswith(".log.swap")]:
        next(steps)
    log.close(clean=False)
    os.rename(fixture.directory, f"{fixture.directory}.gone")
    made = filled(fixture)
    names = fixture.names()
    for _ in steps:
        pass
    assert fixture.names() == names
    assert len(found(fixture, made)) == 3 * SEGMENTS + 1


@pytest.mark.parametrize("damage", ["flipped", "garbage"])
def test_damaged_swap_is_used_only_if_what_it_replaces_is_gone(new_fixture: Any, damage: str, caplog: Any) -> None:
    outcomes = []
    for point in range(steps_of(new_fixture)):
        fixture = new_fixture()
        log = filled(fixture)
        before = found(fixture, log)
        steps = compacting(fixture, log)
        for _ in range(point):
            next(steps)
        copies = {name: fixture.path(name).read_bytes() for name in fixture.names()}
        steps.close()
        log.close(clean=False)
        swap = f"{0:020}.log.swap"
        if swap in copies:
            content = copies[swap]
            damaged = b"\x55" * 100 if damage == "garbage" else content[:8] + bytes([content[8] ^ 0x40]) + content[9:]
            for name in fixture.names():
                os.unlink(fixture.path(name))
            for name, data in {**copies, swap: damaged}.items():
                fixture.path(name).write_bytes(data)
            caplog.clear()
            again = fixture.open(clean=False, recovery_point=log.recovery_point)
            assert f"{swap}: damaged at byte 0" in caplog.text
            is_kept = not any(name.endswith(".log.deleted") for name in copies)
            if is_kept:
                assert found(fixture, again) == before
            else:
                with pytest.raises(errors.CorruptMessage):
                    again.read_bytes(0, 1000)
                assert [each.value for each in fixture.records(again, 3 * SEGMENTS)] == [b"end"]
            assert not [name for name in fixture.names() if name.endswith((".cleaned", ".swap", ".deleted"))]
            outcomes.append(is_kept)
        fixture.close()
    assert outcomes.count(True) >= 1
    assert outcomes.count(False) >= SEGMENTS - 1
    assert outcomes == sorted(outcomes, reverse=True)
