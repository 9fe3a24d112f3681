"""Costs of single settings and controls of a running broker: switch interval, request log, faults, malloc, collector.

`python -m benchmarks.broker_details [--only NAME]`

Where the broker's process is to differ from a usual one, it is a process of this module with the broker in a thread.
"""

from __future__ import annotations

import gc
import multiprocessing
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from benchmarks.broker_load import Wire, check_produced, frame, metadata_request, produce_request
from benchmarks.broker_nodes import Node, address_of
from benchmarks.compression import text
from benchmarks.details import Case, Figure, run, span
from pyclient import Admin, NewTopic
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.cluster.foreground import GarbageCollections, _keep_freed_memory
from pyclient.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pyclient.records import Compression, build_batch

REQUESTS = 20_000
PARTITIONS = 20_000
_PER_REQUEST = 1000  # partitions
_WAIT = 300  # seconds

Setting = Callable[[Any], Callable[[], Any]]
"""Called in the broker's process with an argument; returns what the process is asked for at the end."""


def _serve(pipe: Any, setting: Setting, argument: Any) -> None:
    """Run a broker in a thread of this process, with a setting, until the other end asks for its figures."""
    with EmbeddedCluster() as cluster:
        pipe.send(cluster.bootstrap_servers)
        pipe.recv()
        figures = setting(argument)
        pipe.send("set")
        pipe.recv()
        pipe.send(figures())


class Served:
    """A broker in a process of this module."""

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe
        self.servers: str = pipe.recv()

    def begin(self) -> None:
        """Apply the setting, after what prepares the measurement."""
        self._pipe.send("begin")
        self._pipe.recv()

    def figures(self) -> Any:
        """Return what the setting has found."""
        self._pipe.send("end")
        return self._pipe.recv()


@contextmanager
def served(setting: Setting, argument: Any) -> Iterator[Served]:
    """Run a broker in a process of this module during the block."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, setting, argument), daemon=True)
    process.start()
    try:
        yield Served(ours)
    finally:
        process.join(30)


def busy(interval: float | None) -> Callable[[], float]:
    """Count in a thread, if an interval is given; the figure is how often it counted in a second of CPU time."""
    counted = 0
    ended = threading.Event()

    def count() -> None:
        nonlocal counted
        while not ended.is_set():
            for _ in range(1000):
                counted += 1

    thread = threading.Thread(target=count)
    started = time.process_time()
    if interval is not None:
        sys.setswitchinterval(interval)
        thread.start()

    def figure() -> float:
        ended.set()
        if interval is not None:
            thread.join()
        return counted / (time.process_time() - started)

    return figure


def switch_interval() -> Iterator[Figure]:
    """Measure small requests while another thread of the broker counts, with two of the interpreter's intervals."""
    request = metadata_request()
    rounds: dict[float | None, list[list[float]]] = {None: [], 0.005: [], 0.0005: []}
    counts: dict[float | None, list[float]] = {interval: [] for interval in rounds}
    for _ in range(7):
        for interval, found in rounds.items():
            taken: list[float] = []
            with served(busy, interval) as broker, Wire(address_of(broker.servers)) as wire:
                broker.begin()
                for _ in range(500):
                    time.sleep(0.001)
                    started = time.perf_counter_ns()
                    wire.socket.sendall(request)
                    wire.answer()
                    taken.append(time.perf_counter_ns() - started)
                counts[interval].append(broker.figures())
            found.append(sorted(taken))
    for interval, found in rounds.items():
        name = "no thread that counts" if interval is None else f"an interval of {interval * 1e3:g} ms"
        yield span(f"{name}: median", min(median(each) for each in found))
        yield span(f"{name}: p99", min(each[int(len(each) * 0.99)] for each in found))
    share = median(counts[0.0005]) / median(counts[0.005])
    yield Figure("counted in a second of CPU time, at 0.5 ms of that at 5 ms", share, "times")


def controls() -> Iterator[Figure]:
    """Measure the broker's CPU time of a small request: plain, with the request log, and with a fault for another API.

    The answers to the Metadata request are cached, but not while there is a log or a fault.
    """
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = [ListOffsetsTopic(name="small", partitions=[partition])]
    requests = {
        "ListOffsets": frame(ListOffsetsRequest(replica_id=-1, topics=topics), 5),
        "Metadata": metadata_request(),
    }
    with EmbeddedCluster(processes=True) as cluster:
        assert cluster.pid is not None
        node = Node("pyclient", cluster.bootstrap_servers, cluster.pid)
        with node.topic("small"), Wire(node.address) as wire:
            for api, request in requests.items():
                taken: dict[str, list[float]] = {"neither": [], "request log": [], "active fault": []}
                for _ in range(7):
                    for name, each in taken.items():
                        if name == "request log":
                            cluster.requests.start()
                        elif name == "active fault":
                            cluster.faults.drop("OffsetCommit", times=None)
                        before = node.cpu().total
                        wire.repeat(request, REQUESTS, _ignore)
                        each.append((node.cpu().total - before) / REQUESTS * 1e9)
                        cluster.requests.stop()
                        cluster.faults.clear()
                for name, each in taken.items():
                    yield span(f"{api}, {name}", min(each))


def _ignore(_answer: bytes) -> None:
    pass


def memory_kept(kept: bool) -> Callable[[], int]:
    """Set malloc as a broker's process does, or not; the figure is the number of page faults."""
    if kept:
        _keep_freed_memory()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    return lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def page_faults() -> Iterator[Figure]:
    """Count page faults of brokers that check lz4 batches of 900 KiB, with malloc's defaults and as brokers set it."""
    count, data = 200, text(900 << 10)
    rows = [(None, data[start : start + 100]) for start in range(0, len(data), 100)]
    records = build_batch(rows, timestamp_ms=time.time_ns() // 1_000_000, compression=Compression.LZ4)
    request = produce_request("page-faults", records)
    for name, kept in (("malloc's defaults", False), ("as a broker sets malloc", True)):
        with served(memory_kept, kept) as broker:
            with Admin(broker.servers) as admin:
                admin.create_topics([NewTopic("page-faults", 1, 1)])
            with Wire(address_of(broker.servers)) as wire:
                wire.repeat(request, 50, check_produced)
                broker.begin()
                wire.repeat(request, count, check_produced)
                yield Figure(name, broker.figures() / count, "a batch")


def collector(charged: bool) -> Callable[[], tuple[list[float], float]]:
    """Adjust the collector as a broker's process does, or not; the figures are the milliseconds of its full runs."""
    taken: list[float] = []
    started = 0.0

    def note(phase: str, info: dict[str, int]) -> None:
        nonlocal started
        if phase == "start":
            started = time.thread_time()
        elif info["generation"] == 2:
            taken.append((time.thread_time() - started) * 1e3)

    if charged:
        GarbageCollections().install()
    gc.callbacks.append(note)

    def figures() -> tuple[list[float], float]:
        found = list(taken)
        before = time.thread_time()
        gc.collect()
        return found, (time.thread_time() - before) * 1e3

    return figures


def collections() -> Iterator[Figure]:
    """Measure full garbage collections of a broker while partitions are created, and one more after that."""
    for name, charged in (("Python's defaults", False), ("as a broker's process has it", True)):
        with served(collector, charged) as broker:
            broker.begin()
            with Admin(broker.servers) as admin:
                for number in range(PARTITIONS // _PER_REQUEST):
                    admin.create_topics([NewTopic(f"many-{number}", _PER_REQUEST, 1)], timeout=_WAIT)
            taken, last = broker.figures()
        yield Figure(f"{name}: full collections", len(taken), "")
        yield Figure(f"{name}: the longest", max(taken, default=0), "ms")
        yield Figure(f"{name}: together", sum(taken), "ms")
        yield Figure(f"{name}: one of all objects, afterwards", last, "ms")


CASES: dict[str, Case] = {
    "switch-interval": switch_interval,
    "request-log": controls,
    "page-faults": page_faults,
    "collections": collections,
}


if __name__ == "__main__":
    run(__doc__, CASES)
