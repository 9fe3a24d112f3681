"""Answer the quorum's requests: check them, hand them to this node's replica, and send what it decides."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from pyclient import errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyclient.broker_embedded.controller.quorum import Quorum
    from pyclient.broker_embedded.controller.quorum_messages import Answered
    from pyclient.broker_embedded.controller.raft.messages import Request
    from pyclient.broker_embedded.services import BrokerServices

log = logging.getLogger("pyclient.broker_embedded")


class Endpoint(Protocol):
    """Makes the `NodeEndpoint` of a response."""

    def __call__(self, *, node_id: int, host: str, port: int) -> Any:
        """Return the part of the response."""


def name_leader(response: Any, endpoint: Endpoint, answered: Answered, quorum: Quorum | None) -> None:
    """Put the address of the leader into a response that names it (KIP-853).

    A node that is configured with `controller.quorum.bootstrap.servers` knows no voters: it finds the leader by this.
    """
    leader = answered.response.leader_id
    address = None if quorum is None or leader is None else quorum.addresses.of(leader)
    if address is not None:
        host, port = address
        response.node_endpoints = [endpoint(node_id=leader, host=host, port=port)]


async def ask(services: BrokerServices, request: Any, parse: Callable[[Quorum], Request]) -> Answered | int:
    """Return the replica's answer to a request, or the error code of one that no node of the cluster would send.

    `parse` returns the request in the core's form, or raises `MalformedMessage`.
    """
    quorum = services.quorum
    if quorum is None:
        return errors.NotController.code
    if request.cluster_id not in (None, "", services.logs.directories.cluster_id):
        log.warning("%s of cluster %.100r is refused: this is %r", type(request).__name__, request.cluster_id, quorum)
        return errors.InconsistentClusterId.code
    try:
        message = parse(quorum)
    except errors.MalformedMessage as error:
        log.warning("%s is refused: %s", type(request).__name__, error)
        return errors.InvalidRequest.code
    return await quorum.step(message)
