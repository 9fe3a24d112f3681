"""`pyclient broker`: the embedded broker in the foreground."""

from __future__ import annotations

import sys

import click

from pyclient.cli.options import parse_settings


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=9092,
    show_default=True,
    help="The port to listen on; 0 picks a free one.",
)
@click.option(
    "--data-dir", type=click.Path(file_okay=False), help="The directory of the logs; without it, a temporary one."
)
@click.option(
    "--profile",
    type=click.Choice(["kafka", "test"]),
    default="kafka",
    show_default=True,
    help="Kafka's defaults, or quick ones for tests.",
)
@click.option("--as-version", metavar="RELEASE", help="Look like that release of Kafka to clients, as in 3.9.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A broker option by Kafka's name.")
@click.option(
    "--control-port",
    type=click.IntRange(0, 65535),
    help="Serve the controls for tests (faults, time, ...) on this port by HTTP; 0 picks a free one.",
)
@click.option("--control-host", default="127.0.0.1", show_default=True, help="The address of the control port.")
def broker(
    host: str,
    port: int,
    data_dir: str | None,
    profile: str,
    as_version: str | None,
    settings: tuple[str, ...],
    control_port: int | None,
    control_host: str,
) -> None:
    """Run a broker until Ctrl-C or SIGTERM.

    Its first line on stdout is `bootstrap.servers=HOST:PORT`, printed when it is ready; with --control-port the second
    is `control.url=http://HOST:PORT`.
    """
    from pyclient.broker_embedded.__main__ import serve

    sys.exit(
        serve(
            host=host,
            port=port,
            data_dir=data_dir,
            profile=profile,
            as_version=as_version,
            settings=parse_settings(settings),
            control_port=control_port,
            control_host=control_host,
        )
    )
