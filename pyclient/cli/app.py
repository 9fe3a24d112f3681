"""The command group; it loads commands on first use and prints errors as one line instead of a traceback."""

from __future__ import annotations

import importlib
from typing import Any

import click

import pyclient
from pyclient.errors import KafkaError

_COMMANDS = {
    "broker": ("pyclient.cli.broker", "broker"),
    "topics": ("pyclient.cli.topics", "topics"),
    "produce": ("pyclient.cli.produce", "produce"),
    "consume": ("pyclient.cli.consume", "consume"),
    "groups": ("pyclient.cli.groups", "groups"),
    "perf": ("pyclient.cli.perf", "perf"),
    "options": ("pyclient.cli.option_reference", "option_reference"),
    "recover-metadata": ("pyclient.cli.recover_metadata", "recover_metadata"),
    "demo": ("pyclient.cli.demo.command", "demo"),
}


class _LazyGroup(click.Group):
    """Imports a command's module on first use, and prints pyclient's errors as one line on stderr."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        location = _COMMANDS.get(cmd_name)
        if location is None:
            return None
        module, attribute = location
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KafkaError as error:
            raise click.ClickException(f"{type(error).__name__}: {error}") from error


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from pyclient.records import IMPLEMENTATION

    click.echo(f"pyclient {pyclient.__version__} (record codec: {IMPLEMENTATION})")
    if IMPLEMENTATION == "pure":
        click.echo(
            "notice: the record codec runs in pure Python, which works but is many times slower. "
            "Reinstall with a C compiler at hand (and without PYCLIENT_PURE=1) to have the compiled one."
        )
    ctx.exit()


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version.")
def cli() -> None:
    """A Kafka client and a broker to test it with."""
