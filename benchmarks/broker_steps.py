"""Time for which each slice of background work blocks the broker's loop, on unfavorable logs.

`python -m benchmarks.broker_steps [--megabytes 200] [--only recovery]`; what waits for the disk runs on a disk thread,
as in a node, and is not counted. A slice should take 2 ms at most.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
import time
import uuid
from array import array
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

from rich.console import Console
from rich.table import Table

from pyclient.broker_embedded.log.config import LogConfig
from pyclient.broker_embedded.log.data_directories import DataDirectories
from pyclient.broker_embedded.log.disk_thread import DiskThread
from pyclient.broker_embedded.log.filesystem import RealFileSystem
from pyclient.broker_embedded.log.manager import LogManager
from pyclient.broker_embedded.log.unified_log import UnifiedLog
from pyclient.broker_embedded.scheduling.background_tasks import BackgroundTasks
from pyclient.clock import SYSTEM_CLOCK
from pyclient.records import BatchBuilder, Compression

MIB = 1 << 20
LONGEST_MS = 2.0
_TOPIC_ID = uuid.UUID(int=7)
_DAY_MS = 86_400_000


class Steps:
    """Milliseconds that each slice took, and of them on the processor: arrays, no work for the collector."""

    def __init__(self) -> None:
        self.wall, self.cpu = array("d"), array("d")


class Measured(BackgroundTasks):
    """Notes how long each slice of the work takes; `over` is set when all is done."""

    def __init__(self, loop: asyncio.AbstractEventLoop, disk_thread: DiskThread, found: Steps) -> None:
        super().__init__(loop, disk_thread)
        self.found = found
        self.over = asyncio.Event()

    def _continue(self, name: str, answer: Any, failure: Exception | None) -> None:
        cpu, wall = time.thread_time(), time.perf_counter()
        try:
            super()._continue(name, answer, failure)
        finally:
            self.found.wall.append((time.perf_counter() - wall) * 1e3)
            self.found.cpu.append((time.thread_time() - cpu) * 1e3)
            if not self._running:
                self.over.set()


def run(found: Steps, steps: Any, disk_thread: DiskThread) -> None:
    """Do the work as a node does, on a loop with nothing else to do."""

    async def all_of_it() -> None:
        background = Measured(asyncio.get_running_loop(), disk_thread, found)
        background.run("work", steps)
        await background.over.wait()

    asyncio.run(all_of_it())
    disk_thread.wake = None


def batch(first: int, count: int, value: int, keys: int, codec: Compression, now_ms: int) -> bytearray:
    """Return a batch of `count` records, every key of which comes again after `keys` others."""
    builder = BatchBuilder(bytearray(1000 + count * (60 + value)), None)
    for n in range(first, first + count):
        assert builder.append(now_ms, b"key-%d" % (n % keys), b"%020d" % n * (value // 20), ()) is not None
    return bytearray(builder.seal(compression=codec))


def fill(log: UnifiedLog, amount: int, records: int, value: int, codec: Compression = Compression.NONE) -> None:
    """Append `amount` bytes in batches of so many records."""
    data = [batch(n * records, records, value, 40_000, codec, SYSTEM_CLOCK.time_ms()) for n in range(8)]
    written = 0
    while written < amount:
        part = data[written // max(len(data[0]), 1) % len(data)]
        log.append(bytearray(part), leader_epoch=0, now_ms=SYSTEM_CLOCK.time_ms())
        written += len(part)


class LogDirectory:
    """Logs of one data directory."""

    def __init__(self, folder: str, amount: int) -> None:
        self.folder = folder
        self.amount = amount
        self.found: dict[str, Steps] = {}

    def manager(self, **config: Any) -> LogManager:
        """Return the directory's logs, open."""
        fs = RealFileSystem()
        directories = DataDirectories([self.folder], fs=fs, node_id=1, cluster_id=None, rng=Random())
        manager = LogManager(directories, clock=SYSTEM_CLOCK, defaults=LogConfig(**config))
        manager.open()
        return manager

    def measure(self, name: str, disk_thread: DiskThread, steps: Any) -> None:
        """Measure the steps of some work."""
        gc.collect()
        gc.freeze()
        run(self.found.setdefault(name, Steps()), steps, disk_thread)

    def machine(self) -> None:
        """Measure slices that only count: long ones are caused by the machine."""

        def steps() -> Any:
            for _ in range(100_000):
                sum(range(3000))
                yield None

        self.measure("(counting)", DiskThread(), steps())

    def compaction(self) -> None:
        """Measure compaction of large batches, small ones, compressed ones."""
        shapes = (("large batches", 8000, 100, Compression.NONE), ("small batches", 3, 100, Compression.NONE))
        for name, records, value, codec in (*shapes, ("lz4", 8000, 100, Compression.LZ4)):
            manager = self.manager(cleanup_policy=("compact",), segment_bytes=16 * MIB, file_delete_delay_ms=0)
            log = manager.create(f"compacted-{records}-{codec}", _TOPIC_ID, 0, manager.defaults)
            fill(log, self.amount // (1 if records > 3 else 8), records, value, codec)
            log.flush()
            self.measure(f"compaction, {name}", manager.disk_thread, manager.compaction_steps(SYSTEM_CLOCK.time_ms()))
            self.measure("checkpoints", manager.disk_thread, manager.checkpoint_steps())
            manager.delete_topic(log.topic, _TOPIC_ID)
            manager.close()

    def retention(self) -> None:
        """Measure retention of many small logs, and of one of many segments."""
        manager = self.manager(segment_bytes=MIB, retention_ms=_DAY_MS, file_delete_delay_ms=0)
        few = [manager.create("many-logs", _TOPIC_ID, n, manager.defaults) for n in range(200)]
        for log in few:
            fill(log, 1000, 3, 100)
            log.roll()
            fill(log, 1000, 3, 100)
        fill(manager.create("many-segments", _TOPIC_ID, 0, manager.defaults), self.amount, 80, 100)
        late = SYSTEM_CLOCK.time_ms() + 2 * _DAY_MS
        manager.disk_thread.wait_until_idle()
        self.measure("retention", manager.disk_thread, _pauses(manager.retention_steps(late)))
        manager.close(clean=False)

    def recovery(self) -> None:
        """Measure recovery of a log that was never flushed, in batches of several sizes; one has no index."""
        for size, lost in ((1, ()), (16, ()), (16, (".index", ".timeindex")), (900, ())):
            manager = self.manager(segment_bytes=64 * MIB, file_delete_delay_ms=0, max_message_bytes=MIB)
            fill(manager.create(f"recovered-{size}", _TOPIC_ID, 0, manager.defaults), self.amount, size * 8, 100)
            manager.close(clean=False)
            for kind in lost:
                for path in Path(self.folder).glob(f"recovered-{size}-0/*{kind}"):
                    path.unlink()
            manager = self.manager()
            manager.recovery_queue.request_all()
            name = f"recovery, batches of {size} KiB" + (", no indexes" if lost else "")
            self.measure(name, manager.disk_thread, manager.recovery_queue.steps())
            manager.delete_topic(f"recovered-{size}", _TOPIC_ID)
            manager.close()

    def many_logs(self) -> None:
        """Measure checkpoints of 10,000 logs, and the flush of 1,000 whose `flush.ms` is over at once."""
        manager = self.manager(flush_ms=0)
        for n in range(10_000):
            log = manager.create("many", _TOPIC_ID, n, manager.defaults)
            if n < 1000:
                fill(log, 1, 3, 100)
        self.measure("checkpoints, 10,000 logs", manager.disk_thread, manager.checkpoint_steps())
        for _ in range(2):
            self.measure(
                "flush.ms, 1,000 of 10,000 logs",
                manager.disk_thread,
                _pauses(manager.flush_steps(SYSTEM_CLOCK.time_ms())),
            )
        manager.disk_thread.wait_until_idle()
        manager.close(clean=False)

    def table(self) -> Table:
        """Return the results as a table."""
        table = Table(title=f"slices of background work on the loop ({LONGEST_MS:g} ms at most)")
        for column in ("", "slices", "p50 ms", "p99 ms", "max ms", "max CPU ms", f"> {LONGEST_MS:g} ms"):
            table.add_column(column, justify="right" if column else "left")
        for name, steps in self.found.items():
            walls = sorted(steps.wall)
            shares = [walls[min(int(len(walls) * share), len(walls) - 1)] for share in (0.5, 0.99, 1.0)]
            late = sum(wall > LONGEST_MS for wall in walls)
            table.add_row(name, f"{len(walls):,}", *(f"{each:.2f}" for each in (*shares, max(steps.cpu))), str(late))
        return table


def _pauses(steps: Iterable[object]) -> Any:
    for _ in steps:
        yield None


def main() -> None:
    """Measure everything in turn and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=200, help="of each log")
    parser.add_argument("--only", action="append", help="machine, compaction, retention, recovery or many_logs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pyclient-bench-") as folder:
        bench = LogDirectory(folder, options.megabytes * MIB)
        works = (bench.machine, bench.compaction, bench.retention, bench.recovery, bench.many_logs)
        for work in works:
            if not options.only or work.__name__ in options.only:
                work()
        Console(width=120).print(bench.table())


if __name__ == "__main__":
    main()
