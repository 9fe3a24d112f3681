"""The benchmark cases of a broker: each returns figures of one node, to be compared with the other node's."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks import broker_load as load
from benchmarks.broker_nodes import Node
from benchmarks.side_by_side import measure
from pyclient.records import read_header

KIB, MIB = 1 << 10, 1 << 20
_WINDOWS, _WINDOW = 9, 192 * MIB
"""Number of comparisons of the case growth, and their bytes."""
_FINDS = 1000
_UNTIL_COMPILED = 2.0
"""Seconds of small requests after which a JVM is as quick as it gets; after 0.5 it takes twice the time for each."""


class Figure(NamedTuple):
    """One figure. `wanted` is the ratio to Kafka's to aim at: at least that, or at most where less is better.

    `goal` is what the figure itself is to stay within, in its own unit, independent of Kafka's.
    """

    value: float
    unit: str
    wanted: float | None = None
    less_is_better: bool = False
    goal: float | None = None


class Options(NamedTuple):
    """Durations and amounts of load."""

    seconds: float
    rounds: int
    records: int


Case = Callable[[Node, Options], dict[str, Figure]]
"""Measures one node; returns figures by their names."""


def produce(node: Node, options: Options) -> dict[str, Figure]:
    """Measure Produce with acks=-1, five requests in flight: MB/s, and seconds of the broker's CPU for each GB."""
    found = {}
    for size in (16 * KIB, 128 * KIB, 900 * KIB, MIB):
        with node.topic(f"produce-{size}") as topic:
            load.produce(node, topic, size, 0.3)
            done = load.produce(node, topic, size, options.seconds)
        name = f"produce {size // KIB} KiB"
        found[name] = Figure(done.rate / 1e6, "MB/s", 2)
        found[f"{name}, broker CPU"] = Figure(done.cpu.total / (done.amount / 1e9), "s/GB", 1, True)
    return found


def fetch(node: Node, options: Options) -> dict[str, Figure]:
    """Measure Fetch of data in the page cache: MB/s, and seconds of the broker's CPU for each GB."""
    found = {}
    with node.topic("fetch") as topic:
        load.fill(node, topic, 16 * MIB, 512 * KIB)
        for size in (MIB, 8 * MIB):
            load.fetch(node, topic, size, 0.3)
            done = load.fetch(node, topic, size, options.seconds)
            found[f"fetch {size // MIB} MiB"] = Figure(done.rate / 1e6, "MB/s", 1)
            found[f"fetch {size // MIB} MiB, broker CPU"] = Figure(
                done.cpu.total / (done.amount / 1e9), "s/GB", 1, True
            )
    return found


def metadata(node: Node, options: Options) -> dict[str, Figure]:
    """Measure small requests: thousands a second, and microseconds of the broker's CPU for each."""
    found = {}
    for connections in (8, 64):
        load.small_requests(node, connections, _UNTIL_COMPILED)
        done = load.small_requests(node, connections, options.seconds)
        found[f"Metadata, {connections} connections"] = Figure(done.rate / 1e3, "k req/s", 2)
        cpu = Figure(done.cpu.total / done.amount * 1e6, "us/req", 1, True)
        found[f"Metadata, {connections} connections, broker CPU"] = cpu
    return found


def latency(node: Node, options: Options) -> dict[str, Figure]:
    """Measure the milliseconds of Produce with one record of 100 B a request, 1,000 requests a second."""
    with node.topic("latency") as topic:
        request = load.produce_request(topic, load.batch(200))
        load.paced(node, request, 1000, 1.0, load.check_produced)
        done = load.paced(node, request, 1000, max(options.seconds, 3.0), load.check_produced)
    return {
        "produce at 1,000 req/s, p50": Figure(done.percentile(0.5) * 1e3, "ms", 1, True),
        "produce at 1,000 req/s, p99": Figure(done.percentile(0.99) * 1e3, "ms", 1, True),
    }


def _warm_up(node: Node) -> None:
    """Send thousands of requests, for a JVM is slow until it has compiled what it does; clients send only hundreds."""
    with node.topic("warm-up") as topic:
        load.produce(node, topic, 16 * KIB, 1.0)
        load.fetch(node, topic, 128 * KIB, 0.5)


def confluent(node: Node, options: Options) -> dict[str, Figure]:
    """Measure confluent-kafka, six partitions, confirmed record by record: both sides at once, and one after the other.

    Its consumer rests for a second whenever 100,000 records wait for the user, which is most of what reading 300,000
    takes on any broker: that row is no comparison. Without rests the rate is the client's own on two cores, of which
    the broker takes a twentieth; `broker CPU` is what the broker adds to it.
    """
    name = "confluent-kafka"
    found = {}
    _warm_up(node)
    for size in (100, 1024):
        count = options.records if size == 100 else options.records // 3
        with node.topic(f"confluent-{size}", 6) as topic:
            made = measure("produce", name, node.servers, topic, size, "none", count)
            rested = measure("consume", name, node.servers, topic, size, "none", count)
            before = node.cpu()
            read = measure("consume", f"{name}, no rests", node.servers, topic, size, "none", count)
            cpu = (node.cpu().total - before.total) / (count * size * 1.25 / 1e9)  # a quarter more warms up
        with node.topic(f"relay-{size}", 6) as topic:
            relayed = measure("relay", name, node.servers, topic, size, "none", count)
        found[f"{name} end to end, {size} B"] = Figure(count / relayed["seconds"] / 1e3, "k/s", 1)
        found[f"{name} produces {size} B"] = Figure(count / made["seconds"] / 1e3, "k/s", 1)
        found[f"{name} consumes {size} B, without its rests"] = Figure(count / read["seconds"] / 1e3, "k/s", 1)
        found[f"{name} consumes {size} B, broker CPU"] = Figure(cpu, "s/GB", 1, True)
        found[f"{name} consumes {size} B, with its rests"] = Figure(count / rested["seconds"] / 1e3, "k/s")
    return found


def perf_tools(node: Node, options: Options) -> dict[str, Figure]:
    """Measure the rates (1,000 records a second) of Kafka's own producer and consumer performance tools."""
    from tests.kafka import tools

    _warm_up(node)
    with node.topic("perf", 6) as topic:
        count = str(options.records * 3)
        made = tools.run(
            "producer-perf", "--topic", topic, "--num-records", count, "--record-size", "100", "--throughput", "-1",
            "--bootstrap-server", node.servers, "--command-property", "acks=all",
        ).out  # fmt: skip
        rates = re.findall(r"([\d.]+) records/sec", made)
        read = tools.run(
            "consumer-perf", "--topic", topic, "--num-records", count, "--bootstrap-server", node.servers,
            "--timeout", "30000", "--hide-header",
        ).out  # fmt: skip
    fields = [field.strip() for field in read.strip().splitlines()[-1].split(",")]
    fetching_ms, records = float(fields[7]), float(fields[4])
    return {
        "kafka-producer-perf-test, 100 B": Figure(float(rates[-1]) / 1e3, "k/s", 1),
        "kafka-consumer-perf-test, 100 B": Figure(records / fetching_ms, "k/s", 1),
    }


def idle(node: Node, _: Options) -> dict[str, Figure]:
    """Measure the resident memory in MB; this is meaningful only as the first case."""
    return {"resident memory at the start": Figure(node.resident_mb(), "MB", 0.15, True, goal=60)}


def compaction(node: Node, options: Options) -> dict[str, Figure]:
    """Measure small requests, in milliseconds, while a log of 200 MB is compacted, and without compaction."""
    request = load.metadata_request()
    found = {}
    load.paced(node, request, 1000, 1.0, lambda _: None)
    quiet = load.paced(node, request, 1000, options.seconds, lambda _: None)
    with node.topic("compacted", cleanup_policy="compact", segment_bytes=str(16 * MIB)) as topic:
        records = load.produce_request(topic, load.batch(MIB - KIB, key=lambda n: b"%d" % n))
        with load.Wire(node.address) as wire:
            for _ in range(200):
                wire.socket.sendall(records)
                load.check_produced(wire.answer())
        before = node.cpu().total
        busy = load.paced(node, request, 1000, max(options.seconds, 3.0), lambda _: None)
        found["compaction, broker CPU meanwhile"] = Figure((node.cpu().total - before) / busy.seconds * 100, "%")
    found["Metadata at 1,000 req/s, p99"] = Figure(quiet.percentile(0.99) * 1e3, "ms")
    found["the same during compaction, p99"] = Figure(busy.percentile(0.99) * 1e3, "ms")
    return found


def bare_writes(data: bytes, amount: int) -> float:
    """Return the MB/s of a loop that writes `amount` bytes to a file, `data` over and over: what the log can reach."""
    with tempfile.TemporaryDirectory(prefix="pyclient-bench-") as folder, Path(folder, "log").open("wb", 0) as file:
        written, started = 0, time.perf_counter()
        while written < amount:
            written += file.write(data)
        return written / 1e6 / (time.perf_counter() - started)


def growth(node: Node, gigabytes: float) -> dict[str, Figure]:
    """Measure appends to a large log and to one of 100 MB, and finding a batch in each, in alternating windows.

    A window appends as many bytes to one log as to the other, in batches that make the broker's own work count. Ratios
    are taken window by window, of neighbours in time: a guest's memory and processor are faster in one minute than in
    the next. Memory that is touched for the first time is the system's time, which is not counted.
    """
    batch = load.batch(16 * KIB)
    step = read_header(batch, 0).count
    small, large = "log of 100 MB", f"log of {gigabytes:g} GB"
    cpu: dict[str, list[float]] = {small: [], large: []}
    rates: dict[str, list[float]] = {small: [], large: []}
    seek: dict[str, list[float]] = {small: [], large: []}
    bare: list[float] = []

    def append(topic: str, amount: int) -> load.Load:
        request = load.produce_request(topic, batch)
        count = amount // len(batch)
        with load.Wire(node.address) as wire:
            return load.measured(node, lambda: (len(request) * wire.repeat(request, count, load.check_produced), []))

    def find(topic: str, size: int) -> float:
        end = size // len(batch) * step
        times = []
        with load.Wire(node.address) as wire:
            for n in range(_FINDS):
                wanted = load.fetch_request(topic, 1, offset=n * 7919 * 131 % end)
                started = time.perf_counter()
                wire.socket.sendall(wanted)
                wire.answer()
                times.append(time.perf_counter() - started)
        return median(times)

    def window(names: list[tuple[str, str, int]]) -> None:
        for name, topic, _size in names:
            done = append(topic, _WINDOW)
            cpu[name].append(done.cpu.user / (done.amount / 1e9))
            rates[name].append(done.rate / 1e6)
        bare.append(bare_writes(batch, _WINDOW))
        for name, topic, size in names:
            seek[name].append(find(topic, size))

    with node.topic("growth", retention_bytes="-1") as topic:
        size = int(gigabytes * 1e9)
        append(topic, size)
        for number in range(1 + _WINDOWS):
            with node.topic(f"small-{number}", retention_bytes="-1") as other:
                append(other, 100 * MIB)
                both = [(small, other, 100 * MIB), (large, topic, size)]
                window(both if number % 2 else both[::-1])
    for values in (*cpu.values(), *rates.values(), *seek.values(), bare):
        del values[0]  # the first one warms up
    return _compared(small, large, cpu, rates, seek, bare)


def _compared(
    small: str,
    large: str,
    cpu: dict[str, list[float]],
    rates: dict[str, list[float]],
    seek: dict[str, list[float]],
    bare: list[float],
) -> dict[str, Figure]:
    """Return the medians of all windows, and those of the ratios window by window."""
    found = {f"{name}: user CPU": Figure(median(values), "s/GB") for name, values in cpu.items()}
    found |= {f"{name}: appends": Figure(median(values), "MB/s") for name, values in rates.items()}
    found |= {f"{name}: finding a batch": Figure(median(values) * 1e6, "us") for name, values in seek.items()}
    for what, of in (("user CPU", cpu), ("finding a batch", seek)):
        ratios = [high / low for low, high in zip(of[small], of[large], strict=True)]
        found[f"{what}, large / small log"] = Figure(median(ratios), "", goal=1.1)
    for name, values in rates.items():
        shares = [rate / written for rate, written in zip(values, bare, strict=True)]
        found[f"{name}: share of a bare write loop"] = Figure(median(shares), "")
    return found


def start(_: Options) -> dict[str, Figure]:
    """Measure the milliseconds from making a node to its first Metadata answer, medians of five.

    In a thread all modules are loaded. In a process it includes the start of an interpreter and the imports in it.
    """
    from benchmarks.broker_start import in_process, in_thread

    in_thread()
    return {
        "start to first Metadata, thread, after import": Figure(median(in_thread() for _ in range(5)), "ms", goal=100),
        "the same, process: with interpreter and import": Figure(median(in_process() for _ in range(5)), "ms"),
    }


def many_partitions(partitions: int) -> dict[str, Figure]:
    """Measure a node with many partitions, each with a record: its restart, its idle load, its memory."""
    from pyclient import Admin, NewTopic, Producer
    from pyclient.broker_embedded import EmbeddedCluster

    with (
        tempfile.TemporaryDirectory(prefix="pyclient-bench-") as folder,
        EmbeddedCluster(processes=True, profile="kafka", data_dir=folder) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
    ):
        for n in range(10):  # one at a time: a request may make 10,000 records of metadata, also in Kafka
            admin.create_topics([NewTopic(f"t{n}", partitions // 10, 1)])
        started = time.perf_counter()
        with Producer(cluster.bootstrap_servers) as producer:
            for n in range(partitions):
                producer.send(f"t{n % 10}", b"x" * 100, partition=n // 10)
            producer.flush(110)
        found = {"first record of a partition": Figure((time.perf_counter() - started) / partitions * 1e6, "us")}
        broker = cluster.brokers[0]
        for name, end in (("stop", broker.stop), ("kill", broker.kill)):
            started = time.perf_counter()
            end()
            stopped = time.perf_counter()
            broker.start()
            assert len(admin.list_topics()) == 10
            found[f"{partitions:,} partitions: {name}"] = Figure(stopped - started, "s")
            found[f"{partitions:,} partitions: start after {name}"] = Figure(time.perf_counter() - stopped, "s", goal=3)
        assert cluster.pid is not None
        node = Node("pyclient", cluster.bootstrap_servers, cluster.pid)
        before = node.cpu().total
        time.sleep(5)
        used = (node.cpu().total - before) / 5 * 100
        found[f"{partitions:,} partitions: idle"] = Figure(used, "% of a core", goal=5)
        found[f"{partitions:,} partitions: memory"] = Figure(node.resident_mb(), "MB")
    return found
