"""acks=0: a request is over when the network has taken its bytes, which until then are the buffers'."""

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
    """Takes a request that failed; `written` tells whether its bytes may have gone out."""

    def __call__(self, work: ProduceWork, error: KafkaError, *, written: bool) -> None: ...


class UnansweredSend:
    """Sends on the event loop; each request ends with `taken` or with `lost`."""

    def __init__(self, tasks: SenderTasks, *, taken: Callable[[ProduceWork], object], lost: Lost) -> None:
        self._tasks = tasks
        self._taken = taken
        self._lost = lost

    def send(self, connection: Connection, request: ProduceRequest, work: ProduceWork) -> None:
        """Sends the request of this work."""
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
