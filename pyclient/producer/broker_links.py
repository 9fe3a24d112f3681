"""The producer's connections to brokers: opened on demand, one for each broker, more under load."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from pyclient.backoff import Backoff
from pyclient.clock import Rng
from pyclient.cluster.client import ClusterClient
from pyclient.errors import KafkaError
from pyclient.net.connection import Connection
from pyclient.producer.sender_tasks import SenderTasks

logger: Final = logging.getLogger("pyclient.producer")

PAUSE = 30.0
"""Seconds between two attempts to open the same additional connection, which is optional."""


class BrokerLinks:
    """Connections to brokers, used on the event loop; `nudge` is called when an attempt to connect has ended."""

    def __init__(
        self, cluster: ClusterClient, tasks: SenderTasks, backoff: Backoff, rng: Rng, *, nudge: Callable[[], object]
    ) -> None:
        self.used: dict[int, Connection] = {}  # by broker; it may have ended since
        self._cluster = cluster
        self._tasks = tasks
        self._backoff = backoff
        self._rng = rng
        self._nudge = nudge
        self._connecting: set[int] = set()
        self._additional: dict[tuple[int, int], Connection] = {}
        self._opening: set[tuple[int, int]] = set()

    def ready(self, node: int, count: int) -> list[Connection]:
        """Return up to `count` open connections, none if the first is missing; open missing ones in the background."""
        first = self._first(node)
        if first is None:
            return []
        connections = [first]
        for link in range(1, count):
            connection = self._additional.get((node, link))
            if connection is None or connection.closed:
                if (node, link) not in self._opening:
                    self._opening.add((node, link))
                    self._tasks.spawn(self._open(node, link))
                break
            connections.append(connection)
        return connections

    def _first(self, node: int) -> Connection | None:
        connection = self.used.get(node)
        if connection is None or connection.closed:
            connection = self._cluster.try_connection(node)
            if connection is None or connection.closed:
                self.used.pop(node, None)
                if node not in self._connecting:
                    self._connecting.add(node)
                    self._tasks.spawn(self._connect(node))
                return None
            self.used[node] = connection
        return connection

    async def _connect(self, node: int) -> None:
        try:
            await self._cluster.connection(node)
        except KafkaError as error:
            logger.debug("no connection to broker %d: %s", node, error)
            self._cluster.request_refresh()  # the broker's address or the partitions' leaders may have changed
            await asyncio.sleep(self._backoff.delay(0, self._rng))
        finally:
            self._connecting.discard(node)
        self._nudge()

    async def _open(self, node: int, link: int) -> None:
        """Open an additional connection, which brokers may refuse or close; retry after `PAUSE` at the earliest."""
        try:
            self._additional[node, link] = await self._cluster.optional_connection(node, f"produce-{link}")
            self._nudge()
        except KafkaError as error:
            logger.debug("no additional connection to broker %d: %s", node, error)
        try:
            await asyncio.sleep(PAUSE)
        finally:
            self._opening.discard((node, link))
