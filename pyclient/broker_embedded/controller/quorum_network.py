"""The other nodes of the metadata quorum: their addresses, the requests to them, and their answers."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyclient import errors
from pyclient.broker_embedded.controller.quorum_messages import Converter, leader_endpoint_in, response_of
from pyclient.broker_embedded.controller.raft import messages as raft

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Mapping

    from pyclient.broker_embedded.controller.raft.voters import VoterSetHistory
    from pyclient.broker_embedded.environment import NodeEnvironment
    from pyclient.broker_embedded.network.node_channels import NodeChannels

log = logging.getLogger("pyclient.broker_embedded")

_UNREACHABLE_SECONDS: Final = 0.05


class Replies(Protocol):
    """The receiver of the outcomes of requests."""

    def responded(self, node_id: int, request: raft.Request, response: raft.Response) -> None:
        """Take a response."""

    def failed(self, node_id: int, request: raft.Request, *, lost: bool) -> None:
        """Note that a request got no response; `lost` if nothing listens at the node any more."""


class QuorumAddresses:
    """The addresses of the quorum's nodes: those in the log, else in their responses, else in the configuration."""

    def __init__(self, configured: Mapping[int, tuple[str, int]], voters: VoterSetHistory, *, dynamic: bool) -> None:
        self.dynamic = dynamic
        self._configured = configured
        self._voters = voters
        self._learned: dict[int, tuple[str, int]] = {}

    def of(self, node_id: int) -> tuple[str, int] | None:
        """Return a node's address, None if it is not known."""
        if self.dynamic:
            voter = self._voters.newest.voter(node_id)
            if voter is not None and voter.endpoints:
                return voter.endpoints[0].host, voter.endpoints[0].port
            if node_id in self._learned:
                return self._learned[node_id]
        return self._configured.get(node_id)

    def __contains__(self, node_id: object) -> bool:
        return isinstance(node_id, int) and node_id >= 0 and self.of(node_id) is not None

    def learn(self, endpoint: tuple[int, str, int] | None) -> None:
        """Note the address that a message has for the leader."""
        if endpoint is not None and self.dynamic:
            node_id, host, port = endpoint
            self._learned[node_id] = host, port


class QuorumNetwork:
    """Sends the core's requests, and hands the responses to `replies`."""

    def __init__(
        self,
        env: NodeEnvironment,
        channels: NodeChannels,
        addresses: QuorumAddresses,
        converter: Converter,
        replies: Replies,
    ) -> None:
        self.channels = channels
        self._env = env
        self._addresses = addresses
        self._converter = converter
        self._replies = replies
        self._timeout = env.config.seconds("controller.quorum.request.timeout.ms")
        self._closed = False
        self.refusal: errors.InconsistentClusterId | None = None
        """Set while the other nodes say that this node belongs to another cluster."""

    def close(self) -> None:
        """Send no more, and report nothing."""
        self._closed = True
        self.channels.close()

    def send(self, node_id: int, request: raft.Request) -> None:
        """Send a request; its outcome is reported later."""
        address = self._addresses.of(node_id)
        if address is None:
            self._fail_later(node_id, request)
            return
        wait = request.max_wait if isinstance(request, raft.Fetch | raft.UpdateVoter) else 0.0
        sent = self.channels.to(node_id, *address).send(self._converter.request(request), self._timeout + wait)
        sent.add_done_callback(partial(self._done, node_id, request))

    def _done(self, node_id: int, request: raft.Request, done: Future[Any]) -> None:
        error = None if done.cancelled() else done.exception()
        if self._closed or done.cancelled():
            return
        if error is None:
            try:
                self._addresses.learn(leader_endpoint_in(done.result()))
                response = response_of(done.result(), self._addresses)
                self._note_refusal(node_id, response)
                self._replies.responded(node_id, request, response)
                return
            except (errors.ProtocolError, ValueError) as refused:
                log.error("node %d: the answer of node %d is refused: %s", self._env.node_id, node_id, refused)
        elif isinstance(error, errors.ConnectionFailed):
            if isinstance(request, raft.Fetch):
                self._replies.failed(node_id, request, lost=True)
            self._fail_later(node_id, request)
            return
        self._replies.failed(node_id, request, lost=False)

    def _note_refusal(self, node_id: int, response: raft.Response) -> None:
        if response.error != errors.InconsistentClusterId.code:
            self.refusal = None
        elif self.refusal is None:
            self.refusal = errors.InconsistentClusterId(
                f"the data directory is of cluster {self._converter.cluster_id}, controller {node_id} of another one"
            )
            log.error("node %d cannot take part in the metadata quorum: %s", self._env.node_id, self.refusal)

    def _fail_later(self, node_id: int, request: raft.Request) -> None:
        """Report a failure a moment later: an unreachable node is asked a few times a second, no more."""
        self._env.schedule(_UNREACHABLE_SECONDS, partial(self._replies.failed, node_id, request, lost=False))
