"""`pyclient groups`: list, describe and delete consumer groups, and reset their offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click
from rich.table import Table

from pyclient import Consumer, TopicPartition
from pyclient.cli.options import admin_of, client_options, console, options_for


@click.group()
def groups() -> None:
    """List, describe and delete consumer groups; reset their offsets."""


@groups.command("list")
@client_options
@click.option("--state", "states", multiple=True, help="Only groups in this state (Stable, Empty, ...).")
def list_groups(client: dict[str, Any], states: tuple[str, ...]) -> None:
    """Print the groups, one a line: id, state, type."""
    with admin_of(client) as admin:
        for group in admin.list_groups(states=states):
            click.echo(f"{group.group_id}\t{group.state or '-'}\t{group.type}")


@groups.command()
@client_options
@click.argument("names", nargs=-1, required=True)
def describe(client: dict[str, Any], names: tuple[str, ...]) -> None:
    """Print each group's members, and its lag in each partition."""
    with admin_of(client) as admin, _reader(client) as consumer:
        for name, group in admin.describe_groups(names).items():
            committed = admin.list_group_offsets(name)
            owners = {partition: member for member in group.members for partition in member.assignment}
            partitions = sorted({*committed, *owners})
            ends = consumer.end_offsets(partitions) if partitions else {}
            click.echo(
                f"{name}: {group.state}, {group.type}, {len(group.members)} members, at broker {group.coordinator}"
            )
            table = Table()
            for column in ("partition", "committed", "end", "lag", "member", "client", "host"):
                table.add_column(column, justify="right" if column in ("committed", "end", "lag") else "left")
            for partition in partitions:
                position, member = committed.get(partition), owners.get(partition)
                offset, lag = ("-", "-") if position is None else (position.offset, ends[partition] - position.offset)
                owner_cells = (
                    ("-", "-", "-") if member is None else (member.member_id, member.client_id, member.client_host)
                )
                table.add_row(str(partition), str(offset), str(ends[partition]), str(lag), *owner_cells)
            console().print(table)


@groups.command()
@client_options
@click.argument("names", nargs=-1, required=True)
def delete(client: dict[str, Any], names: tuple[str, ...]) -> None:
    """Delete groups that have no members, with their offsets."""
    with admin_of(client) as admin:
        admin.delete_groups(names)
    for name in names:
        click.echo(f"deleted {name}")


@groups.command()
@client_options
@click.argument("name")
@click.option("--topic", "topics", multiple=True, help="Only this topic; without it, all that the group has committed.")
@click.option("--to-earliest", is_flag=True, help="The first record of the log.")
@click.option("--to-latest", is_flag=True, help="The end of the log, after the last record.")
@click.option("--to-offset", type=click.IntRange(0), help="This offset, or the nearest that exists.")
@click.option(
    "--to-time",
    type=click.IntRange(0),
    metavar="MS",
    help="The first record not older than this time (epoch milliseconds).",
)
@click.option("--shift-by", type=int, help="Forward by this number of records, or back if it is negative.")
@click.option("--dry-run", is_flag=True, help="Only print what would be set.")
def reset(
    client: dict[str, Any],
    name: str,
    topics: tuple[str, ...],
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_time: int | None,
    shift_by: int | None,
    dry_run: bool,
) -> None:
    """Set the committed offsets of the group NAME, which may have no members."""
    chosen = [to_earliest, to_latest, to_offset is not None, to_time is not None, shift_by is not None]
    if sum(chosen) != 1:
        raise click.UsageError("give one of --to-earliest, --to-latest, --to-offset, --to-time and --shift-by")
    with admin_of(client) as admin, _reader(client) as consumer:
        admin.describe_topics(topics)  # a mistyped name fails at once
        committed = {partition: position.offset for partition, position in admin.list_group_offsets(name).items()}
        partitions = _partitions(consumer, topics, committed)
        first, last = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
        wanted: Mapping[TopicPartition, int]
        if to_time is not None:
            found = consumer.offsets_for_times(dict.fromkeys(partitions, to_time))
            wanted = {partition: last[partition] if hit is None else hit.offset for partition, hit in found.items()}
        elif shift_by is not None:
            wanted = {partition: committed.get(partition, first[partition]) + shift_by for partition in partitions}
        elif to_offset is not None:
            wanted = dict.fromkeys(partitions, to_offset)
        else:
            wanted = first if to_earliest else last
        offsets = {
            partition: min(max(wanted[partition], first[partition]), last[partition]) for partition in partitions
        }
        if not dry_run:
            admin.alter_group_offsets(name, offsets)
    for partition, offset in offsets.items():
        click.echo(f"{partition}\t{committed.get(partition, '-')}\t->\t{offset}")


def _reader(client: Mapping[str, Any]) -> Consumer[bytes, bytes]:
    """Return a consumer for offset lookups, which do not create topics."""
    own = {name: value for name, value in options_for("consumer", client).items() if name != "group.id"}
    return Consumer(config={**own, "allow.auto.create.topics": "false"})


def _partitions(
    consumer: Consumer[bytes, bytes], topics: Iterable[str], committed: Iterable[TopicPartition]
) -> list[TopicPartition]:
    found = [TopicPartition(topic, number) for topic in topics for number in consumer.partitions_for(topic)]
    found = found if topics else sorted(committed)
    if not found:
        raise click.ClickException("the group has committed nothing: name a --topic")
    return found
