"""Waiting for what another thread does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

PATIENCE: Final = 30.0  # seconds


def until(reached: Callable[[], object], what: str = "it was waited for in vain") -> None:
    """Looks until it is reached; after `PATIENCE` the test fails, and says `what` is the matter."""
    deadline = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < deadline, what
        time.sleep(0.002)  # between two looks
