"""Records into and out of batches: the compiled codec, its Python twin and other clients' codecs, side by side.

`python -m benchmarks.records [--size BYTES] [--runs N]`. Every run takes them all in turn; the table shows medians.
Time is the thread's CPU time, so figures are for one core. Exits with 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import importlib
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from types import ModuleType
from typing import Any

from rich.console import Console
from rich.table import Table

from pyclient.records import _pure, read_header

BATCH_BYTES = 128 * 1024
BATCHES = 16  # in one measurement; the slow ones do one
GOALS = {"append, one call each": 5.0, "decode to objects": 5.0, "decode to columns": 30.0}  # M records/s, 100 B values
TIMESTAMP = 1_700_000_000_000

Work = Callable[[], int]  # does a piece of it and says how many records that was


@dataclass
class Case:
    """One implementation of one kind of work, and what it took so far, in ns for a record."""

    work: str
    name: str
    run: Work
    times: list[float] = field(default_factory=list)

    def measure(self) -> None:
        """Do it once more."""
        started = time.thread_time_ns()
        count = self.run()
        self.times.append((time.thread_time_ns() - started) / count)


def ours(name: str, twin: Any, size: int, batches: int) -> list[Case]:
    """Return all kinds of work by one of our twins."""
    count = BATCH_BYTES // (size + 10)
    value = bytes(range(256)) * (size // 256) + bytes(range(size % 256))
    values = [value] * count
    buffer = bytearray(BATCH_BYTES + 1024)

    class Future(twin.RecordHandle):  # type: ignore[misc]
        __slots__ = ()

    def append() -> int:
        for _ in range(batches):
            append = twin.BatchBuilder(buffer, None, Future).append
            futures = [append(TIMESTAMP, None, each, None) for each in values]
        return batches * len(futures)

    def append_many() -> int:
        for _ in range(batches):
            builder = twin.BatchBuilder(buffer, None, Future)
            builder.append_many(TIMESTAMP, None, values, None, 0, count)
        return batches * int(builder.count)

    builder = twin.BatchBuilder(buffer, None, Future)
    builder.append_many(TIMESTAMP, None, values, None, 0, count)
    batch = bytes(builder.seal())
    header = read_header(batch)

    def decode() -> int:
        for _ in range(batches):
            records = twin.decode_batch(batch, 0, header, "topic", 0)
        return batches * len(records)

    def columns() -> int:
        collected = twin.ColumnsBuilder()
        for _ in range(batches):
            collected.add(batch, 0, header, "topic", 0)
        return int(collected.finish().count)

    collected = twin.ColumnsBuilder()
    collected.add(batch, 0, header, "topic", 0)
    parts = collected.finish()

    def append_columns() -> int:
        for _ in range(batches):
            builder = twin.BatchBuilder(buffer, None, Future)
            builder.append_columns(parts.timestamps, parts.keys, parts.values, None, 0, count)
        return batches * int(builder.count)

    works = {
        "append, one call each": append,
        "append a list": append_many,
        "append a column": append_columns,
        "decode to objects": decode,
        "decode to columns": columns,
    }
    return [Case(work, name, run) for work, run in works.items()]


def peers(name: str, module: ModuleType, suffix: str, size: int, batches: int) -> list[Case]:
    """Return the two kinds of work that other clients' codecs do as well."""
    builder_type = getattr(module, f"DefaultRecordBatchBuilder{suffix}")
    batch_type = getattr(module, f"DefaultRecordBatch{suffix}")
    count = BATCH_BYTES // (size + 10)
    value = bytes(size)

    def build() -> Any:
        builder = builder_type(
            magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
            batch_size=BATCH_BYTES + 1024,
        )  # fmt: skip
        for offset in range(count):
            builder.append(offset, timestamp=TIMESTAMP, key=None, value=value, headers=[])
        return builder

    def append() -> int:
        for _ in range(batches):
            build()
        return batches * count

    batch = bytes(build().build())

    def decode() -> int:
        for _ in range(batches):
            records = [(record.offset, record.key, record.value) for record in batch_type(batch)]
        return batches * len(records)

    return [Case("append, one call each", name, append), Case("decode to objects", name, decode)]


def cases(size: int) -> list[Case]:
    """Return every implementation that is installed, the compiled ones with more to do."""
    found: list[Case] = []
    for name, module, batches in (
        ("pyclient", "pyclient.records._speedups", BATCHES),
        ("aiokafka (Cython)", "aiokafka.record._crecords.default_records", BATCHES),
        ("kafka-python", "kafka.record.default_records", 1),
    ):
        try:
            imported = importlib.import_module(module)
        except ImportError as error:
            Console(stderr=True).print(f"without {name}: {error}")
            continue
        found += ours(name, imported, size, batches) if name == "pyclient" else peers(name, imported, "", size, batches)
    return found + ours("pyclient (Python)", _pure, size, 1)


def show(found: list[Case], size: int, runs: int) -> bool:
    """Print the table; False when a goal is missed."""
    table = Table(title=f"{size} B values, batches of {BATCH_BYTES // 1024} KiB, median of {runs} runs, one core")
    for heading in ("", "codec", "ns/record", "M records/s", "MB/s", "relative to pyclient", "goal"):
        table.add_column(heading, justify="left" if heading in ("", "codec") else "right")
    met = True
    for work in dict.fromkeys(case.work for case in found):
        rivals = [case for case in found if case.work == work]
        reference = median(rivals[0].times)
        for case in rivals:
            taken = median(case.times)
            goal = GOALS.get(work) if case.name == "pyclient" and size == 100 else None
            if goal is not None:
                met = met and 1000 / taken >= goal
            table.add_row(
                work if case is rivals[0] else "",
                case.name,
                f"{taken:,.1f}",
                f"{1000 / taken:.2f}",
                f"{1000 * size / taken:,.0f}",
                f"{reference / taken:.2f}x",
                "" if goal is None else f"{goal:.0f} {'met' if 1000 / taken >= goal else 'MISSED'}",
            )
        table.add_section()
    Console(width=110).print(table)
    return met


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=100, help="bytes in a value")
    parser.add_argument("--runs", type=int, default=15)
    arguments = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other people's, while they are imported
        found = cases(arguments.size)
    for case in found:
        case.run()  # a first one, uncounted
    for _ in range(arguments.runs):
        for case in found:
            case.measure()
    raise SystemExit(0 if show(found, arguments.size, arguments.runs) else 1)


if __name__ == "__main__":
    main()
