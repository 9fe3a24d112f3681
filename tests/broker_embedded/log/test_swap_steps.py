"""The swap of compaction takes many steps: whatever comes between two of them, nobody finds anything else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from pyclient.broker_embedded.log.compaction.compactor import Compactor
from pyclient.broker_embedded.log.compaction.offset_map import KEY_BYTES
from pyclient.broker_embedded.log.steps import Blocking

SEGMENTS = 4


def filled(bench: Any, **config: Any) -> Any:
    """A log of closed segments with the same three keys in each, and an open one with another."""
    bench.configure(cleanup_policy=("compact",), file_delete_delay_ms=10, **config)
    log = bench.open()
    for n in range(SEGMENTS):
        for key in (b"a", b"b", b"c"):
            log.append(bench.batch(b"%d" % n, key=key), leader_epoch=0, now_ms=bench.now)
        log.roll()
    log.append(bench.batch(b"end", key=b"z"), leader_epoch=0, now_ms=bench.now)
    return log


def compacting(bench: Any, log: Any) -> Iterator[None]:
    """One step at each turn."""
    steps = Compactor(bench.fs, memory=1000 * KEY_BYTES, save=lambda: iter([None])).due([log], bench.now)
    answer: Any = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration:
            return
        except GeneratorExit:
            steps.close()
            raise
        answer = step.work() if isinstance(step, Blocking) else None
        yield None


def found(bench: Any, log: Any) -> list[tuple[int, bytes, bytes]]:
    return [(record.offset, record.key, record.value) for record in bench.records(log)]


def steps_of(new_bench: Any) -> int:
    bench = new_bench()
    count = sum(1 for _ in compacting(bench, filled(bench)))
    bench.close()
    return count


def newest(before: list[tuple[int, bytes, bytes]]) -> list[tuple[int, bytes, bytes]]:
    return sorted({key: (offset, key, value) for offset, key, value in before}.values())


def test_a_kill_between_any_two_steps_leaves_the_old_or_the_new(new_bench: Any) -> None:
    total = steps_of(new_bench)
    assert total > SEGMENTS
    outcomes = []
    for point in range(total + 1):
        bench = new_bench()
        log = filled(bench)
        before = found(bench, log)
        steps = compacting(bench, log)
        for _ in range(point):
            next(steps)
        now = found(bench, log)
        assert now in (before, newest(before)), point
        copies = {name: bench.path(name).read_bytes() for name in bench.names()}
        steps.close()
        log.close(clean=False)
        for name in bench.names():  # closing the generator tidies up, a kill does not
            os.unlink(bench.path(name))
        for name, content in copies.items():
            bench.path(name).write_bytes(content)
        again = bench.open(clean=False, recovery_point=log.recovery_point)
        assert found(bench, again) == now, point
        assert not [name for name in bench.names() if name.endswith((".cleaned", ".swap", ".deleted"))]
        outcomes.append(now == before)
        bench.close()
    assert outcomes == sorted(outcomes, reverse=True)
    assert 1 < outcomes.count(False) >= SEGMENTS


def stopped(bench: Any, log: Any) -> Any:
    return bench.reopen(log)


def cut_in_front(bench: Any, log: Any) -> Any:
    log.config = bench.configure(cleanup_policy=("compact", "delete"), retention_ms=1000, file_delete_delay_ms=10)
    assert log.apply_retention(bench.now + 100_000) >= 1
    return log


def cut_behind(bench: Any, log: Any) -> Any:
    log.truncate_to(3 * SEGMENTS)
    return log


def emptied(bench: Any, log: Any) -> Any:
    log.truncate_fully_and_start_at(5)
    return log


@pytest.mark.parametrize("event", [stopped, cut_in_front, cut_behind, emptied])
def test_who_changes_the_log_between_two_steps_finds_it_whole(new_bench: Any, event: Any) -> None:
    for point in range(steps_of(new_bench) + 1):
        bench = new_bench()
        log = filled(bench)
        steps = compacting(bench, log)
        for _ in range(point):
            next(steps)
        log = event(bench, log)
        after = found(bench, log)
        if event is not stopped:
            for _ in steps:
                pass
            assert newest(found(bench, log)) == newest(after)
        steps.close()
        log.append(bench.batch(b"more", key=b"y"), leader_epoch=0, now_ms=bench.now)
        after = found(bench, log)
        assert after[-1][2] == b"more"
        assert found(bench, bench.crash(log, recovery_point=0)) == after, point
        assert not [name for name in bench.names() if name.endswith((".cleaned", ".swap", ".deleted"))]
        bench.close()


def test_a_topic_that_is_made_again_between_two_steps_keeps_its_files(bench: Any) -> None:
    log = filled(bench)
    steps = compacting(bench, log)
    while not [name for name in bench.names() if name.endswith(".log.swap")]:
        next(steps)
    log.close(clean=False)
    os.rename(bench.directory, f"{bench.directory}.gone")
    made = filled(bench)
    names = bench.names()
    for _ in steps:
        pass
    assert bench.names() == names
    assert len(found(bench, made)) == 3 * SEGMENTS + 1
