"""A connection to one broker that is opened on demand and backs off when that fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from pyclient.backoff import Backoff
from pyclient.clock import Clock, Rng
from pyclient.cluster.metadata import Node
from pyclient.errors import ConnectionFailed
from pyclient.net.connection import Connection
from pyclient.net.tasks import shared

log = logging.getLogger(__name__)

OPTIONAL_IDLE: Final = 10.0
"""Seconds. Brokers limit the connections per address, and other clients may need them."""


class NodeConnection:
    """Holds at most one connection to `node`; attempts to open it are at least the reconnect backoff apart.

    An `optional` one only adds capacity to another connection: it is closed after `OPTIONAL_IDLE` idle seconds.
    """

    def __init__(
        self,
        node: Node,
        connect: Callable[[Node], Awaitable[Connection]],
        backoff: Backoff,
        clock: Clock,
        rng: Rng,
        *,
        optional: bool = False,
    ) -> None:
        self.node = node
        self.optional = optional
        self.failures = 0
        self.connecting_since: float | None = None
        self._connect = connect
        self._backoff = backoff
        self._clock = clock
        self._rng = rng
        self._connection: Connection | None = None
        self._attempt: asyncio.Task[Connection] | None = None
        self._not_before = float("-inf")
        self._closed = False

    @property
    def ready(self) -> Connection | None:
        """The connection if it is open, else None."""
        connection = self._connection
        return connection if connection is not None and not connection.closed else None

    def wake(self) -> None:
        """Start to connect in the background, unless a connection is open or being opened."""
        if self.ready is None and self._attempt is None and not self._closed:
            self._attempt = asyncio.create_task(self._open())
            self._attempt.add_done_callback(self._attempted)

    async def connection(self) -> Connection:
        """Return the open connection, opening it if necessary; raise `ConnectionFailed` if this attempt fails."""
        connection = self.ready
        if connection is not None:
            return connection
        if self._closed:
            raise ConnectionFailed(f"{self.node.address}: the client is closed")
        self.wake()
        attempt = self._attempt
        assert attempt is not None
        try:
            return await shared(attempt)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if attempt.cancelled() and task is not None and not task.cancelling():  # by close()
                raise ConnectionFailed(f"{self.node.address}: the client was closed") from None
            raise

    def set_node(self, node: Node) -> None:
        """Keep the connection for `node`, which metadata found at the same address."""
        self.node = node
        if self._connection is not None:
            self._connection.node_id = node.node_id

    def close_if_idle(self, idle_seconds: float) -> None:
        """Close the connection if it was idle for `idle_seconds`."""
        connection = self.ready
        if connection is None or connection.in_flight:
            return
        if self.optional:
            idle_seconds = min(idle_seconds, OPTIONAL_IDLE)
        if self._clock.monotonic() - connection.last_used >= idle_seconds:
            _close(connection, "it was idle")

    def close(self) -> None:
        """Cancel a connection attempt and close the connection."""
        self._closed = True
        if self._attempt is not None:
            self._attempt.cancel()
        if self._connection is not None:
            _close(self._connection, "closed by this client")

    async def _open(self) -> Connection:
        pause = self._not_before - self._clock.monotonic()
        if pause > 0:
            await asyncio.sleep(pause)
        self.connecting_since = self._clock.monotonic()
        self._not_before = self.connecting_since + self._backoff.delay(self.failures, self._rng)
        try:
            connection = await self._connect(self.node)
        except Exception:  # a bug must not cause retries without a pause
            self._not_before = self._clock.monotonic() + self._backoff.delay(self.failures, self._rng)
            self.failures += 1
            raise
        finally:
            self.connecting_since = None
        self.failures = 0
        self._connection = connection
        connection.node_id = self.node.node_id  # `set_node` may have changed it meanwhile
        return connection

    def _attempted(self, attempt: asyncio.Task[Connection]) -> None:
        self._attempt = None
        error = None if attempt.cancelled() else attempt.exception()
        if error is not None and not isinstance(error, ConnectionFailed):  # the pool records ConnectionFailed
            log.error("unexpected error while connecting to %s", self.node.address, exc_info=error)

    def __repr__(self) -> str:
        state = "ready" if self.ready else "connecting" if self._attempt else "idle"
        return f"<NodeConnection {self.node.address} {state} failures={self.failures}>"


def _close(connection: Connection, reason: str) -> None:
    connection.on_closed.clear()  # it is not lost
    connection.end(reason)
