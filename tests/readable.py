"""Return True if a socket or pipe has something to read, also above descriptor 1023, which select() does not take."""

from __future__ import annotations

import selectors
from typing import Any


def is_readable(file: Any, seconds: float = 0.0) -> bool:
    """Wait until there is something to read or the time is over; `file` is a descriptor or has a fileno()."""
    with selectors.DefaultSelector() as selector:
        selector.register(file, selectors.EVENT_READ)
        return bool(selector.select(seconds))
