"""Brokers that answer nothing while their partitions have other leaders: their connections are given up early.

A broker that is frozen, or whose machine lost its power, keeps its connections. Without this the batches in flight to
it would wait `request_timeout_ms`, although another broker leads their partitions already.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from pyclient.net.connection import Connection

logger = logging.getLogger(__name__)

PATIENCE: Final = 1.0
"""Seconds without an answer after which the metadata are refreshed; also between two checks."""


def silent_connections(
    connections: Iterable[tuple[int, Connection]], is_left_behind: Callable[[int], bool]
) -> tuple[list[tuple[int, Connection]], bool]:
    """Return the connections to give up, by broker, and True if the metadata must be refreshed to decide about others.

    `is_left_behind` returns True if all partitions with batches in flight to a broker are known to have other leaders.
    """
    given_up, undecided = [], False
    for node, connection in connections:
        if connection.unanswered_for > PATIENCE:
            if is_left_behind(node):
                given_up.append((node, connection))
            else:
                undecided = True
    return given_up, undecided


class SilentBrokerCheck:
    """Checks the connections about once a second, on the event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connections: Callable[[], list[tuple[int, Connection]]],
        is_left_behind: Callable[[int], bool],
        refresh: Callable[[], object],
    ) -> None:
        self._loop = loop
        self._connections = connections
        self._is_left_behind = is_left_behind
        self._refresh = refresh
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start to check."""
        self._timer = self._loop.call_later(PATIENCE, self._on_timer)

    def stop(self) -> None:
        """Stop checking."""
        if self._timer is not None:
            self._timer.cancel()

    def check(self) -> None:
        """Give up connections to brokers that are silent, and refresh the metadata if more has to be known."""
        given_up, undecided = silent_connections(self._connections(), self._is_left_behind)
        for node, connection in given_up:
            seconds = connection.unanswered_for
            logger.warning(
                "broker %d (%s) has not answered for %.1f s, and other brokers lead its partitions: its connection is "
                "closed, and the batches in flight are sent to the new leaders",
                node,
                connection.address,
                seconds,
            )
            connection.end(f"no answer for {seconds:.1f} s, and other brokers lead the partitions")
        if undecided:
            self._refresh()

    def _on_timer(self) -> None:
        self.start()
        self.check()
