"""Options that several commands take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

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
    """`("linger.ms=5",)` -> `{"linger.ms": "5"}`; a setting without `=` is a usage error."""
    parsed = {}
    for setting in settings:
        key, separator, value = setting.partition("=")
        if not separator or not key.strip():
            raise click.UsageError(f"{setting!r}: a setting is KEY=VALUE, for example linger.ms=5")
        parsed[key.strip()] = value.strip()
    return parsed
