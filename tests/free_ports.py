"""Ports for clusters that are started again on the same ones."""

from __future__ import annotations

import contextlib
import os
import socket


def first_of_free_ports(count: int) -> int:
    """Return the first of some free ports in a row, below those that a cluster chooses and that the system assigns."""
    for first in range(15_000 + os.getpid() % 4_900, 32_000, count):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
    raise AssertionError(f"there are no {count} free ports in a row")
