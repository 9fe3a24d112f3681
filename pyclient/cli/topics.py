"""`pyclient topics`: list, describe, create, grow and delete topics."""

from __future__ import annotations

from typing import Any

import click
from rich.table import Table

from pyclient import NewTopic
from pyclient.admin.topics import BROKER_DEFAULT
from pyclient.cli.options import admin_of, cluster_options, console, parse_settings


@click.group()
def topics() -> None:
    """List, describe, create, grow and delete topics."""


@topics.command("list")
@cluster_options
@click.option("--internal", is_flag=True, help="Include the cluster's own topics.")
def list_topics(client: dict[str, Any], internal: bool) -> None:
    """Print the topics' names, one a line."""
    with admin_of(client) as admin:
        for name in sorted(admin.list_topics(include_internal=internal)):
            click.echo(name)


@topics.command()
@cluster_options
@click.argument("names", nargs=-1, required=True)
def describe(client: dict[str, Any], names: tuple[str, ...]) -> None:
    """Print each topic's partitions."""
    with admin_of(client) as admin:
        descriptions = admin.describe_topics(list(names))
    for name, topic in descriptions.items():
        table = Table(title=f"{name}  ({topic.topic_id})")
        for column in ("partition", "leader", "replicas", "in sync"):
            table.add_column(column, justify="right")
        for partition in topic.partitions:
            replicas, isr = (" ".join(map(str, nodes)) for nodes in (partition.replicas, partition.isr))
            table.add_row(str(partition.partition), str(partition.leader), replicas, isr)
        console().print(table)


@topics.command()
@cluster_options
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1), help="Number of partitions; without it, the broker's default.")
@click.option(
    "--replication-factor", type=click.IntRange(1), help="Replicas of each partition; without it, the broker's default."
)
@click.option("--config", "-c", "settings", multiple=True, metavar="KEY=VALUE", help="A topic option by Kafka's name.")
def create(
    client: dict[str, Any], name: str, partitions: int | None, replication_factor: int | None, settings: tuple[str, ...]
) -> None:
    """Create a topic."""
    topic = NewTopic(
        name, partitions or BROKER_DEFAULT, replication_factor or BROKER_DEFAULT, configs=parse_settings(settings)
    )
    with admin_of(client) as admin:
        admin.create_topics([topic])
    click.echo(f"created {name}")


@topics.command("add-partitions")
@cluster_options
@click.argument("name")
@click.argument("total", type=click.IntRange(1))
def add_partitions(client: dict[str, Any], name: str, total: int) -> None:
    """Grow a topic to TOTAL partitions."""
    with admin_of(client) as admin:
        admin.create_partitions({name: total})
    click.echo(f"{name} has {total} partitions")


@topics.command()
@cluster_options
@click.argument("names", nargs=-1, required=True)
def delete(client: dict[str, Any], names: tuple[str, ...]) -> None:
    """Delete topics and their records."""
    with admin_of(client) as admin:
        admin.delete_topics(list(names))
    for name in names:
        click.echo(f"deleted {name}")
