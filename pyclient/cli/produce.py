"""`pyclient produce`: send lines of standard input as records."""

from __future__ import annotations

import signal
import sys
from typing import Any

import click

from pyclient import Producer
from pyclient.cli.options import API_TIMEOUT_MS, check_topics, client_options


@click.command()
@client_options
@click.argument("topic")
@click.option("--key-separator", metavar="TEXT", help="Split each line at its first TEXT into key and value.")
def produce(client: dict[str, Any], topic: str, key_separator: str | None) -> None:
    """Send each line of standard input to TOPIC, which must exist, as bytes."""
    separator = key_separator.encode() if key_separator else None
    check_topics(client, topic)  # before reading the first line
    count = 0
    with Producer(config={"max.block.ms": str(API_TIMEOUT_MS), **client}) as producer:
        # SIGTERM ends it like Ctrl-C: lines that were read are delivered
        before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        try:
            for line in sys.stdin.buffer:
                key, value = _split(line.rstrip(b"\r\n"), separator)
                producer.send(topic, value, key=key)
                count += 1
        finally:
            signal.signal(signal.SIGTERM, before)
            producer.flush()
    click.echo(f"{count} record{'' if count == 1 else 's'} sent to {topic}", err=True)


def _split(line: bytes, separator: bytes | None) -> tuple[bytes | None, bytes]:
    if separator is None:
        return None, line
    key, found, value = line.partition(separator)
    return (key, value) if found else (None, line)
