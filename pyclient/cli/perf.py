"""`pyclient perf`: measure a cluster's throughput in records and bytes per second."""

from __future__ import annotations

import os
import time
from typing import Any, Final

import click

from pyclient import Consumer, Producer, TopicPartition
from pyclient.cli.options import API_TIMEOUT_MS, Seconds, check_topics, client_options, connection_notice
from pyclient.errors import KafkaTimeout

_CHUNK: Final = 1_000
_SAMPLES: Final = 100
"""The latency of every 100th record is measured."""


@click.group()
def perf() -> None:
    """Measure producing and consuming."""


@perf.command()
@client_options
@click.argument("topic")
@click.option("--records", default=1_000_000, show_default=True, type=click.IntRange(1), help="How many to send.")
@click.option("--size", default=100, show_default=True, type=click.IntRange(0), help="Bytes of each value.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Send at most this number per second.")
def produce(client: dict[str, Any], topic: str, records: int, size: int, rate: float | None) -> None:
    """Send random values to TOPIC; print rates, and latencies (send to response) of every 100th record."""
    value = os.urandom(size)
    latencies: list[float] = []

    def record_latency(began: float) -> None:
        latencies.append(time.perf_counter() - began)

    check_topics(client, topic)
    with Producer(config={"max.block.ms": str(API_TIMEOUT_MS), **client}) as producer:
        producer.send(topic, value).result(30)  # connections and metadata are not measured
        start = time.perf_counter()
        for number in range(records):
            if rate is not None and (pause := start + number / rate - time.perf_counter()) > 0:
                time.sleep(pause)
            began = time.perf_counter()
            future = producer.send(topic, value)
            if number % _SAMPLES == 0:
                future.add_done_callback(lambda _done, began=began: record_latency(began))  # type: ignore[misc]
        producer.flush()
        seconds = time.perf_counter() - start
    _print_rate("sent", records, records * size, seconds)
    latencies.sort()
    shown = [f"p{part:g} {1000 * latencies[int(len(latencies) * part / 100)]:.1f} ms" for part in (50, 95, 99)]
    click.echo(f"latency: {', '.join(shown)}, most {1000 * latencies[-1]:.1f} ms")


@perf.command()
@client_options
@click.argument("topic")
@click.option("--records", default=1_000_000, show_default=True, type=click.IntRange(1), help="How many to read.")
@click.option(
    "--timeout", type=Seconds(), default=10.0, show_default=True, help="Stop after this many seconds without a record."
)
def consume(client: dict[str, Any], topic: str, records: int, timeout: float) -> None:
    """Read TOPIC from its first record on, without a group, and print the rates."""
    config = {
        "auto.offset.reset": "earliest",
        "default.api.timeout.ms": str(API_TIMEOUT_MS),
        "allow.auto.create.topics": "false",
        **{name: value for name, value in client.items() if name != "group.id"},
    }
    check_topics(client, topic)
    count = size = 0
    start = last = 0.0
    with Consumer(config=config) as consumer, connection_notice(consumer, config):
        consumer.assign([TopicPartition(topic, number) for number in consumer.partitions_for(topic)])
        while count < records:
            found = consumer.poll(timeout=timeout, max_records=min(10 * _CHUNK, records - count))
            if not found:
                break
            start = start or time.perf_counter()
            count += len(found)
            size += sum(len(record.value or b"") + len(record.key or b"") for record in found)
            last = time.perf_counter()
    if not count:
        raise KafkaTimeout(f"no record from {topic} within {timeout:g} s")
    _print_rate("read", count, size, last - start)


def _print_rate(done: str, records: int, size: int, seconds: float) -> None:
    seconds = max(seconds, 1e-9)
    rates = f"{records / seconds:,.0f} records/s, {size / seconds / 1e6:.2f} MB/s"
    click.echo(f"{records} records {done} in {seconds:.2f} s: {rates}")
