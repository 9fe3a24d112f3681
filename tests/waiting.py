"""Wait for a condition that another thread fulfils."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

PATIENCE: Final = 120.0  # seconds; what is waited for takes milliseconds, but on a busy machine many times that


def until(reached: Callable[[], object], failure: str = "the condition was not reached in time") -> None:
    """Block until `reached()` is true; after `PATIENCE` seconds fail with the text `failure`."""
    deadline = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < deadline, failure
        time.sleep(0.002)
