"""Find the coordinators of groups and transactional ids, and keep them until they fail."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from pyclient.cluster.asked_nodes import AskedNodes
from pyclient.cluster.connection_pool import ConnectionPool
from pyclient.cluster.metadata import Node
from pyclient.cluster.metadata_updater import NEXT_NODE_SECONDS
from pyclient.cluster.node_connection import NodeConnection
from pyclient.cluster.retry import RetryPolicy
from pyclient.errors import CoordinatorNotAvailable, MalformedMessage, for_code, from_code
from pyclient.net.tasks import first_success
from pyclient.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

_BATCHED: Final = 4  # since this version a request has several keys
_KINDS: Final = {0: "group", 1: "transactional id"}

Key = tuple[int, str]
"""The kind of a coordinator, and the group or transactional id."""


class Coordinators:
    """Looks coordinators up with FindCoordinator requests; `describe_failures` adds facts to a timeout's text."""

    def __init__(self, pool: ConnectionPool, policy: RetryPolicy, describe_failures: Callable[[], str]) -> None:
        self._pool = pool
        self._policy = policy
        self._describe_failures = describe_failures
        self._known: dict[Key, int] = {}
        self._asked: dict[Key, AskedNodes] = {}

    async def find(self, key: str, kind: int, timeout: float) -> int:
        """Return the coordinator's node id; see `ClusterClient.find_coordinator`."""
        known = self._known.get((kind, key))
        if known is not None:
            return known
        what = f"finding the coordinator of {_KINDS.get(kind, 'key')} {key!r}"

        async def attempt() -> int:
            return await self._ask(key, kind, what)

        node_id = await self._policy.call(attempt, timeout=timeout, what=what, details=self._describe_failures)
        self._known[kind, key] = node_id
        return node_id

    def known(self, key: str, kind: int) -> int | None:
        """Return the coordinator's node id if it was found before."""
        return self._known.get((kind, key))

    def forget(self, key: str, kind: int) -> None:
        """Remove one coordinator, which has failed: the next lookup prefers other nodes than the one that named it."""
        self._known.pop((kind, key), None)

    def forget_node(self, node_id: int) -> None:
        """Remove every coordinator on a node whose connection ended: it may have moved."""
        self._known = {key: node for key, node in self._known.items() if node != node_id}

    async def _ask(self, key: str, kind: int, what: str) -> int:
        """Return the id of the node that the first node to answer names."""
        asked = self._asked.setdefault((kind, key), AskedNodes())
        attempts = [partial(self._request, broker, key, kind) for broker in self._pool.candidates(asked)]
        address, answer = await first_success(attempts, NEXT_NODE_SECONDS)
        asked.note(address)
        if answer.error_code:
            detail = f" ({answer.error_message})" if answer.error_message else ""
            name = for_code(answer.error_code).__name__
            text = f"{what}: {address} answered {name}{detail}"
            raise from_code(answer.error_code, text, FindCoordinatorRequest.name)
        if answer.node_id < 0 or not answer.host or not 0 < answer.port <= 65535:
            raise CoordinatorNotAvailable(
                f"{what}: {address} names node {answer.node_id} at {answer.host!r}:{answer.port}"
            )
        self._pool.add_node(Node(answer.node_id, answer.host, answer.port))
        return answer.node_id

    async def _request(self, broker: NodeConnection, key: str, kind: int) -> tuple[str, Coordinator]:
        """Return a node's address and its answer."""
        address = broker.node.address
        self._asked[kind, key].note(address)
        connection = await broker.connection()
        version = connection.version_for(FindCoordinatorRequest)
        if version >= _BATCHED:
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        else:
            request = FindCoordinatorRequest(key=key, key_type=kind)
        return address, _answer_for(key, await connection.request(request, version=version), version)


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
