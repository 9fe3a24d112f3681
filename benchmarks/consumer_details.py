"""Costs of single steps of a consumer: a seek, reading again, idle partitions, slices of a poll, and JSON for Spark.

`python -m benchmarks.consumer_details [--only NAME]`; the broker is the embedded one in a process of its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from benchmarks.clusters import fresh_topic
from benchmarks.details import Case, Figure, least, run, span
from benchmarks.timed_work import values
from pyclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.consumer.completed_fetch import BatchSlice
from pyclient.consumer.fetch_plan import FetchPlan, FetchPlanner
from pyclient.spark.decoding import Decoder
from pyclient.spark.formats import Format, ddl_of

IDLE_PARTITIONS = 10_000
IDLE_SECONDS = 5.0
OBJECTS = 20_000
RECORDS = 1_000_000
_PER_REQUEST = 1000  # partitions


def seek() -> Iterator[Figure]:
    """Measure the time from a seek to the first record in one of two partitions that were read to their ends.

    There are two fetch slots, and then only one.
    """
    plan: Any = FetchPlanner.plan

    def first_only(planner: FetchPlanner, node: int, number: int, *rest: Any, **options: Any) -> FetchPlan:
        found: FetchPlan = FetchPlan(node) if number else plan(planner, node, number, *rest, **options)
        return found

    for name, planned in (("two fetch slots", plan), ("one fetch slot", first_only)):
        with (
            patch.object(FetchPlanner, "plan", planned),
            EmbeddedCluster(processes=True) as cluster,
            fresh_topic(cluster.bootstrap_servers, 2) as topic,
        ):
            with Producer(cluster.bootstrap_servers) as producer:
                producer.send_many(topic, values(100), partition=0)
            taken = sorted(_after_seek(cluster.bootstrap_servers, topic, 20))
        yield span(f"{name}: median", median(taken))
        yield span(f"{name}: longest", taken[-1])


def _after_seek(servers: str, topic: str, count: int) -> Iterator[float]:
    """Yield the nanoseconds from a seek to the first record."""
    partitions = [TopicPartition(topic, number) for number in range(2)]
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        for _ in range(count):
            seen = time.monotonic()
            while time.monotonic() < seen + 0.2:  # both are at their ends: a request waits at the broker
                if len(consumer.poll(timeout=0.1)):
                    seen = time.monotonic()
            started = time.perf_counter_ns()
            consumer.seek_to_beginning(partitions[:1])
            while not len(consumer.poll(timeout=1, max_records=1)):
                pass
            yield time.perf_counter_ns() - started


def read_again() -> Iterator[Figure]:
    """Measure reading a million records of 100 B as Arrow tables: after a new assignment, and a seek from the ends.

    `fetch_max_bytes` is what one request for all six partitions asks for, so that it leaves no room for a second one.
    """
    with EmbeddedCluster(processes=True) as cluster, fresh_topic(cluster.bootstrap_servers, 6) as topic:
        servers, partitions = cluster.bootstrap_servers, [TopicPartition(topic, number) for number in range(6)]
        with Producer(servers) as producer:
            for _ in range(RECORDS // 100_000):
                producer.send_many(topic, values(100) * 100)
        with Consumer(
            bootstrap_servers=servers,
            auto_offset_reset="earliest",
            max_poll_records=100_000,
            fetch_max_bytes=6 << 20,
            max_partition_fetch_bytes=1 << 20,
        ) as consumer:

            def read() -> tuple[float, float]:
                started, seen, first = time.perf_counter_ns(), 0, 0
                while seen < RECORDS:
                    seen += consumer.poll(timeout=10).to_arrow().num_rows
                    first = first or time.perf_counter_ns() - started
                taken = time.perf_counter_ns() - started
                time.sleep(0.2)  # until the requests wait at the ends
                return taken, first

            consumer.assign(partitions)
            read()
            taken: dict[str, list[tuple[float, float]]] = {"a new assignment": [], "a seek": []}
            for _ in range(10):
                consumer.assign([])
                consumer.assign(partitions)
                taken["a new assignment"].append(read())
                consumer.seek_to_beginning(partitions)
                taken["a seek"].append(read())
    for name, each in taken.items():
        yield Figure(f"{name}: best rate", RECORDS / min(all_of_it for all_of_it, _ in each) * 1e3, "M records/s")
        yield span(f"{name}: until the first records, median", median(first for _, first in each))


def idle() -> Iterator[Figure]:
    """Measure the share of a core that a consumer of idle partitions takes: of 10,000, and of one."""
    with EmbeddedCluster(processes=True) as cluster:
        with Admin(cluster.bootstrap_servers) as admin:
            names = [f"idle-{number}" for number in range(IDLE_PARTITIONS // _PER_REQUEST)]
            for name in names:
                admin.create_topics([NewTopic(name, _PER_REQUEST, 1)], timeout=120)
        many = [TopicPartition(name, number) for name in names for number in range(_PER_REQUEST)]
        for partitions in (many[:1], many):
            with Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
                consumer.assign(partitions)
                end = time.monotonic() + 3
                while time.monotonic() < end:
                    consumer.poll(timeout=0.5)
                shares = []
                for _ in range(3):
                    cpu, end = time.process_time(), time.monotonic() + IDLE_SECONDS
                    while time.monotonic() < end:
                        consumer.poll(timeout=end - time.monotonic())
                    shares.append((time.process_time() - cpu) / IDLE_SECONDS * 100)
            yield Figure(f"{len(partitions):,} partitions", min(shares), "% of a core")


def slices() -> Iterator[Figure]:
    """Measure making a dataclass with the fields of a slice, and a frozen one."""

    @dataclass(slots=True, frozen=True)
    class Frozen:
        batch: object
        start: int
        stop: int
        count: int
        made: object = None

    batch: Any = None

    def made(kind: Any) -> None:
        for number in range(10_000):
            kind(batch, number, number, 1)

    yield from least({"BatchSlice": lambda: made(BatchSlice), "frozen": lambda: made(Frozen)}, 10_000, repeats=50)


def json_values() -> Iterator[Figure]:
    """Measure decoding 20,000 JSON objects of four fields: as lines for Arrow, in one array, by Python's parser."""
    shape = pa.struct([("id", pa.int64()), ("name", pa.string()), ("price", pa.float64()), ("city", pa.string())])
    schema = "id long, name string, price double, city string"
    decoder = Decoder(Format("value", "json", schema, ddl_of("json", schema), False, False), shape)
    texts = [
        json.dumps({"id": number, "name": f"name-{number}", "price": number / 7, "city": "Köln"}).encode()
        for number in range(OBJECTS)
    ]
    column = pa.array(texts, pa.binary())
    in_arrays = pa.schema([pa.field("all", pa.list_(shape))])

    def read(begin: str, end: str, schema: pa.Schema) -> object:
        lines = pc.binary_join_element_wise(begin, column.cast(pa.string()), end, "")
        size = pc.sum(pc.binary_length(lines)).as_py()
        return pyarrow.json.read_json(
            pa.BufferReader(lines.buffers()[2].slice(0, size)),
            pyarrow.json.ReadOptions(use_threads=False, block_size=size),
            pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )

    works = {
        "as the source decodes them": lambda: decoder.decode(column),
        "as lines, without its checks": lambda: read("", "\n", pa.schema(list(shape))),
        "each as the member of an array": lambda: read('{"all": [', "]}\n", in_arrays),
        "by Python's parser": lambda: [json.loads(text) for text in texts],
        "by Python's parser, to Arrow": lambda: pa.array([json.loads(text) for text in texts], shape),
    }
    yield from least(works)


CASES: dict[str, Case] = {
    "seek": seek,
    "read-again": read_again,
    "idle-partitions": idle,
    "slices": slices,
    "json": json_values,
}


if __name__ == "__main__":
    run(__doc__, CASES)
