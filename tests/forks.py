"""Forks of a test's own process."""

from __future__ import annotations

import os
import signal
from typing import Final

CHILDREN_LIVE: Final = 30  # seconds


def fork() -> int:
    """`os.fork`, but a child that hangs is killed after a while: whoever waits for it then sees that."""
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # not what pytest-timeout does
        signal.alarm(CHILDREN_LIVE)
    return child
