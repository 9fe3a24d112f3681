"""The `pyclient` command: `app.py` has the group, which loads a command's module on first use."""

from __future__ import annotations

import sys

_MISSING = "pyclient's command line needs click and rich: pip install 'pyclient-kafka[cli]'"


def main() -> None:
    """Run the command line; exit with a hint if the `cli` extra is not installed."""
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ImportError:
        sys.exit(_MISSING)
    from pyclient.cli.app import cli

    cli(prog_name="pyclient")
