"""`pyclient options`: print the reference of the clients' options."""

from __future__ import annotations

import click

from pyclient.admin.config import AdminConfig
from pyclient.config import ClientConfig
from pyclient.config.reference import as_markdown, as_text
from pyclient.consumer.config import ConsumerConfig
from pyclient.producer.config import ProducerConfig

CONFIGS: dict[str, type[ClientConfig]] = {
    "producer": ProducerConfig,
    "consumer": ConsumerConfig,
    "admin": AdminConfig,
}


@click.command("options")
@click.argument("client", type=click.Choice(list(CONFIGS)), required=False)
@click.option("--markdown", is_flag=True, help="The whole reference, as in docs/options.md.")
def option_reference(client: str | None, markdown: bool) -> None:
    """Print the options of CLIENT with types, defaults and explanations."""
    if markdown:
        click.echo(as_markdown(*CONFIGS.values()), nl=False)
    elif client is None:
        raise click.UsageError(f"name a client ({', '.join(CONFIGS)}), or give --markdown")
    else:
        click.echo(as_text(CONFIGS[client]))
