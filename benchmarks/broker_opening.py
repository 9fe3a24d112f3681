"""Time to open a log: a small and a large one, after a clean stop and after a kill.

`python -m benchmarks.broker_opening [--gigabytes 10]`, with `TMPDIR` where there is room; what a kill leaves to check
is as much in both logs. The active segment of the large one is nearly full: nothing that opening reads could be larger.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import uuid
from random import Random
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.broker_load import batch
from pyclient.broker_embedded.log.config import LogConfig
from pyclient.broker_embedded.log.data_directories import DataDirectories
from pyclient.broker_embedded.log.filesystem import RealFileSystem
from pyclient.broker_embedded.log.manager import LogManager
from pyclient.broker_embedded.log.unified_log import UnifiedLog
from pyclient.clock import SYSTEM_CLOCK
from pyclient.types import TopicPartition

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
_BATCH = 4 * KIB
_RUNS = 3
_TAILS = (0, 16 * MIB, 64 * MIB)


def opened(folder: str) -> LogManager:
    """Return the directory's logs, as a node that has started uses them."""
    fs = RealFileSystem(durable=False)
    directories = DataDirectories([folder], fs=fs, node_id=1, cluster_id=None, rng=Random())
    manager = LogManager(directories, clock=SYSTEM_CLOCK, defaults=LogConfig())
    manager.open()
    manager.take_into_use()  # otherwise no stop counts as clean
    return manager


def fill(log: UnifiedLog, amount: int) -> None:
    """Append `amount` bytes; the last gigabyte in batches so small that its index has the maximum density."""
    for size, part in ((256 * KIB, amount - GIB), (_BATCH, min(amount, GIB))):
        data, now_ms = bytearray(batch(size)), SYSTEM_CLOCK.time_ms()
        for _ in range(part // len(data)):
            data[:8] = bytes(8)  # the base offset, which the last append has stamped
            log.append(data, leader_epoch=0, now_ms=now_ms)


def timed_opening(folder: str) -> tuple[float, LogManager, UnifiedLog]:
    """Return the milliseconds from nothing to a log that takes appends, and both."""
    started = time.perf_counter()
    manager = opened(folder)
    log = manager.get(*TopicPartition("t", 0))
    assert log is not None
    return (time.perf_counter() - started) * 1e3, manager, log


def measure(size: int) -> dict[str, list[float]]:
    """Return milliseconds by what was done."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="pyclient-bench-") as folder:
        manager = opened(folder)
        fill(manager.create("t", uuid.UUID(int=7), 0, manager.defaults), size)
        manager.close()
        for tail in _TAILS * _RUNS:
            took, manager, log = timed_opening(folder)
            found.setdefault("after a clean stop", []).append(took)
            started = time.perf_counter()
            log.read_bytes(log.end_offset // 2, 1)
            found.setdefault("its first read", []).append((time.perf_counter() - started) * 1e3)
            end = log.end_offset
            manager.flush_checkpoints()
            fill(log, tail)
            manager.close(clean=False)
            took, manager, log = timed_opening(folder)
            found.setdefault(f"after a kill, {tail // MIB} MiB not flushed", []).append(took)
            log.truncate_to(end)
            manager.close()
    return found


def main() -> None:
    """Measure everything in turn and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=int, default=2, help="of the large log")
    options = parser.parse_args()
    logs = [measure(size) for size in (100 * MIB, options.gigabytes * GIB - 70 * MIB)]
    table = Table(title="opening a log: milliseconds")
    for column in ("", "100 MiB", f"{options.gigabytes} GiB"):
        table.add_column(column, justify="right" if column else "left")
    for name in logs[0]:
        table.add_row(name, *(f"{median(found[name]):.2f}" for found in logs))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
