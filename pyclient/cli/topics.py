"""`pyclient topics`: list, describe, create, grow and delete topics."""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Table

from pyclient import NewTopic
from pyclient.cli.options import admin_of, bootstrap_option, parse_settings


@click.group()
def topics() -> None:
    """List, describe, create, grow and delete topics."""


@topics.command("list")
@bootstrap_option
@click.option("--internal", is_flag=True, help="Include the cluster's own topics.")
def list_topics(bootstrap_servers: str, internal: bool) -> None:
    """Print the topics' names, one a line."""
    with admin_of(bootstrap_servers) as admin:
        for name in sorted(admin.list_topics(include_internal=internal)):
            click.echo(name)


@topics.command()
@bootstrap_option
@click.argument("names", nargs=-1, required=True)
def describe(bootstrap_servers: str, names: tuple[str, ...]) -> None:
    """Print each topic's partitions."""
    with admin_of(bootstrap_servers) as admin:
        descriptions = admin.describe_topics(list(names))
    for name, topic in descriptions.items():
        table = Table(title=f"{name}  ({topic.topic_id})")
        for column in ("partition", "leader", "replicas", "in sync"):
            table.add_column(column, justify="right")
        for partition in topic.partitions:
            replicas, isr = (" ".join(map(str, nodes)) for nodes in (partition.replicas, partition.isr))
            table.add_row(str(partition.partition), str(partition.leader), replicas, isr)
        Console().print(table)


@topics.command()
@bootstrap_option
@click.argument("name")
@click.option("--partitions", default=-1, help="How many; without it, the broker's default.")
@click.option("--replication-factor", default=-1, help="Copies of each; without it, the broker's default.")
@click.option("--config", "-c", "settings", multiple=True, metavar="KEY=VALUE", help="A topic option by Kafka's name.")
def create(
    bootstrap_servers: str, name: str, partitions: int, replication_factor: int, settings: tuple[str, ...]
) -> None:
    """Create a topic."""
    topic = NewTopic(name, partitions, replication_factor, configs=parse_settings(settings))
    with admin_of(bootstrap_servers) as admin:
        admin.create_topics([topic])
    click.echo(f"created {name}")


@topics.command("add-partitions")
@bootstrap_option
@click.argument("name")
@click.argument("total", type=int)
def add_partitions(bootstrap_servers: str, name: str, total: int) -> None:
    """Grow a topic to TOTAL partitions."""
    with admin_of(bootstrap_servers) as admin:
        admin.create_partitions({name: total})
    click.echo(f"{name} has {total} partitions")


@topics.command()
@bootstrap_option
@click.argument("names", nargs=-1, required=True)
def delete(bootstrap_servers: str, names: tuple[str, ...]) -> None:
    """Delete topics and their records."""
    with admin_of(bootstrap_servers) as admin:
        admin.delete_topics(list(names))
    for name in names:
        click.echo(f"deleted {name}")
