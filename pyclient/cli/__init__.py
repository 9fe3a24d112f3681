"""The `pyclient` command."""

from __future__ import annotations

import sys

_MISSING = "pyclient's command line needs click and rich: pip install 'pyclient-kafka[cli]'"


def main() -> None:
    """The entry point; says what to install where the `cli` extra is missing."""
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ImportError:
        sys.exit(_MISSING)
    from pyclient.cli.app import cli

    cli(prog_name="pyclient")
