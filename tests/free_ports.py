"""Ports for clusters that are started again on the same ones, and one on which nothing listens."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator


def first_of_free_ports(count: int) -> int:
    """Return the first of some free ports in a row, below those that a cluster chooses and that the system assigns."""
    row = 15_000 + os.getpid() % 490 * 10  # those of neighbouring processes do not overlap
    for first in range(row, 32_000, count):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
    raise AssertionError(f"there are no {count} free ports in a row")


@contextlib.contextmanager
def closed_port() -> Iterator[int]:
    """Yield a port that is bound and not listening, so that no other process comes to listen there."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]
