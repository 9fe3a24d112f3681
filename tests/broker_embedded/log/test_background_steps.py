"""Background work runs in steps: however large a log is, what is done between two pauses stays small."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyclient.broker_embedded.log.compaction import cleaner, filtering
from pyclient.broker_embedded.log.compaction.compactor import Compactor
from pyclient.broker_embedded.log.compaction.offset_map import KEY_BYTES
from pyclient.broker_embedded.log.compaction.rewriting import ROWS_AT_ONCE, chunks
from pyclient.records import BatchBuilder, BatchHeader, Compression, check_crc

_LARGE_VALUE = 20_000
_STEP_BYTES = 1 << 20


class Counter:
    """Counts the records and bytes that pass; each step's are taken away with `take`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records = self.bytes = 0
        monkeypatch.setattr(cleaner, "chunks", self._chunks)
        monkeypatch.setattr(filtering, "chunks", self._chunks)
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
    """A batch of `count` records with keys that come again after 3,000 others."""
    builder = BatchBuilder(bytearray(1000 + count * (100 + len(value))), None)
    for n in range(first, first + count):
        assert builder.append(now_ms, b"key %d" % (n % 3000), value, ()) is not None
    return bytearray(builder.seal(compression=codec))


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_compaction_of_a_large_log_runs_in_steps_of_few_records_and_bytes(
    bench: Any, monkeypatch: pytest.MonkeyPatch, codec: Compression
) -> None:
    bench.configure(cleanup_policy=("compact",))
    log = bench.open()
    shapes = [(5000, b"v")] * 2 + [(3, b"v")] * 2000 + [(20, b"v" * _LARGE_VALUE)] * 20
    total = 0
    for count, value in shapes:
        log.append(filled(total, count, value, bench.now, codec), leader_epoch=0, now_ms=bench.now)
        total += count
    size = log.size
    log.roll()
    counter = Counter(monkeypatch)
    handled: list[tuple[int, int]] = []
    steps = Compactor(bench.fs, memory=10_000 * KEY_BYTES, save=lambda: iter([None])).due([log], bench.now)
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
    assert len({record.key for record in bench.records(log, max_bytes=1 << 26)}) == 3000


def test_retention_of_many_logs_runs_in_steps_of_one_segment(bench: Any) -> None:
    logs, segments = 100, 3
    bench.configure(retention_ms=1000)
    manager = bench.manager()
    manager.open()
    for partition in range(logs):
        log = manager.create("t", bench.topic_id, partition, bench.config)
        for _ in range(segments):
            log.roll()
            bench.append(log, b"old")
    removed = []
    for count in manager.retention_steps(bench.now + 100_000):
        removed.append(count)
        left = sum(1 for log in manager.logs for segment in log.segments if segment.size)
        assert left == logs * segments - sum(removed)  # the others wait for their step
    assert max(removed) == 1
    assert sum(removed) == logs * segments
    manager.close()


def test_retention_leaves_a_log_alone_that_was_closed_between_two_steps(bench: Any) -> None:
    bench.configure(retention_ms=1000)
    log = bench.open()
    for _ in range(3):
        log.roll()
        bench.append(log, b"old")
    log = bench.reopen(log)
    steps = log.retention_steps(bench.now + 100_000)
    assert next(steps) == 0  # an index was read
    log.close(clean=False)
    shutil.rmtree(bench.directory)
    assert sum(steps) == 0
    assert not Path(bench.directory).exists()
