"""Runs one node on an event loop, also again after a stop or kill: on the same data, port and clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pyclient.broker_embedded.broker import BrokerNode
from pyclient.broker_embedded.network.listeners import NodeSockets
from pyclient.broker_embedded.network.redirects import Redirects

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable, Mapping

    from pyclient.broker_embedded.config.broker_config import BrokerConfig
    from pyclient.broker_embedded.controls.channel import SocketServer
    from pyclient.broker_embedded.controls.controls import Controls
    from pyclient.broker_embedded.controls.http import Handling


class HttpServer(Protocol):
    """A server of controls by HTTP."""

    def start(self) -> None:
        """Serve on the running loop until `close`."""

    async def close(self) -> None:
        """Stop serving, and end what was created by requests."""


class NewHttpServer(Protocol):
    """Makes a server: the class of one, such as `ControlServer`."""

    def __call__(self, controls: Handling, listener: socket.socket) -> HttpServer:
        """Return a server of these controls on a listening TCP socket, which has not started."""


class NodeHost:
    """The host of a node. The callbacks in `on_start` are called with each node that was started.

    `links` has the addresses to dial in place of other nodes' own ones, both as `host:port`.
    """

    def __init__(
        self, config: BrokerConfig, loop: asyncio.AbstractEventLoop, links: Mapping[str, str] | None = None
    ) -> None:
        self.config = config
        self.loop = loop
        self._redirects = Redirects(links or {})
        self.node: BrokerNode | None = None
        self.on_start: list[Callable[[BrokerNode], None]] = []
        self._shift = 0.0
        self._controls: Controls | None = None

    def __repr__(self) -> str:
        return f"<NodeHost {self.node!r}>"

    @property
    def address(self) -> str:
        """Return the bootstrap.servers for a client on this machine."""
        host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.config.host, self.config.host)
        return f"[{host}]:{self.config.port}" if ":" in host else f"{host}:{self.config.port}"

    @property
    def controls(self) -> Controls:
        """Return the controls of the node; they are imported on first use."""
        if self._controls is None:
            from pyclient.broker_embedded.controls.controls import Controls

            self._controls = Controls(self)
        return self._controls

    async def start(self) -> None:
        """Start a node, if none runs. Raise the errors of `BrokerNode.start`."""
        if self.node is not None:
            return
        node = BrokerNode(self.config, loop=self.loop, sockets=NodeSockets(link=self._redirects))
        node.clock.advance(self._shift)
        await node.start()
        self.config = self.config.at(ports=node.listeners.ports)
        self.node = node
        for call in self.on_start:
            call(node)

    def set_addresses(self, links: Mapping[str, str]) -> None:
        """Connect to other addresses from now on, and end the connections to other nodes."""
        self._redirects.change(links)

    def set_controllers(self, controllers: str) -> None:
        """Have the node look for these controllers from its next start on. Raise `ConfigError`.

        `controllers` is a value of controller.quorum.bootstrap.servers.
        """
        self.config = self.config.with_bootstrap(controllers)

    async def stop(self, clean: bool = True) -> None:
        """End the node, if one runs. With `clean=False` as if its process had been killed."""
        node, self.node = self.node, None
        if node is not None:
            self._shift = node.clock.shift
            await node.stop(clean)


async def serve_http(host: NodeHost, listener: socket.socket, new_server: NewHttpServer | None = None) -> HttpServer:
    """Serve the controls of a host by HTTP on a listening TCP socket, with a `ControlServer` by default."""
    from pyclient.broker_embedded.controls.http import ControlServer, url_of

    server = (new_server or ControlServer)(host.controls, listener)
    server.start()
    host.controls.url = url_of(listener)
    return server


async def serve_calls(host: NodeHost, listener: socket.socket) -> SocketServer:
    """Serve the calls of a `SocketChannel` on a listening Unix socket."""
    from pyclient.broker_embedded.controls.channel import SocketServer

    server = SocketServer(host.controls, listener)
    await server.start()
    return server
