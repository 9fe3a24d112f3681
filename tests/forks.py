"""Fork the test process."""

from __future__ import annotations

import os
import signal
from typing import Final

CHILD_TIMEOUT: Final = 30  # seconds


def fork() -> int:
    """Call `os.fork`; a child that hangs is killed after `CHILD_TIMEOUT`, which its exit status shows."""
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # replaces pytest-timeout's handler
        signal.alarm(CHILD_TIMEOUT)
    return child
