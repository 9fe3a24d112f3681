"""The state that the controls of a node work on: the node in its host, the injected faults and the request log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pyclient.broker_embedded.controls.endpoint import WrongState
from pyclient.broker_embedded.faults.faults import Interceptor

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from pyclient.broker_embedded.broker import BrokerNode
    from pyclient.broker_embedded.config.broker_config import BrokerConfig
    from pyclient.broker_embedded.faults.request_log import RequestLog


class Host(Protocol):
    """The host of a node, which starts and stops it. The callbacks in `on_start` are called with each new node."""

    @property
    def config(self) -> BrokerConfig:
        """Return the configuration of the next node that is started."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop of the node."""

    @property
    def node(self) -> BrokerNode | None:
        """Return the running node, None if none runs."""

    @property
    def on_start(self) -> list[Callable[[BrokerNode], None]]:
        """Return the callbacks."""

    @property
    def address(self) -> str:
        """Return the bootstrap.servers for a client on this machine."""

    async def start(self) -> None:
        """Start a node, if none runs."""

    async def stop(self, clean: bool = True) -> None:
        """End the node, if one runs. With `clean=False` as if its process had been killed."""

    def set_addresses(self, links: Mapping[str, str]) -> None:
        """Connect to other addresses from now on, and end the connections to other nodes."""

    def set_controllers(self, controllers: str) -> None:
        """Have the node look for these controllers from its next start on. Raise `ConfigError`."""


class ControlState:
    """The state that the endpoints of a node share. It belongs to the host's loop; it and the faults outlive the node.

    `url` is where the controls are served by HTTP, if they are. `existing` is the interceptor, None until it is needed.
    `resumption` is the timer that ends a pause of limited time.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.url: str | None = None
        self.existing: Interceptor | None = None
        self.resumption: asyncio.TimerHandle | None = None
        host.on_start.append(self._attach)

    @property
    def node(self) -> BrokerNode:
        """Return the running node. Raise `WrongState` if none runs."""
        if self.host.node is None:
            raise WrongState("the broker does not run: start it first")
        return self.host.node

    @property
    def interceptor(self) -> Interceptor:
        """Return the interceptor with the faults and the request log."""
        if self.existing is None:
            self.existing = Interceptor(self.node.services)
        return self.existing

    @property
    def log(self) -> RequestLog:
        """Return the request log. Raise `WrongState` while it is off."""
        if self.existing is None or self.existing.log is None:
            raise WrongState("the request log is off: start it first")
        return self.existing.log

    def _attach(self, node: BrokerNode) -> None:
        if self.existing is not None:
            self.existing.move(node.services)
