"""`pyclient consume`: records become lines of standard output."""

from __future__ import annotations

import sys

import click

from pyclient import Consumer, Record, TopicPartition
from pyclient.cli.options import API_TIMEOUT_MS, bootstrap_option, config_option, parse_settings


@click.command()
@bootstrap_option
@config_option
@click.argument("topic")
@click.option("--group", help="Join this group and commit; without it, read every partition alone.")
@click.option("--from-beginning", is_flag=True, help="Start at the first record where nothing is committed.")
@click.option("--max-records", type=int, help="Stop after this many.")
@click.option("--timeout", type=float, help="Stop after this many seconds without a record.")
@click.option("--key", "with_key", is_flag=True, help="Print key, a tab, then the value.")
def consume(
    bootstrap_servers: str,
    settings: tuple[str, ...],
    topic: str,
    group: str | None,
    from_beginning: bool,
    max_records: int | None,
    timeout: float | None,
    with_key: bool,
) -> None:
    """Print the values of TOPIC's records, one a line."""
    config = parse_settings(settings)
    config.setdefault("auto.offset.reset", "earliest" if from_beginning else "latest")
    config.setdefault("default.api.timeout.ms", str(API_TIMEOUT_MS))
    config.setdefault("allow.auto.create.topics", "false")  # a mistyped name is an error, and makes no topic
    count = 0
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=group, config=config) as consumer:
        if group is None:
            consumer.assign([TopicPartition(topic, number) for number in consumer.partitions_for(topic)])
        else:
            consumer.subscribe([topic])
        while max_records is None or count < max_records:
            left = 500 if max_records is None else min(500, max_records - count)
            records = consumer.poll(timeout=timeout if timeout is not None else 1.0, max_records=left)
            for record in records:
                _print(record, with_key)
            sys.stdout.buffer.flush()
            count += len(records)
            if timeout is not None and not records:
                break
    click.echo(f"{count} record{'' if count == 1 else 's'} read from {topic}", err=True)


def _print(record: Record[bytes | None, bytes | None], with_key: bool) -> None:
    out = sys.stdout.buffer
    if with_key:
        out.write((record.key or b"") + b"\t")
    out.write((record.value or b"") + b"\n")
