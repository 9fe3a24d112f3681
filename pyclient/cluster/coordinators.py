"""Coordinators of groups and transactional ids: looked up on demand, cached until they are invalidated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient.cluster.metadata import Node
from pyclient.cluster.retry import RetryPolicy
from pyclient.errors import CoordinatorNotAvailable, MalformedMessage, for_code, from_code
from pyclient.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from pyclient.cluster.client import ClusterClient

_BATCHED: Final = 4  # since this version a request has several keys
_KINDS: Final = {0: "group", 1: "transactional id"}


class Coordinators:
    """A cache of coordinators, filled with FindCoordinator requests."""

    def __init__(self, client: ClusterClient, policy: RetryPolicy) -> None:
        self._client = client
        self._policy = policy
        self._known: dict[tuple[int, str], int] = {}

    async def find(self, key: str, kind: int, timeout: float) -> int:
        """Return the coordinator's node id; see `ClusterClient.find_coordinator`."""
        known = self._known.get((kind, key))
        if known is not None:
            return known
        what = f"finding the coordinator of {_KINDS.get(kind, 'key')} {key!r}"

        async def attempt() -> int:
            return await self._ask(key, kind, what)

        node_id = await self._policy.call(attempt, timeout=timeout, what=what, details=self._client.describe_failures)
        self._known[kind, key] = node_id
        return node_id

    def forget(self, key: str, kind: int) -> None:
        """Remove one key from the cache."""
        self._known.pop((kind, key), None)

    def forget_node(self, node_id: int) -> None:
        """Remove every coordinator on a node whose connection ended: it may have moved."""
        self._known = {key: node for key, node in self._known.items() if node != node_id}

    async def _ask(self, key: str, kind: int, what: str) -> int:
        connection = await self._client.any_connection()
        version = connection.version_for(FindCoordinatorRequest)
        if version >= _BATCHED:
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        else:
            request = FindCoordinatorRequest(key=key, key_type=kind)
        answer = _answer_for(key, await connection.request(request, version=version), version)
        if answer.error_code:
            detail = f" ({answer.error_message})" if answer.error_message else ""
            name = for_code(answer.error_code).__name__
            raise from_code(answer.error_code, f"{what}: {connection.address} answered {name}{detail}")
        if answer.node_id < 0 or not answer.host or not 0 < answer.port <= 65535:
            raise CoordinatorNotAvailable(
                f"{what}: {connection.address} names node {answer.node_id} at {answer.host!r}:{answer.port}"
            )
        self._client.add_node(Node(answer.node_id, answer.host, answer.port))
        return answer.node_id


def _answer_for(key: str, response: FindCoordinatorResponse, version: int) -> Coordinator:
    if version < _BATCHED:
        return Coordinator(
            key=key,
            node_id=response.node_id,
            host=response.host,
            port=response.port,
            error_code=response.error_code,
            error_message=response.error_message,
        )
    for answer in response.coordinators:
        if answer.key == key:
            return answer
    raise MalformedMessage(f"FindCoordinatorResponse v{version} has no entry for {key!r}, the key of the request")
