"""Connections from this node to other nodes of its cluster: one for each address, opened again when it is lost."""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from pyclient.broker_embedded.network.redirects import Redirects, direct
from pyclient.config import ClientConfig, format_address
from pyclient.errors import ConnectionFailed, KafkaError, KafkaTimeout
from pyclient.net.connection import Connection
from pyclient.net.stream import FrameStream
from pyclient.net.surroundings import SURROUNDINGS
from pyclient.protocol.fields import Response

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future, Task, TimerHandle
    from collections.abc import Callable, Mapping

    from pyclient.broker_embedded.network.redirects import Link
    from pyclient.net.sasl.authentication import Authenticator
    from pyclient.protocol.fields import Request

R = TypeVar("R", bound=Response)

_SETUP_MS: Final = 2_000
_FIRST_BACKOFF: Final = 0.02
_LONGEST_BACKOFF: Final = 0.5
_LARGEST_RESPONSE: Final = 512 << 20


class Unsent(NamedTuple):
    """A request that waits for the connection."""

    request: Request[Any]
    future: Future[Any]
    deadline: float
    timer: TimerHandle


class NodeChannel:
    """Sends requests to one node. They are pipelined, and answered in their order.

    The versions are negotiated once for each connection; the highest common one is used. A failure to connect makes
    requests fail at once until a pause is over, which doubles with each failure up to half a second.
    """

    def __init__(self, channels: NodeChannels, node_id: int, host: str, port: int) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self._channels = channels
        self._loop = channels.loop
        self._connection: Connection | None = None
        self._dialled = host, port
        self._opening: Task[None] | None = None
        self._unsent: list[Unsent] = []
        self._versions: dict[type[Request[Any]], int] = {}
        self._backoff = 0.0
        self._not_before = float("-inf")
        self._failure: Exception | None = None
        self._closed = False
        self._paused = False

    def __repr__(self) -> str:
        state = "connected" if self.connected else "connecting" if self._opening is not None else "not connected"
        return f"<NodeChannel to node {self.node_id} at {self._address} {state} unsent={len(self._unsent)}>"

    @property
    def connected(self) -> bool:
        """True while a connection is open."""
        return self._connection is not None and not self._connection.closed

    def send(self, request: Request[R], timeout: float) -> Future[R]:
        """Send a request. Return a future of the response.

        It fails with `ConnectionFailed` if there is no connection or it ends before the response, with `KafkaTimeout`
        after `timeout` seconds, which ends the connection, with `UnsupportedVersion` if the node does not serve the
        API, and with `ProtocolError` for an invalid response.
        """
        if not self._closed and self._connection is not None and not self._connection.closed:
            return self._submit(self._connection, request, timeout)
        future: Future[R] = self._loop.create_future()
        now = self._loop.time()
        if self._closed:
            future.set_exception(ConnectionFailed(f"{self._label}: this node has closed its connections"))
        elif self._opening is None and now < self._not_before:
            future.set_exception(ConnectionFailed(f"{self._label}: no connection yet: {self._failure}"))
        else:
            timer = self._loop.call_later(timeout, self._expired, request, future, timeout)
            self._unsent.append(Unsent(request, future, now + timeout, timer))
            if self._opening is None:
                self._opening = self._loop.create_task(self._open())
        return future

    def pause(self) -> None:
        """Suspend writes and reads until `resume`, as a process that is stopped."""
        self._paused = True
        if self._connection is not None and isinstance(self._connection.stream, FrameStream):
            self._connection.stream.freeze()

    def resume(self) -> None:
        """End the pause."""
        self._paused = False
        if self._connection is not None and isinstance(self._connection.stream, FrameStream):
            self._connection.stream.thaw()

    def link_changed(self) -> None:
        """End the connection, with its requests, if the node is dialled at another address now."""
        if self._connection is not None and self._dialled != self._link:
            self._connection.end("the node has another address")

    def close(self) -> None:
        """End the connection; requests without a response fail with `ConnectionFailed`."""
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
        if self._connection is not None:
            self._connection.end("this node closes its connections")
        self._fail_unsent(ConnectionFailed(f"{self._label}: this node has closed its connections"))

    async def _open(self) -> None:
        try:
            connection = await self._dial()
        except (KafkaError, OSError) as error:
            self._backoff = min(max(self._backoff * 2, _FIRST_BACKOFF), _LONGEST_BACKOFF)
            self._not_before = self._loop.time() + self._backoff
            self._failure = error
            self._fail_unsent(error)
            return
        finally:
            self._opening = None
        if self._closed:
            connection.end("this node closes its connections")
            return
        self._backoff = 0.0
        self._versions.clear()
        self._connection = connection
        connection.on_closed.append(lambda _ended: self._lost())
        if self._paused:
            self.pause()
        waiting, self._unsent = self._unsent, []
        now = self._loop.time()
        for each in waiting:
            each.timer.cancel()
            if not each.future.done():
                sent = self._submit(connection, each.request, max(each.deadline - now, 0.001))
                sent.add_done_callback(partial(_pass_on, each.future))

    async def _dial(self) -> Connection:
        """Return a new connection to the address to dial, which may change meanwhile."""
        while True:
            self._dialled = host, port = self._link
            connection = await Connection.open(
                host,
                port,
                config=self._channels.config,
                clock=SURROUNDINGS.get().clock,
                node_id=self.node_id,
                authenticator=self._channels.authenticator(),
            )
            if self._dialled == self._link:
                return connection
            connection.end("the node has another address")

    def _lost(self) -> None:
        """Report that the connection ended, unless this node ended it."""
        if not self._closed:
            self._channels.on_lost()

    def _submit(self, connection: Connection, request: Request[R], timeout: float) -> Future[R]:
        kind = type(request)
        try:
            version = self._versions.get(kind)
            if version is None:
                version = self._versions[kind] = connection.version_for(kind, kind.versions[1])
            return connection.submit(request, version=version, timeout=timeout)
        except KafkaError as error:
            future: Future[R] = self._loop.create_future()
            future.set_exception(error)
            return future

    def _expired(self, request: Request[Any], future: Future[Any], timeout: float) -> None:
        self._unsent = [each for each in self._unsent if each.future is not future]
        if not future.done():
            text = f"{self._label}: no connection for {type(request).name} within {timeout:g} s"
            future.set_exception(KafkaTimeout(text))

    def _fail_unsent(self, error: Exception) -> None:
        waiting, self._unsent = self._unsent, []
        for each in waiting:
            each.timer.cancel()
            if not each.future.done():
                each.future.set_exception(ConnectionFailed(f"{self._label}: {error}"))

    @property
    def _link(self) -> tuple[str, int]:
        """The address to dial."""
        return self._channels.link(self.node_id, self.host, self.port)

    @property
    def _address(self) -> str:
        return format_address(self.host, self.port)

    @property
    def _label(self) -> str:
        return f"{self._address} (node {self.node_id})"


def _pass_on(future: Future[Any], done: Future[Any]) -> None:
    """Complete a future as another one was."""
    if done.cancelled():
        future.cancel()
        return
    error = done.exception()
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(done.result())


class NodeChannels:
    """The channels of one purpose from this node to others, made when they are first used.

    A node answers the requests of a connection one after the other, so that requests which must not wait for each other
    (a heartbeat, a Fetch that is held) go over channels of different `NodeChannels`.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        client_id: str,
        link: Link = direct,
        login: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """`login` has the options of TLS and SASL of a client."""
        self.loop = loop
        self.link = link
        self.config = ClientConfig(
            bootstrap_servers=("localhost:9092",),  # required, and not used: every channel has its own address
            client_id=client_id,
            socket_connection_setup_timeout_ms=_SETUP_MS,
            receive_message_max_bytes=_LARGEST_RESPONSE,
            **login,
        )
        self.on_lost: Callable[[], object] = lambda: None
        """Called when a connection has ended."""
        self._authenticator: Authenticator | None = None
        self._channels: dict[tuple[int, str, int], NodeChannel] = {}
        self._paused = False
        self._closed = False
        if isinstance(link, Redirects):
            link.users.add(self)

    def __repr__(self) -> str:
        return f"<NodeChannels of {self.config.client_id} {list(self._channels.values())}>"

    def to(self, node_id: int, host: str, port: int) -> NodeChannel:
        """Return the channel to a node at an address."""
        key = node_id, host, port
        channel = self._channels.get(key)
        if channel is None:
            for other in [each for each in self._channels if each[0] == node_id]:
                self._channels.pop(other).close()  # the node has moved
            channel = self._channels[key] = NodeChannel(self, node_id, host, port)
            if self._paused:
                channel.pause()
            if self._closed:
                channel.close()
        return channel

    def authenticator(self) -> Authenticator | None:
        """Return what logs in on all connections, which share its token; None without SASL."""
        if self._authenticator is None and self.config.uses_sasl:
            from pyclient.net.sasl.authentication import Authenticator  # few clusters need it

            self._authenticator = Authenticator(self.config, SURROUNDINGS.get().clock)
        return self._authenticator

    def pause(self) -> None:
        """Suspend writes and reads until `resume`."""
        self._paused = True
        for channel in self._channels.values():
            channel.pause()

    def resume(self) -> None:
        """End the pause."""
        self._paused = False
        for channel in self._channels.values():
            channel.resume()

    def link_changed(self) -> None:
        """End the connections, with their requests, to nodes that are dialled at another address now."""
        for channel in self._channels.values():
            channel.link_changed()

    def close(self) -> None:
        """Close all channels, and those asked for later."""
        self._closed = True
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
