"""The addresses at which a node dials other nodes. They can be changed while it runs: proxies stand between nodes."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from pyclient.config.addresses import format_address, parse_address

if TYPE_CHECKING:
    from collections.abc import Mapping

Link = Callable[[int, str, int], tuple[str, int]]
"""Maps a node id and its address to the address that is dialled: tests put proxies between nodes."""


class LinkUser(Protocol):
    """Has connections to other nodes, such as `NodeChannels`."""

    def link_changed(self) -> None:
        """End the connections to nodes that are dialled at another address now."""


class Redirects:
    """A `Link` that can be changed: the addresses to dial by the nodes' own ones, both as `host:port`."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self.addresses = dict(addresses)
        self.users: weakref.WeakSet[LinkUser] = weakref.WeakSet()

    def __call__(self, _node_id: int, host: str, port: int) -> tuple[str, int]:
        """Return the address to dial for a node's own one."""
        redirected = self.addresses.get(format_address(host, port))
        return (host, port) if redirected is None else parse_address(redirected)

    def change(self, addresses: Mapping[str, str]) -> None:
        """Dial other addresses from now on, and end the connections to former ones."""
        self.addresses = dict(addresses)
        for user in list(self.users):
            user.link_changed()


def direct(_node_id: int, host: str, port: int) -> tuple[str, int]:
    """Dial the node's own address."""
    return host, port
