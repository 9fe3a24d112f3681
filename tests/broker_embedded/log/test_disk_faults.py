"""A disk that is full, fails, or loses its power: what was refused is not there, what was promised is."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyclient import errors
from pyclient.records import check_crc, iter_batches


def test_an_append_that_does_not_fit_on_the_disk_leaves_nothing(bench: Any) -> None:
    log = bench.open()
    bench.append(log, b"kept")
    size = len(bench.batch(b"x" * 100))
    for room in range(size):
        bench.fs.room = room
        with pytest.raises(errors.KafkaStorageError, match="No space left"):
            bench.append(log, b"x" * 100, producer_id=1, epoch=0, sequence=0)
        assert bench.path(f"{0:020}.log").stat().st_size == log.size
    assert (log.end_offset, len(log.producers)) == (1, 0)
    bench.fs.room = None
    assert bench.append(log, b"after", producer_id=1, epoch=0, sequence=0).base_offset == 1
    assert bench.values(bench.crash(log)) == [b"kept", b"after"]


def test_the_first_append_may_fail_and_be_tried_again(bench: Any) -> None:
    bench.fs.room = 0
    log = bench.open()
    for _ in range(2):
        with pytest.raises(errors.KafkaStorageError):
            bench.append(log, b"a")
    bench.fs.room = None
    bench.append(log, b"b")
    assert bench.values(bench.crash(log)) == [b"b"]


def test_half_a_write_that_cannot_be_cut_off_is_cut_off_before_the_next(bench: Any) -> None:
    log = bench.open()
    bench.append(log, b"kept")
    bench.fs.room, bench.fs.truncate_fails = 80, True
    for _ in range(2):
        with pytest.raises(errors.KafkaStorageError):
            bench.append(log, b"x" * 100)
    assert bench.values(log) == [b"kept"]
    bench.fs.room, bench.fs.truncate_fails = None, False
    bench.append(log, b"y")
    assert bench.path(f"{0:020}.log").stat().st_size == log.size
    assert bench.values(bench.crash(log)) == [b"kept", b"y"]


def test_a_segment_that_cannot_be_closed_is_written_on_later(bench: Any) -> None:
    size = len(bench.batch(b"0"))
    bench.configure(segment_bytes=2 * size, index_interval_bytes=0)
    log = bench.open()
    for value in (b"0", b"1"):
        bench.append(log, value)
    bench.fs.room = 0
    with pytest.raises(errors.KafkaStorageError, match="cannot be closed"):
        bench.append(log, b"2")
    assert log.end_offset == 2
    bench.fs.room = None
    bench.append(log, b"2")
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    assert bench.values(bench.crash(log)) == [b"0", b"1", b"2"]


def test_a_sync_that_fails_takes_the_log_offline(bench: Any) -> None:
    log = bench.open()
    bench.append(log, b"a")
    bench.fs.sync_fails = True
    with pytest.raises(errors.KafkaStorageError, match="flush failed"):
        log.flush()
    bench.fs.sync_fails = False
    with pytest.raises(errors.KafkaStorageError, match="offline"):
        bench.append(log, b"b")
    assert log.recovery_point == 0
    assert log.read(0, 100).size > 0
    assert bench.values(bench.crash(log)) == [b"a"]


def test_a_directory_that_cannot_be_read_is_said_so(bench: Any) -> None:
    Path(bench.directory).mkdir()
    bench.path("partition.metadata").mkdir()
    with pytest.raises(errors.KafkaStorageError, match="cannot be opened"):
        bench.open()


def lose_power(bench: Any, synced: dict[str, bytes], rng: random.Random) -> None:
    """Every file keeps what was synced; of the rest it has nothing, a part, zeros, or some blocks."""
    for path in sorted(Path(bench.directory).glob("*")):
        content = path.read_bytes()
        safe = synced.get(str(path))
        if path.name.endswith(".log"):
            keep = 0 if safe is None or not content.startswith(safe) else len(safe)
            path.write_bytes(content[:keep] + _damaged(content[keep:], rng))
        elif content != safe:
            path.write_bytes(rng.choice([content, safe or b"", _damaged(content, rng)]))


def _damaged(tail: bytes, rng: random.Random) -> bytes:
    size = rng.randint(0, len(tail))
    kind = rng.choice(["absent", "prefix", "zeros", "blocks"])
    if kind == "absent":
        return b""
    if kind == "prefix":
        return tail[:size]
    if kind == "zeros":
        return tail[:size] + bytes(len(tail) - size)
    blocks = [tail[at : at + 64] for at in range(0, len(tail), 64)]
    return b"".join(block if rng.random() < 0.7 else bytes(len(block)) for block in blocks)


_STEPS = st.lists(
    st.sampled_from(["append", "append", "txn", "end", "flush", "roll", "epoch", "truncate"]), max_size=25
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_STEPS, st.integers(0, 2**32))
def test_after_a_loss_of_power_everything_that_was_flushed_is_there(
    new_bench: Any, steps: list[str], seed: int
) -> None:
    bench = new_bench()
    bench.configure(index_interval_bytes=100)
    rng = random.Random(seed)
    log, epoch, sequences = bench.open(), 0, 0
    for index, step in enumerate(steps):
        if step in ("append", "txn"):
            options = {"producer_id": 1, "epoch": 0, "sequence": sequences, "transactional": True}
            sequences += step == "txn"
            value = b"%d" % index * rng.randint(1, 40)
            bench.append(log, value, leader_epoch=epoch, **(options if step == "txn" else {}))
        elif step == "end":
            bench.end(log, 1, 0, commit=rng.random() < 0.5)
        elif step == "flush":
            log.flush()
        elif step == "roll":
            log.roll()
        elif step == "epoch":
            epoch += 1
        else:
            log.truncate_to(rng.randint(log.recovery_point, log.end_offset))
            entry = log.producers.get(1)
            sequences = 0 if entry is None else entry.last_sequence + 1
    flushed, point = log.read_bytes(0, 1 << 20), log.recovery_point
    written = [bytes(flushed[at : at + header.size]) for at, header in iter_batches(flushed)]
    for segment in list(log.segments)[1:]:
        more = log.read_bytes(segment.base_offset, 1 << 20)
        written += [bytes(more[at : at + header.size]) for at, header in iter_batches(more)]
    log.close(clean=False)
    lose_power(bench, bench.fs.synced, rng)
    log = bench.open(clean=False, recovery_point=point)
    assert point <= log.end_offset
    found = []
    for segment in log.segments:
        data = log.read_bytes(segment.base_offset, 1 << 20) if segment.size else b""
        for at, header in iter_batches(data):
            check_crc(data, at, header)
            assert log.epoch_at(header.base_offset) == header.leader_epoch
            found.append(data[at : at + header.size])
    assert found == written[: len(found)]
    assert bench.append(log, b"new", leader_epoch=epoch + 1).base_offset == log.end_offset - 1
    bench.close()


def test_no_fsync_and_no_removal_happens_on_the_logs_thread(bench: Any) -> None:
    """Once a node looks after the logs; what a roll and `flush.ms` and retention leave to do is done beside it."""
    bench.configure(flush_ms=1000, retention_ms=1000, index_interval_bytes=0)
    bench.fs.durable = True
    manager = bench.start()
    manager.side.wake = lambda: None
    log = manager.create("t", bench.topic_id, 0, bench.config)
    threads: set[str] = set()
    bench.fs.on_slow = lambda: threads.add(threading.current_thread().name)
    bench.append(log, b"a")
    log.roll()
    bench.append(log, b"b")
    manager.flush_due(bench.now)
    manager.flush_due(bench.now + 1000)
    manager.side.settle()
    assert (log.recovery_point, threads) == (2, {"pyclient-log-disk"})
    assert {"leader-epoch-checkpoint", "partition.metadata"} <= {Path(path).name for path in bench.fs.synced}
    assert manager.run_retention(bench.now + 5000) == 2
    manager.run_retention(bench.now + 5000)
    manager.side.settle()
    assert not [name for name in bench.names() if name.endswith(".deleted")]
    assert threads == {"pyclient-log-disk"}
    bench.fs.on_slow = None
    manager.close()


def test_a_sync_that_fails_beside_the_work_takes_only_its_log_offline(bench: Any, caplog: Any) -> None:
    bench.fs.durable = True
    manager = bench.start()
    logs = [manager.create("t", bench.topic_id, partition, bench.config) for partition in (0, 1)]
    for log in logs:
        bench.append(log, b"a")
    bench.fs.sync_fails = True
    logs[0].roll()
    manager.side.settle()
    bench.fs.sync_fails = False
    with pytest.raises(errors.KafkaStorageError, match="offline"):
        bench.append(logs[0], b"b")
    assert bench.values(logs[0]) == [b"a"]
    logs[1].roll()
    bench.append(logs[1], b"b")
    manager.side.settle()
    assert logs[1].recovery_point == 1
    manager.close()


def test_a_log_that_was_cut_does_not_take_an_older_flush_for_its_own(bench: Any) -> None:
    bench.configure(flush_ms=0)
    log = bench.open(high_watermark=0)
    pending: list[Any] = []
    log.flush_later = pending.append
    for value in (b"a", b"b"):
        bench.append(log, value)
    log.flush_if_due(bench.now)
    log.flush_if_due(bench.now)
    log.truncate_to(1)
    bench.append(log, b"c")
    (flush,) = pending
    flush.done()
    assert log.recovery_point == 0


def test_a_read_that_fails_is_an_error_of_its_partition(bench: Any) -> None:
    log = bench.open()
    bench.append(log, b"a")
    bench.fs.reads_fail = True
    with pytest.raises(OSError, match="Input/output"):
        log.read_bytes(0, 1 << 20)
    bench.fs.reads_fail = False
    assert bench.values(log) == [b"a"]


@pytest.mark.parametrize("what", ["append", "roll", "checkpoint"])
def test_a_full_disk_refuses_and_recovers_when_there_is_room(bench: Any, what: str, caplog: Any) -> None:
    bench.configure(index_interval_bytes=0)
    manager = bench.start()
    log = manager.create("t", bench.topic_id, 0, bench.config)
    bench.append(log, b"a")
    work = {"append": lambda: bench.append(log, b"b" * 100), "roll": log.roll, "checkpoint": manager.flush_checkpoints}
    bench.fs.room = 0
    for _ in range(2):
        with pytest.raises(OSError if what == "checkpoint" else errors.KafkaStorageError, match="No space left"):
            work[what]()
    assert (bench.values(log), log.failure) == ([b"a"], None)
    bench.fs.room = None
    work[what]()
    bench.append(log, b"c")
    values = bench.values(log)
    manager.close()
    assert (values[0], values[-1]) == (b"a", b"c")
    assert bench.values(bench.open()) == values


@pytest.mark.parametrize("fails", [False, True])
def test_many_logs_are_synced_at_once_when_they_are_closed(bench: Any, fails: bool, caplog: Any) -> None:
    manager = bench.start()
    for partition in range(120):
        bench.append(manager.create("t", bench.topic_id, partition, bench.config), b"a")
    syncs: list[None] = []
    bench.fs.on_slow = lambda: syncs.append(None)
    bench.fs.sync_fails = fails
    manager.close()
    bench.fs.on_slow, bench.fs.sync_fails = None, False
    assert 0 < len(syncs) < 10
    assert ("not everything is on the disk" in caplog.text) is fails
    assert fails or str(bench.root / "t-119" / f"{0:020}.log") in bench.fs.synced
    manager = bench.start()
    assert manager.was_clean is not fails
    assert {bench.values(manager.get("t", partition))[0] for partition in range(120)} == {b"a"}
    manager.close()
