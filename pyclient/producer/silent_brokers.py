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
"""Seconds without an answer after which the metadata are refreshed."""
REFRESH_SECONDS: Final = 0.5
"""Between two refreshes of the metadata while a broker is silent."""
SHORTEST_WAIT: Final = 0.1
"""Seconds between two checks while a broker is silent: what a refresh has found is known by then."""


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


def seconds_until_check(connections: Iterable[tuple[int, Connection]], undecided: bool) -> float:
    """Return when to check again: soon while a broker is silent, else when one may be."""
    longest = max((connection.unanswered_for for _node, connection in connections), default=0.0)
    return SHORTEST_WAIT if undecided else max(PATIENCE - longest, SHORTEST_WAIT)


class SilentBrokerCheck:
    """Checks the connections on the event loop: once a second, and more often while a broker is silent."""

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
        self._refresh_at = 0.0

    def start(self, seconds: float = PATIENCE) -> None:
        """Start to check in some seconds."""
        self._timer = self._loop.call_later(seconds, self._on_timer)

    def stop(self) -> None:
        """Stop checking."""
        if self._timer is not None:
            self._timer.cancel()

    def check(self) -> float:
        """Give up connections to brokers that are silent, and refresh the metadata if more has to be known.

        Return the seconds until the next check.
        """
        connections = self._connections()
        given_up, undecided = silent_connections(connections, self._is_left_behind)
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
        if undecided and self._loop.time() >= self._refresh_at:
            self._refresh_at = self._loop.time() + REFRESH_SECONDS
            self._refresh()
        return seconds_until_check(connections, undecided)

    def _on_timer(self) -> None:
        self.start(self.check())
