"""Guarantees for threads that run in parallel (PEP 703), which hold under the GIL as well."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from pyclient.records import read_header

THREADS = 6

LOCK_STAYS = """
import sys
enabled = getattr(sys, "_is_gil_enabled", lambda: True)
before = enabled()
import pyclient, pyclient.records, pyclient.producer, pyclient.consumer, pyclient.broker_embedded
assert enabled() is before, "an import has switched the interpreter's lock on"
"""


def run_in_parallel(work: Callable[[int], object]) -> None:
    """Run `work` in several threads that start together; raise the first error of one of them."""
    ready, wrong = threading.Barrier(THREADS), []

    def run(number: int) -> None:
        try:
            ready.wait(60)
            work(number)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise wrong[0]


def test_importing_package_does_not_enable_gil() -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", LOCK_STAYS], check=True, timeout=120)


def test_columns_built_by_concurrent_threads_share_no_memory(twin: Any) -> None:
    """Blocks of freed columns are reused for the next ones in any thread."""
    batches = [twin.build([(0, b"%d" % number * 9, bytes([number]) * 400, ())] * 300) for number in range(THREADS)]

    def work(number: int) -> None:
        for _ in range(40):
            columns = twin.columns(batches[number], batches[number])
            assert bytes(columns.values.data) == bytes([number]) * 400 * 600
            assert bytes(columns.keys.data) == b"%d" % number * 9 * 600
            if number == 0:
                twin.module.release_spare_memory()

    run_in_parallel(work)


def test_placed_batch_can_be_read_by_several_threads(twin: Any) -> None:
    data = twin.build([(7, None, b"value", ())] * 3, base_offset=40)
    for _ in range(100):
        found: list[Any] = []
        twin.module.find_batches(twin.module.PlacedBatch, "orders", 3, data, 0, 0, found)
        batch = found[0]

        def work(number: int, batch: Any = batch) -> None:
            assert batch.header == read_header(data)
            batch.kept = [number]
            assert 0 <= batch.kept[0] < THREADS

        run_in_parallel(work)
