"""Programs of their own that a test runs, for what only a whole interpreter shows."""

from __future__ import annotations

import subprocess
import sys
import textwrap


def run(code, *arguments, expected=0, said=None):
    """Runs a program of its own; its stdout. `said`: what it, and its children, must have written to stderr."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == expected, done.stderr
    assert said is None or done.stderr == said, done.stderr
    return done.stdout
