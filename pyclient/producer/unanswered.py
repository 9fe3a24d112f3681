"""UnansweredSend: requests with acks=0, which end when the network has taken their bytes from the buffers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from pyclient.errors import ConnectionFailed, KafkaError
from pyclient.net.connection import Connection
from pyclient.producer.sender_tasks import SenderTasks
from pyclient.producer.work import ProduceWork
from pyclient.protocol.messages.produce import ProduceRequest


class Lost(Protocol):
    """Handles a request that failed; `written`: its bytes may have been sent."""

    def __call__(self, work: ProduceWork, error: KafkaError, *, written: bool) -> None: ...


class UnansweredSend:
    """Sends requests on the event loop and calls `taken` or `lost` when each has ended."""

    def __init__(self, tasks: SenderTasks, *, taken: Callable[[ProduceWork], object], lost: Lost) -> None:
        self._tasks = tasks
        self._taken = taken
        self._lost = lost

    def send(self, connection: Connection, request: ProduceRequest, work: ProduceWork) -> None:
        """Send the request of this work."""
        try:
            connection.send_only(request)
        except KafkaError as error:
            self._lost(work, error, written=False)
            return
        self._tasks.spawn(self._until_taken(connection, work))

    async def _until_taken(self, connection: Connection, work: ProduceWork) -> None:
        try:
            await connection.drain()
        except KafkaError as error:
            self._lost(work, error, written=True)
            return
        except asyncio.CancelledError:
            self._lost(work, ConnectionFailed("the producer was closed"), written=True)
            raise
        self._taken(work)
