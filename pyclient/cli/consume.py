"""`pyclient consume`: print records as lines of standard output."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from pyclient import Consumer, Record, TopicPartition
from pyclient.cli.options import API_TIMEOUT_MS, Seconds, check_topics, client_options, connection_notice
from pyclient.errors import Wakeup


@click.command()
@client_options
@click.argument("topic")
@click.option("--group", help="Join this group and commit; without it, read every partition alone.")
@click.option("--from-beginning", is_flag=True, help="Start at the first record where nothing is committed.")
@click.option("--max-records", type=click.IntRange(1), help="Stop after this many.")
@click.option("--timeout", type=Seconds(), help="Stop after this many seconds without a record.")
@click.option("--key", "with_key", is_flag=True, help="Print key, a tab, then the value.")
def consume(
    client: dict[str, Any],
    topic: str,
    group: str | None,
    from_beginning: bool,
    max_records: int | None,
    timeout: float | None,
    with_key: bool,
) -> None:
    """Print the values of TOPIC's records, one a line.

    Ctrl-C and SIGTERM end it cleanly: the offsets of the printed records are committed, and it leaves the group.
    """
    group = group or client.pop("group.id", None)
    config = {
        "auto.offset.reset": "earliest" if from_beginning else "latest",
        "default.api.timeout.ms": str(API_TIMEOUT_MS),
        "allow.auto.create.topics": "false",  # a mistyped name is an error, and creates no topic
        **client,
    }
    if group is None:
        check_topics(client, topic)
    count = 0
    with (
        Consumer(group_id=group, config=config) as consumer,
        connection_notice(consumer, config),
        _until_signalled(consumer) as received,
    ):
        if group is None:
            consumer.assign([TopicPartition(topic, number) for number in consumer.partitions_for(topic)])
        else:
            consumer.subscribe([topic])
        while not received and (max_records is None or count < max_records):
            left = 500 if max_records is None else min(500, max_records - count)
            records = consumer.poll(timeout=timeout if timeout is not None else 1.0, max_records=left)
            for record in records:
                _print(record, with_key)
            sys.stdout.buffer.flush()
            count += len(records)
            if timeout is not None and not records:
                break
    click.echo(f"{count} record{'' if count == 1 else 's'} read from {topic}", err=True)
    if received:
        sys.exit(128 + received[0])


@contextmanager
def _until_signalled(consumer: Consumer[Any, Any]) -> Iterator[list[int]]:
    """Yield the list of received SIGTERM and SIGINT: the first one wakes the consumer, a second one is not caught."""
    received: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def stop(number: int, _: object) -> None:
        received.append(number)
        for each, handler in before.items():
            signal.signal(each, handler)
        consumer.wakeup()

    for number in before:
        signal.signal(number, stop)
    try:
        yield received
    except Wakeup:
        if not received:
            raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print(record: Record[bytes | None, bytes | None], with_key: bool) -> None:
    out = sys.stdout.buffer
    if with_key:
        out.write((record.key or b"") + b"\t")
    out.write((record.value or b"") + b"\n")
