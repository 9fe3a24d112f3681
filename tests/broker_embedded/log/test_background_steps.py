"""Background work runs in steps: however large a log is, what is done between two pauses stays small."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyclient.broker_embedded.log import file_records
from pyclient.broker_embedded.log.checkpoints import LEADER_EPOCHS
from pyclient.broker_embedded.log.compaction import batch_filter, cleaner
from pyclient.broker_embedded.log.compaction.log_cleaner import LogCleaner
from pyclient.broker_embedded.log.compaction.offset_map import KEY_BYTES
from pyclient.broker_embedded.log.compaction.rewriting import ROWS_AT_ONCE, chunks
from pyclient.broker_embedded.log.log_loader import LogCheckpoint, open_log
from pyclient.broker_embedded.log.recovery_queue import LogRecoveryQueue
from pyclient.broker_embedded.log.segment_indexes import SegmentIndexes
from pyclient.records import BatchBuilder, BatchHeader, Compression, check_crc
from pyclient.types import TopicPartition

_LARGE_VALUE = 20_000
_STEP_BYTES = 1 << 20


class Counter:
    """Counts the records and bytes that pass; each step's are taken away with `take`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records = self.bytes = 0
        monkeypatch.setattr(cleaner, "chunks", self._chunks)
        monkeypatch.setattr(batch_filter, "chunks", self._chunks)
        monkeypatch.setattr(cleaner, "check_crc", self._check_crc)

    def take(self) -> tuple[int, int]:
        found, self.records, self.bytes = (self.records, self.bytes), 0, 0
        return found

    def _chunks(self, batch: Any, header: BatchHeader) -> Iterator[list[Any]]:
        for rows in chunks(batch, header):
            self.records += len(rows)
            yield rows

    def _check_crc(self, batch: Any, position: int, header: BatchHeader) -> None:
        self.bytes += header.size
        check_crc(batch, position, header)


def filled(first: int, count: int, value: bytes, now_ms: int, codec: Compression) -> bytearray:
    """Return a batch of `count` records with keys that come again after 3,000 others."""
    builder = BatchBuilder(bytearray(1000 + count * (100 + len(value))), None)
    for n in range(first, first + count):
        assert builder.append(now_ms, b"key %d" % (n % 3000), value, ()) is not None
    return bytearray(builder.seal(compression=codec))


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_compaction_of_a_large_log_runs_in_steps_of_few_records_and_bytes(
    fixture: Any, monkeypatch: pytest.MonkeyPatch, codec: Compression
) -> None:
    fixture.configure(cleanup_policy=("compact",))
    log = fixture.open()
    shapes = [(5000, b"v")] * 2 + [(3, b"v")] * 2000 + [(20, b"v" * _LARGE_VALUE)] * 20
    total = 0
    for count, value in shapes:
        log.append(filled(total, count, value, fixture.now, codec), leader_epoch=0, now_ms=fixture.now)
        total += count
    size = log.size
    log.roll()
    counter = Counter(monkeypatch)
    handled: list[tuple[int, int]] = []
    steps = LogCleaner(fixture.fs, memory=10_000 * KEY_BYTES, save=lambda: iter([None])).due([log], fixture.now)
    answer: Any = None
    rounds = None
    while rounds is None:
        try:
            step = steps.send(answer)
            answer = step.work() if step is not None else None
        except StopIteration as end:
            rounds = end.value
        handled.append(counter.take())
    assert rounds == 1
    # each record and byte is looked at twice: for the last offset of each key, and for what stays
    assert sum(records for records, _ in handled) == 2 * total
    assert sum(size_of for _, size_of in handled) == 2 * size
    assert max(records for records, _ in handled) <= 2 * ROWS_AT_ONCE
    assert max(size_of for _, size_of in handled) <= _STEP_BYTES
    assert len({record.key for record in fixture.records(log, max_bytes=1 << 26)}) == 3000


def test_retention_of_many_logs_runs_in_steps_of_one_segment(fixture: Any) -> None:
    logs, segments = 100, 3
    fixture.configure(retention_ms=1000)
    manager = fixture.start()
    for partition in range(logs):
        log = manager.create("t", fixture.topic_id, partition, fixture.config)
        for _ in range(segments):
            log.roll()
            fixture.append(log, b"old")
    removed = []
    for count in manager.retention_steps(fixture.now + 100_000):
        removed.append(count)
        left = sum(1 for log in manager.logs for segment in log.segments if segment.size)
        assert left == logs * segments - sum(removed)  # the others wait for their step
    assert max(removed) == 1
    assert sum(removed) == logs * segments
    manager.close()


def test_retention_leaves_a_log_alone_that_was_closed_between_two_steps(fixture: Any) -> None:
    fixture.configure(retention_ms=1000)
    log = fixture.open()
    for _ in range(3):
        log.roll()
        fixture.append(log, b"old")
    log = fixture.reopen(log)
    steps = log.retention_steps(fixture.now + 100_000)
    assert next(steps) == 0  # an index was read
    log.close(clean=False)
    shutil.rmtree(fixture.directory)
    assert sum(steps) == 0
    assert not Path(fixture.directory).exists()


class OpeningCounter:
    """Counts what is done to a log that is being opened; each step's is taken away with `take`."""

    def __init__(self, fixture: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self._fs = fixture.fs
        self.batches = self.checked = 0
        self.off_loop = False
        note_batch = SegmentIndexes.add_batch

        def note(segment: Any, position: int, header: BatchHeader) -> None:
            self.batches += 1
            note_batch(segment, position, header)

        def check(batch: Any, position: int, header: BatchHeader) -> None:
            self.checked += 0 if self.off_loop else header.size
            check_crc(batch, position, header)

        monkeypatch.setattr(SegmentIndexes, "add_batch", note)
        monkeypatch.setattr(file_records, "check_crc", check)

    def take(self) -> tuple[int, int, int]:
        """Return (batches noted, bytes checked on the loop, bytes read on the loop) since the last call."""
        found = self.batches, self.checked, self._fs.bytes_read
        self.batches = self.checked = self._fs.bytes_read = 0
        return found

    def run(self, steps: Any) -> tuple[Any, list[tuple[int, int, int]]]:
        """Run all steps; return the result, and what each step did."""
        answer, done = None, []
        self.take()
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                return end.value, [*done, self.take()]
            done.append(self.take())
            self.off_loop = True
            answer = step.work() if step is not None else None
            self.off_loop = False
            self._fs.bytes_read = 0


@pytest.mark.parametrize(
    "lost", [(), (f"{0:020}.index",), (f"{0:020}.index", f"{0:020}.timeindex"), (LEADER_EPOCHS,), (f"{0:020}.log",)]
)
@pytest.mark.parametrize("clean", [False, True])
def test_a_log_of_many_batches_is_opened_in_steps_of_one_batch(
    fixture: Any, monkeypatch: pytest.MonkeyPatch, lost: tuple[str, ...], clean: bool
) -> None:
    fixture.configure(segment_bytes=16 << 20, index_interval_bytes=1000)
    log = fixture.open()
    for n in range(1000):
        fixture.append(log, b"%d" % n * 20, producer_id=5, epoch=1, sequence=n, leader_epoch=n // 300)
    fixture.append(log, b"x" * _LARGE_VALUE * 40, producer_id=5, epoch=1, sequence=1000, leader_epoch=4)
    log.roll()
    fixture.append(log, b"the last", producer_id=5, epoch=1, sequence=1001, leader_epoch=4)
    end, size = log.end_offset, log.size
    log.close(clean=clean)
    for name in lost:
        if name.endswith(".log"):  # its middle
            content = bytearray(fixture.path(name).read_bytes())
            content[50_000] ^= 1
            fixture.path(name).write_bytes(content)
        else:
            fixture.path(name).unlink()
    counter = OpeningCounter(fixture, monkeypatch)
    opening = open_log(
        fixture.directory,
        TopicPartition("t", 0),
        fixture.topic_id,
        fixture.config,
        LogCheckpoint(clean),
        fs=fixture.fs,
        clock=fixture.clock,
    )
    opened, done = counter.run(opening)
    broken = not clean and lost == (f"{0:020}.log",)
    assert (opened.end_offset < end) == broken
    assert opened.size == size or broken
    assert max(batches for batches, _, _ in done) <= 1
    assert max(checked for _, checked, _ in done) < file_records.LARGE
    assert max(read for _, _, read in done) <= 64 << 10
    if not clean and not lost:
        assert sum(batches for batches, _, _ in done) == 1002
    opened.close(clean=False)


def opened_manager(fixture: Any, *topics: str) -> Any:
    """Return the logs of these topics, written and left as by a crash, and not opened again yet."""
    manager = fixture.start()
    for topic in topics:
        log = manager.create(topic, fixture.topic_id, 0, fixture.config)
        for n in range(20):
            fixture.append(log, b"%d" % n)
    manager.close(clean=False)
    return fixture.start()


def steps_of(queue: LogRecoveryQueue) -> Iterator[None]:
    steps = queue.steps()
    answer = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration:
            return
        answer = step.work() if step is not None else None
        yield None


def test_recovery_queue_logs_the_traceback_of_an_unexpected_error_only(caplog: pytest.LogCaptureFixture) -> None:
    bug, full = TopicPartition("bug", 0), TopicPartition("full", 0)

    def opening(partition: TopicPartition) -> Iterator[None]:
        yield None
        raise RuntimeError("a bug") if partition == bug else OSError("the disk is full")

    queue = LogRecoveryQueue({bug: "a", full: "b"}, opening)  # type: ignore[arg-type]
    queue.request_all()
    for _ in steps_of(queue):
        pass
    assert {each.getMessage(): each.exc_info is not None for each in caplog.records} == {
        "bug-0 cannot be opened: a bug": True,
        "full-0 cannot be opened: the disk is full": False,
    }


def test_a_log_that_is_waited_for_is_opened_before_the_others(fixture: Any) -> None:
    manager = opened_manager(fixture, "a", "b", "c")
    manager.recovery_queue.request_all()
    steps = steps_of(manager.recovery_queue)
    for _ in range(3):
        next(steps)
    first, second, last = sorted(
        manager.unopened, key=lambda partition: partition not in manager.recovery_queue._in_progress
    )
    notified: list[Any] = []
    assert not manager.recovery_queue.request(last)
    manager.recovery_queue.on_completion(last, lambda: notified.append(list(manager.unopened)))
    for _ in steps:
        pass
    assert [sorted(each) for each in notified] == [sorted([first, second])]
    assert not manager.unopened
    assert [log.end_offset for log in manager.logs] == [20] * 3
    manager.close()


def test_direct_access_completes_the_opening_of_a_log(fixture: Any) -> None:
    manager = opened_manager(fixture, "a")
    notified: list[bool] = []
    [partition] = manager.unopened
    assert not manager.recovery_queue.request(partition)
    manager.recovery_queue.on_completion(partition, lambda: notified.append(partition in manager.unopened))
    steps = steps_of(manager.recovery_queue)
    for _ in range(10):
        next(steps)
    log = manager.get(*partition)
    assert log.end_offset == 20
    assert list(steps) == []
    assert notified == [False]
    assert manager.get(*partition) is log
    manager.close()


def test_recovery_pauses_after_a_log_that_no_request_waits_for(fixture: Any) -> None:
    manager = opened_manager(fixture, "a", "b", "c", "d")
    queue, rests = manager.recovery_queue, []
    queue.pause = lambda: rests.append(len(manager.unopened))
    queue.request_all()
    for _ in steps_of(queue):
        pass
    assert (rests, len(manager.unopened)) == ([3], 3)
    wanted = list(manager.unopened)[-1]
    assert not queue.request(wanted)
    for _ in steps_of(queue):
        pass
    assert wanted not in manager.unopened
    assert (rests, len(manager.unopened)) == ([3, 1], 1)  # none follows the one that was requested
    for _ in steps_of(queue):
        pass
    assert not manager.unopened
    manager.close()


def test_a_log_deleted_while_its_opening_waits_for_the_disk_is_no_error(
    fixture: Any, caplog: pytest.LogCaptureFixture
) -> None:
    manager = opened_manager(fixture, "a", "b")
    deleted, other = manager.unopened
    queue = manager.recovery_queue
    assert not queue.request(deleted)
    notified: list[bool] = []
    queue.on_completion(deleted, lambda: notified.append(deleted in manager.unopened))
    steps = queue.steps()
    while (step := next(steps)) is None:
        pass
    manager.delete_topic(deleted.topic, fixture.topic_id)
    assert not queue.request(other)
    with contextlib.suppress(StopIteration):
        step = steps.throw(FileNotFoundError(step))  # what the work found, whose directory has another name now
        while True:
            step = steps.send(step.work() if step is not None else None)
    assert (notified, caplog.records) == ([False], [])
    assert [(log.topic, log.end_offset) for log in manager.logs] == [(other.topic, 20)]
    manager.close()
