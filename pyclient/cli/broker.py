"""`pyclient broker`: the embedded broker in the foreground."""

from __future__ import annotations

import sys

import click

from pyclient.cli.options import parse_settings
from pyclient.config.addresses import DEFAULT_HOST, DEFAULT_PORT


@click.command()
@click.option(
    "--brokers",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="How many brokers, each in a process of its own, on --port and the ports that follow.",
)
@click.option("--replication-factor", type=click.IntRange(1), help="Replicas of a topic; by default up to 3.")
@click.option(
    "--min-insync-replicas", type=click.IntRange(1), help="Replicas that a record needs; by default all but one."
)
@click.option(
    "--controllers", type=click.IntRange(1), help="Nodes that are controllers only; by default brokers are, too."
)
@click.option(
    "--dynamic-quorum",
    is_flag=True,
    help="Keep the controllers in the metadata log (KIP-853), so that others can join and leave.",
)
@click.option("--host", default=DEFAULT_HOST, show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
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
@click.option(
    "--security",
    type=click.Choice(["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]),
    default="PLAINTEXT",
    show_default=True,
    help="The protocol of the listeners. With SASL, clients log in as one of the users in the environment variable "
    'PYCLIENT_BROKER_USERS, like {"alice": "password"}; with TLS, certificates are made in the data directory.',
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A broker option by Kafka's name.")
@click.option(
    "--control-port",
    type=click.IntRange(0, 65535),
    help="Serve the controls for tests (faults, time, ...) on this port by HTTP; 0 picks a free one.",
)
@click.option("--control-host", default=DEFAULT_HOST, show_default=True, help="The address of the control port.")
def broker(
    brokers: int,
    replication_factor: int | None,
    min_insync_replicas: int | None,
    controllers: int | None,
    dynamic_quorum: bool,
    host: str,
    port: int,
    data_dir: str | None,
    profile: str,
    as_version: str | None,
    security: str,
    settings: tuple[str, ...],
    control_port: int | None,
    control_host: str,
) -> None:
    """Run a broker, or a cluster of several, until Ctrl-C or SIGTERM.

    Its first line on stdout is `bootstrap.servers=HOST:PORT`, printed when it is ready; with --control-port the second
    is `control.url=http://HOST:PORT`.
    """
    if brokers > 1 or controllers is not None or dynamic_quorum:
        from pyclient.broker_embedded.cluster.foreground import serve_cluster

        if control_host != DEFAULT_HOST:
            raise click.UsageError(f"--control-host: the controls of several brokers are served on {DEFAULT_HOST} only")
        sys.exit(
            serve_cluster(
                brokers,
                replication_factor=replication_factor,
                min_insync_replicas=min_insync_replicas,
                controllers=controllers,
                dynamic_quorum=dynamic_quorum,
                host=host,
                port=port,
                data_dir=data_dir,
                profile=profile,
                as_version=as_version,
                settings=parse_settings(settings),
                control_port=control_port,
                security=security,
            )
        )
    for name, value in (("replication-factor", replication_factor), ("min-insync-replicas", min_insync_replicas)):
        if value not in (None, 1):
            raise click.UsageError(f"--{name} {value}: one broker has one replica of each topic; see --brokers")
    from pyclient.broker_embedded.__main__ import serve

    sys.exit(
        serve(
            host=host,
            port=port,
            data_dir=data_dir,
            profile=profile,
            as_version=as_version,
            security=security,
            settings=parse_settings(settings),
            control_port=control_port,
            control_host=control_host,
        )
    )
