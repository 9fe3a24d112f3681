"""The connection and the error texts shared by the requests of both group protocols."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final

from pyclient.cluster.client import ClusterClient
from pyclient.cluster.metadata import ClusterMetadata
from pyclient.consumer.config import ConsumerConfig
from pyclient.consumer.group import Member
from pyclient.consumer.group_events import Event, Request, SendLeave
from pyclient.errors import ClosedError, ConnectionFailed, KafkaError, from_code
from pyclient.net.connection import Connection

_PURPOSE: Final = "group"  # JoinGroup occupies its connection until the whole group has joined


class GroupRequests(ABC):
    """Carries out the requests of one member; everything runs on the event loop."""

    def __init__(self, cluster: ClusterClient, config: ConsumerConfig, member: Member) -> None:
        self.member = member
        self._cluster = cluster
        self._config = config
        self._group_id = member.options.group_id

    @abstractmethod
    async def answer(self, action: Request) -> Event:
        """Carry out a request and return its event; the caller turns a `KafkaError` into a `Refused`."""

    @abstractmethod
    async def leave(self, leave: SendLeave) -> None:
        """Leave the group; raise if that fails."""

    def changed(self, metadata: ClusterMetadata) -> str | None:
        """Return why new metadata requires a rebalance; None if it does not."""
        return None

    async def _connection(self, node: int) -> Connection:
        try:
            return await self._cluster.connection(node, purpose=_PURPOSE)
        except ClosedError as error:
            raise ConnectionFailed(str(error)) from error

    async def _ask(self, node: int, request: Any, timeout: float | None = None, version: int | None = None) -> Any:
        connection = await self._connection(node)
        try:
            return await connection.request(request, timeout=timeout, version=version)
        except ClosedError as error:
            raise ConnectionFailed(str(error)) from error

    def _refusal(self, code: int, what: str, hint: str = "") -> KafkaError:
        return from_code(code, f"{what} was refused to {self.member.describe()}{f': {hint}' if hint else ''}")
