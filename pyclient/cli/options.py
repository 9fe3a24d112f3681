"""Options that several commands take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from pyclient import Admin

API_TIMEOUT_MS: Final = 15_000
"""How long a command waits for a cluster that does not answer: a user at a terminal wants to hear of it soon."""

F = TypeVar("F", bound=Callable[..., Any])


def bootstrap_option(function: F) -> F:
    """`--bootstrap-servers`, also from PYCLIENT_BOOTSTRAP_SERVERS."""
    return click.option(
        "--bootstrap-servers",
        "-b",
        envvar="PYCLIENT_BOOTSTRAP_SERVERS",
        default="127.0.0.1:9092",
        show_default=True,
        metavar="HOST:PORT[,...]",
        help="Where to find the cluster.",
    )(function)


def config_option(function: F) -> F:
    """`--config key=value`, any number of times."""
    return click.option(
        "--config", "-c", "settings", multiple=True, metavar="KEY=VALUE", help="A client option by Kafka's name."
    )(function)


def parse_settings(settings: tuple[str, ...]) -> dict[str, str]:
    """`("linger_ms=5",)` -> `{"linger.ms": "5"}`; a setting without `=` is a usage error."""
    parsed = {}
    for setting in settings:
        key, separator, value = setting.partition("=")
        if not separator or not key.strip():
            raise click.UsageError(f"{setting!r}: a setting is KEY=VALUE, for example linger.ms=5")
        parsed[key.strip().replace("_", ".")] = value.strip()
    return parsed


def admin_of(bootstrap_servers: str) -> Admin:
    """An admin client for one command."""
    return Admin(bootstrap_servers, default_api_timeout_ms=API_TIMEOUT_MS)
