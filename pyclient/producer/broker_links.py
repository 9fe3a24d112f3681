"""The connections that a producer sends through: one to each broker, made when something is ready for it."""

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


class BrokerLinks:
    """Used on the event loop; `nudge` is called when an attempt to connect has ended."""

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

    def ready(self, node: int) -> Connection | None:
        """A connection that is ready, or None; then one is being made."""
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
            self._cluster.request_refresh()  # it may have moved, or its partitions may have
            await asyncio.sleep(self._backoff.delay(0, self._rng))
        finally:
            self._connecting.discard(node)
        self._nudge()
