"""Options and helpers that several commands share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import isnan
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import click
from rich.console import Console

from pyclient import Admin
from pyclient.config.addresses import DEFAULT_HOST, DEFAULT_PORT, format_address
from pyclient.config.unsupported import OWN
from pyclient.errors import UnknownTopicOrPartition

API_TIMEOUT_MS: Final = 15_000
"""The time limit for a cluster's responses to a command: short, for a user at a terminal."""

_DEFAULT_SERVERS: Final = format_address(DEFAULT_HOST, DEFAULT_PORT)
_NOTICE_SECONDS: Final = 1.0  # until a command without a connection prints what it connects to

F = TypeVar("F", bound=Callable[..., Any])


class Seconds(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on
    """A number of seconds from 0."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; raise a usage error for anything else."""
        try:
            seconds = float(value)
        except ValueError:
            seconds = float("nan")
        if isnan(seconds) or seconds < 0:
            self.fail(f"{value!r} is not a number of seconds from 0", param, ctx)
        return seconds


def cluster_options(function: F) -> F:
    """Add `-b`, `--command-config` and `-X`; the command gets one `client: dict[str, Any]` of client options."""
    return _cluster_options(function, "--client-config", "-X")


def client_options(function: F) -> F:
    """Add `cluster_options`, with `--config` and `-c` as further names of `-X`, for commands without topic options."""
    return _cluster_options(function, "--client-config", "-X", "--config", "-c")


def _cluster_options(function: F, *names: str) -> F:
    def run(
        bootstrap_servers: str | None, command_config: Path | None, client_settings: tuple[str, ...], **rest: Any
    ) -> Any:
        client: dict[str, Any] = {} if command_config is None else _read_properties(command_config)
        client.update(parse_settings(client_settings))
        if bootstrap_servers is not None:
            client["bootstrap.servers"] = bootstrap_servers
        client.setdefault("bootstrap.servers", _DEFAULT_SERVERS)
        return function(client=client, **rest)

    run.__name__, run.__doc__ = function.__name__, function.__doc__
    run.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]  # click's own
    options = (
        click.option(
            *names,
            "client_settings",
            multiple=True,
            metavar="KEY=VALUE",
            help="A client option by Kafka's name; repeatable.",
        ),
        click.option(
            "--command-config",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="A file of client options, as Kafka's tools take it.",
        ),
        click.option(
            "--bootstrap-servers",
            "-b",
            envvar="PYCLIENT_BOOTSTRAP_SERVERS",
            metavar="HOST:PORT[,...]",
            help=f"Where to find the cluster.  [default: {_DEFAULT_SERVERS}]",
        ),
    )
    for option in options:
        run = option(run)
    return run  # type: ignore[return-value]


def parse_settings(settings: tuple[str, ...]) -> dict[str, str]:
    """Convert `("linger_ms=5",)` to `{"linger.ms": "5"}`; raise a usage error for a setting without `=`."""
    parsed = {}
    for setting in settings:
        key, separator, value = setting.partition("=")
        if not separator or not key.strip():
            raise click.UsageError(f"{setting!r}: a setting is KEY=VALUE, for example linger.ms=5")
        parsed[key.strip().replace("_", ".")] = value.strip()
    return parsed


def _read_properties(path: Path) -> dict[str, str]:
    """Read a Java properties file, limited to what Kafka uses: KEY=VALUE, comments and blank lines."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path} cannot be read: {error}") from error
    return parse_settings(tuple(line.strip() for line in lines if line.strip() and line.strip()[0] not in "#!"))


class _Client(Protocol):
    def health(self) -> Any: ...


@contextmanager
def connection_notice(client: _Client, settings: Mapping[str, Any]) -> Iterator[None]:
    """Print the addresses on stderr after a second without a connection; the client itself logs failed attempts."""

    def print_notice() -> None:
        health = client.health()
        connected = health["connected_nodes"] if isinstance(health, dict) else health.connected
        failures = health["last_failures"] if isinstance(health, dict) else health.last_failures
        if not connected and not failures:
            click.echo(f"connecting to {settings['bootstrap.servers']}, no answer yet", err=True)

    timer = threading.Timer(_NOTICE_SECONDS, print_notice)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


@contextmanager
def admin_of(client: Mapping[str, Any]) -> Iterator[Admin]:
    """Yield an admin client for one command."""
    config = {"default.api.timeout.ms": str(API_TIMEOUT_MS), **options_for("admin", client)}
    with Admin(config=config) as admin, connection_notice(admin, client):
        yield admin


def options_for(kind: str, client: Mapping[str, Any]) -> dict[str, Any]:
    """Return a command's client options without those of other kinds of clients, for an additional client."""
    others = frozenset().union(*(names for other, names in OWN.items() if other != kind)) - OWN[kind]
    return {name: value for name, value in client.items() if name.replace(".", "_") not in others}


def check_topics(client: Mapping[str, Any], *names: str) -> None:
    """Raise an error for a topic that does not exist, since a mistyped name must not create one."""
    timeout_ms = client.get("max.block.ms", str(API_TIMEOUT_MS))
    with admin_of({"default.api.timeout.ms": timeout_ms, **client}) as admin:
        try:
            admin.describe_topics(names)
        except UnknownTopicOrPartition as error:
            advice = f"check the name, or create it: pyclient topics create {names[0]}"
            raise click.ClickException(f"UnknownTopicOrPartition: {error}; {advice}") from error


def console() -> Console:
    """Return the console for tables; it does not interpret brackets and colons, since cells are data."""
    plain = Console(markup=False, emoji=False, highlight=False)
    return plain if plain.is_terminal else Console(markup=False, emoji=False, highlight=False, width=200)
