"""`pyclient broker`: the embedded broker in the foreground."""

from __future__ import annotations

import sys

import click

from pyclient.cli.options import parse_settings


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=9092, show_default=True, help="The port to listen on; 0 picks a free one.")
@click.option(
    "--data-dir", type=click.Path(file_okay=False), help="Where the logs are kept; without it, a temporary one."
)
@click.option(
    "--profile",
    type=click.Choice(["kafka", "test"]),
    default="kafka",
    show_default=True,
    help="Kafka's defaults, or quick ones for tests.",
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A broker option by Kafka's name.")
def broker(host: str, port: int, data_dir: str | None, profile: str, settings: tuple[str, ...]) -> None:
    """Run a broker until Ctrl-C or SIGTERM.

    Its first line on stdout is `bootstrap.servers=HOST:PORT`, printed when it serves.
    """
    from pyclient.broker_embedded.__main__ import serve

    sys.exit(serve(host=host, port=port, data_dir=data_dir, profile=profile, settings=parse_settings(settings)))
