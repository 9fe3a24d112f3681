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


def test_an_append_that_does_not_fit_on_the_disk_leaves_nothing(fixture: Any) -> None:
    log = fixture.open()
    fixture.append(log, b"kept")
    size = len(fixture.batch(b"x" * 100))
    for room in range(size):
        fixture.fs.room = room
        with pytest.raises(errors.KafkaStorageError, match="No space left"):
            fixture.append(log, b"x" * 100, producer_id=1, epoch=0, sequence=0)
        assert fixture.path(f"{0:020}.log").stat().st_size == log.size
    assert (log.end_offset, len(log.producers)) == (1, 0)
    fixture.fs.room = None
    assert fixture.append(log, b"after", producer_id=1, epoch=0, sequence=0).base_offset == 1
    assert fixture.values(fixture.crash(log)) == [b"kept", b"after"]


def test_the_first_append_may_fail_and_be_tried_again(fixture: Any) -> None:
    fixture.fs.room = 0
    log = fixture.open()
    for _ in range(2):
        with pytest.raises(errors.KafkaStorageError):
            fixture.append(log, b"a")
    fixture.fs.room = None
    fixture.append(log, b"b")
    assert fixture.values(fixture.crash(log)) == [b"b"]


def test_partial_write_is_truncated_at_the_latest_before_the_next_one(fixture: Any) -> None:
    log = fixture.open()
    fixture.append(log, b"kept")
    fixture.fs.room, fixture.fs.truncate_fails = 80, True
    for _ in range(2):
        with pytest.raises(errors.KafkaStorageError):
            fixture.append(log, b"x" * 100)
    assert fixture.values(log) == [b"kept"]
    fixture.fs.room, fixture.fs.truncate_fails = None, False
    fixture.append(log, b"y")
    assert fixture.path(f"{0:020}.log").stat().st_size == log.size
    assert fixture.values(fixture.crash(log)) == [b"kept", b"y"]


def test_failed_roll_of_a_segment_is_retried_by_the_next_append(fixture: Any) -> None:
    size = len(fixture.batch(b"0"))
    fixture.configure(segment_bytes=2 * size, index_interval_bytes=0)
    log = fixture.open()
    for value in (b"0", b"1"):
        fixture.append(log, value)
    fixture.fs.room = 0
    with pytest.raises(errors.KafkaStorageError, match="cannot be closed"):
        fixture.append(log, b"2")
    assert log.end_offset == 2
    fixture.fs.room = None
    fixture.append(log, b"2")
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    assert fixture.values(fixture.crash(log)) == [b"0", b"1", b"2"]


def test_a_sync_that_fails_takes_the_log_offline(fixture: Any) -> None:
    log = fixture.open()
    fixture.append(log, b"a")
    fixture.fs.sync_fails = True
    with pytest.raises(errors.KafkaStorageError, match="flush failed"):
        log.flush()
    fixture.fs.sync_fails = False
    with pytest.raises(errors.KafkaStorageError, match="offline"):
        fixture.append(log, b"b")
    assert log.recovery_point == 0
    assert log.read(0, 100).size > 0
    assert fixture.values(fixture.crash(log)) == [b"a"]


def test_unreadable_directory_is_reported(fixture: Any) -> None:
    Path(fixture.directory).mkdir()
    fixture.path("partition.metadata").mkdir()
    with pytest.raises(errors.KafkaStorageError, match="cannot be opened"):
        fixture.open()


def lose_power(fixture: Any, synced: dict[str, bytes], rng: random.Random) -> None:
    """Keep what was synced of every file; of the rest nothing, a part, zeros, or some blocks."""
    for path in sorted(Path(fixture.directory).glob("*")):
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
def test_flushed_data_survives_a_loss_of_power(new_fixture: Any, steps: list[str], seed: int) -> None:
    fixture = new_fixture()
    fixture.configure(index_interval_bytes=100)
    rng = random.Random(seed)
    log, epoch, sequences = fixture.open(), 0, 0
    for index, step in enumerate(steps):
        if step in ("append", "txn"):
            options = {"producer_id": 1, "epoch": 0, "sequence": sequences, "transactional": True}
            sequences += step == "txn"
            value = b"%d" % index * rng.randint(1, 40)
            fixture.append(log, value, leader_epoch=epoch, **(options if step == "txn" else {}))
        elif step == "end":
            fixture.end(log, 1, 0, commit=rng.random() < 0.5)
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
    lose_power(fixture, fixture.fs.synced, rng)
    log = fixture.open(clean=False, recovery_point=point)
    assert point <= log.end_offset
    found = []
    for segment in log.segments:
        data = log.read_bytes(segment.base_offset, 1 << 20) if segment.size else b""
        for at, header in iter_batches(data):
            check_crc(data, at, header)
            assert log.epoch_at(header.base_offset) == header.leader_epoch
            found.append(data[at : at + header.size])
    assert found == written[: len(found)]
    assert fixture.append(log, b"new", leader_epoch=epoch + 1).base_offset == log.end_offset - 1
    fixture.close()


def test_no_fsync_and_no_removal_happens_on_the_logs_thread(fixture: Any) -> None:
    """Once a node looks after the logs; rolls, `flush.ms` and retention leave their work to another thread."""
    fixture.configure(flush_ms=1000, retention_ms=1000, index_interval_bytes=0)
    fixture.fs.durable = True
    manager = fixture.start()
    manager.disk_thread.wake = lambda: None
    log = manager.create("t", fixture.topic_id, 0, fixture.config)
    threads: set[str] = set()
    fixture.fs.on_slow = lambda: threads.add(threading.current_thread().name)
    fixture.append(log, b"a")
    log.roll()
    fixture.append(log, b"b")
    manager.flush_due(fixture.now)
    manager.flush_due(fixture.now + 1000)
    manager.disk_thread.wait_until_idle()
    assert (log.recovery_point, threads) == (2, {"pyclient-log-disk"})
    assert {"leader-epoch-checkpoint", "partition.metadata"} <= {Path(path).name for path in fixture.fs.synced}
    assert manager.run_retention(fixture.now + 5000) == 2
    manager.run_retention(fixture.now + 5000)
    manager.disk_thread.wait_until_idle()
    assert not [name for name in fixture.names() if name.endswith(".deleted")]
    assert threads == {"pyclient-log-disk"}
    fixture.fs.on_slow = None
    manager.close()


def test_failed_background_sync_takes_only_its_log_offline(fixture: Any, caplog: Any) -> None:
    fixture.fs.durable = True
    manager = fixture.start()
    logs = [manager.create("t", fixture.topic_id, partition, fixture.config) for partition in (0, 1)]
    for log in logs:
        fixture.append(log, b"a")
    fixture.fs.sync_fails = True
    logs[0].roll()
    manager.disk_thread.wait_until_idle()
    fixture.fs.sync_fails = False
    with pytest.raises(errors.KafkaStorageError, match="offline"):
        fixture.append(logs[0], b"b")
    assert fixture.values(logs[0]) == [b"a"]
    logs[1].roll()
    fixture.append(logs[1], b"b")
    manager.disk_thread.wait_until_idle()
    assert logs[1].recovery_point == 1
    manager.close()


def test_flush_from_before_a_truncation_does_not_count(fixture: Any) -> None:
    fixture.configure(flush_ms=0)
    log = fixture.open(high_watermark=0)
    pending: list[Any] = []
    log.flush_later = pending.append
    for value in (b"a", b"b"):
        fixture.append(log, value)
    log.flush_if_due(fixture.now)
    log.flush_if_due(fixture.now)
    log.truncate_to(1)
    fixture.append(log, b"c")
    (flush,) = pending
    flush.done()
    assert log.recovery_point == 0


def test_a_read_that_fails_is_an_error_of_its_partition(fixture: Any) -> None:
    log = fixture.open()
    fixture.append(log, b"a")
    fixture.fs.reads_fail = True
    with pytest.raises(OSError, match="Input/output"):
        log.read_bytes(0, 1 << 20)
    fixture.fs.reads_fail = False
    assert fixture.values(log) == [b"a"]


@pytest.mark.parametrize("what", ["append", "roll", "checkpoint"])
def test_a_full_disk_refuses_and_recovers_when_there_is_room(fixture: Any, what: str, caplog: Any) -> None:
    fixture.configure(index_interval_bytes=0)
    manager = fixture.start()
    log = manager.create("t", fixture.topic_id, 0, fixture.config)
    fixture.append(log, b"a")
    work = {
        "append": lambda: fixture.append(log, b"b" * 100),
        "roll": log.roll,
        "checkpoint": manager.flush_checkpoints,
    }
    fixture.fs.room = 0
    for _ in range(2):
        with pytest.raises(OSError if what == "checkpoint" else errors.KafkaStorageError, match="No space left"):
            work[what]()
    assert (fixture.values(log), log.failure) == ([b"a"], None)
    fixture.fs.room = None
    work[what]()
    fixture.append(log, b"c")
    values = fixture.values(log)
    manager.close()
    assert (values[0], values[-1]) == (b"a", b"c")
    assert fixture.values(fixture.open()) == values


@pytest.mark.parametrize("fails", [False, True])
def test_many_logs_are_synced_at_once_when_they_are_closed(fixture: Any, fails: bool, caplog: Any) -> None:
    manager = fixture.start()
    for partition in range(120):
        fixture.append(manager.create("t", fixture.topic_id, partition, fixture.config), b"a")
    syncs: list[None] = []
    fixture.fs.on_slow = lambda: syncs.append(None)
    fixture.fs.sync_fails = fails
    manager.close()
    fixture.fs.on_slow, fixture.fs.sync_fails = None, False
    assert 0 < len(syncs) < 10
    assert ("not everything is on the disk" in caplog.text) is fails
    assert fails or str(fixture.root / "t-119" / f"{0:020}.log") in fixture.fs.synced
    manager = fixture.start()
    assert manager.was_clean is not fails
    assert {fixture.values(manager.get("t", partition))[0] for partition in range(120)} == {b"a"}
    manager.close()
