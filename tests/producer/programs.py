"""Runs test programs in their own interpreter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from typing import Final

from tests.forks import CHILD_TIMEOUT

PATIENCE: Final = 100.0  # seconds

START: Final = """
import os, signal
os.register_at_fork(after_in_child=lambda: signal.alarm(%d))  # before anything of a child may hang
"""

WARNINGS: Final = ("-W", "error", "-W", "ignore:This process:DeprecationWarning")
"""All warnings are errors, except that of Python 3.12 and later about forks in a process with threads."""


def run(code: str, *arguments: str, expected: int = 0, said: str | None = None) -> str:
    """Run a program and return its stdout. `said`: the text that it and its children must have written to stderr.

    Nothing of it stays: its children, made by fork, are killed after `CHILD_TIMEOUT`, and all of it after `PATIENCE`.
    """
    with subprocess.Popen(
        [sys.executable, *WARNINGS, "-c", START % CHILD_TIMEOUT + textwrap.dedent(code), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as program:
        try:
            out, err = program.communicate(timeout=PATIENCE)
        except BaseException:
            os.killpg(program.pid, signal.SIGKILL)
            raise
    assert program.returncode == expected, err
    assert said is None or err == said, err
    return out
