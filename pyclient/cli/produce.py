"""`pyclient produce`: lines of standard input become records."""

from __future__ import annotations

import sys

import click

from pyclient import Producer
from pyclient.cli.options import API_TIMEOUT_MS, bootstrap_option, config_option, parse_settings


@click.command()
@bootstrap_option
@config_option
@click.argument("topic")
@click.option("--key-separator", metavar="TEXT", help="Split each line at its first TEXT into key and value.")
def produce(bootstrap_servers: str, settings: tuple[str, ...], topic: str, key_separator: str | None) -> None:
    """Send each line of standard input to TOPIC, as bytes."""
    separator = key_separator.encode() if key_separator else None
    config = parse_settings(settings)
    config.setdefault("max.block.ms", str(API_TIMEOUT_MS))
    count = 0
    with Producer(bootstrap_servers, config=config) as producer:
        producer.partitions_for(topic)  # before anybody types a line in vain
        for line in sys.stdin.buffer:
            key, value = _split(line.rstrip(b"\r\n"), separator)
            producer.send(topic, value, key=key)
            count += 1
        producer.flush()
    click.echo(f"{count} record{'' if count == 1 else 's'} sent to {topic}", err=True)


def _split(line: bytes, separator: bytes | None) -> tuple[bytes | None, bytes]:
    if separator is None:
        return None, line
    key, found, value = line.partition(separator)
    return (key, value) if found else (None, line)
