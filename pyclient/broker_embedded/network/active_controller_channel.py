"""Requests of this node to the active controller, which may be another node or this one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from pyclient import errors

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future, Task
    from collections.abc import Callable

    from pyclient.broker_embedded.controller.quorum import Quorum
    from pyclient.broker_embedded.network.node_channels import NodeChannels

_FIRST_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 0.2
_CHECK_SECONDS: Final = 0.1
"""Seconds between two checks of the quorum's leader while a response is pending."""
_HEARTBEATS: Final = frozenset({"BrokerRegistrationRequest", "BrokerHeartbeatRequest"})
_OF_CLIENTS: Final = "EnvelopeRequest"


class ActiveControllerChannel:
    """Sends requests to the leader of the metadata quorum, which may be this node, and again to its successor.

    Heartbeats, clients' requests and the rest go over connections of their own: none waits for another's commit.
    """

    def __init__(self, loop: AbstractEventLoop, quorum: Quorum, connect: Callable[[str], NodeChannels]) -> None:
        """`connect` makes channels to other nodes; its argument is their purpose."""
        self._loop = loop
        self._quorum = quorum
        self._heartbeats = connect("heartbeat")
        self._forwarding = connect("forwarding")
        self._others = connect("to-controller")
        self._tasks: set[Task[Any]] = set()

    def __repr__(self) -> str:
        return f"<ActiveControllerChannel of node {self._quorum.me.id} requests={len(self._tasks)}>"

    def send(self, request: Any, timeout: float) -> Future[Any]:
        """Send a request. Return a future of the response.

        It fails with `KafkaTimeout` if no active controller has answered within `timeout` seconds.
        """
        task = self._loop.create_task(self._send(request, timeout))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def when_lost(self, callback: Callable[[], object]) -> None:
        """Call `callback` whenever the connection for heartbeats ends."""
        self._heartbeats.on_lost = callback

    def pause(self) -> None:
        """Suspend writes and reads until `resume`."""
        for channels in self._all:
            channels.pause()

    def resume(self) -> None:
        """End the pause."""
        for channels in self._all:
            channels.resume()

    def close(self) -> None:
        """Give up all requests."""
        for task in self._tasks:
            task.cancel()
        for channels in self._all:
            channels.close()

    @property
    def _all(self) -> tuple[NodeChannels, ...]:
        return self._heartbeats, self._forwarding, self._others

    async def _send(self, request: Any, timeout: float) -> Any:
        loop, quorum = self._loop, self._quorum
        name = type(request).__name__
        channels = self._heartbeats if name in _HEARTBEATS else self._others
        if name == _OF_CLIENTS:
            channels = self._forwarding
        deadline = loop.time() + timeout
        pause, why = _FIRST_PAUSE, "none is known"
        while (left := deadline - loop.time()) > 0:
            leader = quorum.leader_id
            address = None if leader is None else quorum.addresses.of(leader)
            if leader is not None and address is not None:
                sent = channels.to(leader, *address).send(request, left)
                try:
                    response = await self._unless_another_leads(sent, leader)
                except errors.ConnectionFailed as error:
                    why = str(error)
                else:
                    if not _is_refused(response):
                        return response
                    why = f"node {leader} is not the active controller"
            await asyncio.sleep(min(pause, max(deadline - loop.time(), 0.0)))
            pause = min(pause * 2, _LONGEST_PAUSE)
        raise errors.KafkaTimeout(f"{name}: no active controller has answered within {timeout:g} s: {why}")

    async def _unless_another_leads(self, sent: Future[Any], leader: int) -> Any:
        """Return the response. Raise `ConnectionFailed` if the quorum has another leader before there is one.

        A node that was cut off or is paused never answers.
        """
        try:
            while not (await asyncio.wait({sent}, timeout=_CHECK_SECONDS))[0]:
                if self._quorum.leader_id not in (leader, None):
                    raise errors.ConnectionFailed(f"node {leader} is no longer the active controller")
            return sent.result()
        finally:
            sent.cancel()  # of no effect once it is done


def _is_refused(response: Any) -> bool:
    """Return True if a node has answered that it is not the active controller, for the whole or for a topic."""
    if getattr(response, "error_code", 0) == errors.NotController.code:
        return True
    topics = getattr(response, "topics", ())
    return any(getattr(topic, "error_code", 0) == errors.NotController.code for topic in topics)
