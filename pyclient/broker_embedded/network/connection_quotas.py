"""Connection quotas: limits of the number of connections (KIP-402) and of the rate of new ones (KIP-612).

At a limit of the whole broker the listener accepts nothing until there is room; new connections wait in the backlog. A
connection above a limit of its address is closed: at once above the number, after the throttle time above the rate.
Of the connections of an address that have not authenticated themselves the oldest is closed above a number.
"""

from __future__ import annotations

import logging
import socket
from collections import Counter
from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.controller.client_quotas import CONNECTIONS, IP
from pyclient.broker_embedded.network.quotas import Meter
from pyclient.broker_embedded.network.server import address_of
from pyclient.config.options import INT_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyclient.broker_embedded.config.broker_config import BrokerConfig
    from pyclient.broker_embedded.environment import NodeEnvironment
    from pyclient.broker_embedded.network.descriptors import FileDescriptors
    from pyclient.broker_embedded.network.listeners import BoundListener, Listener
    from pyclient.broker_embedded.network.server import BrokerConnection
    from pyclient.broker_embedded.scheduling.timers import Timer

log = logging.getLogger("pyclient.broker_embedded")

MOST_OF_AN_ADDRESS: Final = 100  # connections whose clients have not authenticated themselves
_MOST_ADDRESSES: Final = 10_000  # whose rates are kept; above it the least recently connected one is dropped
_NEGLIGIBLE_WAIT: Final = 1e-6  # seconds
_BUFFER_OPTIONS: Final = (
    (socket.SO_SNDBUF, "socket.send.buffer.bytes"),
    (socket.SO_RCVBUF, "socket.receive.buffer.bytes"),
)


class Rate:
    """Limit of events per second, as Kafka counts: every event counts; one above the limit waits, a window at most."""

    def __init__(self, windows: int, seconds: float) -> None:
        self._meter = Meter(windows, seconds)
        self._seconds = seconds

    def count(self, limit: float, now: float, amount: float = 1.0) -> float:
        """Count `amount` events. Return the seconds that the last of them has to wait."""
        self._meter.add(amount, now)
        return min(self._meter.excess(limit, now), self._seconds)

    def take_back(self, now: float) -> None:
        """Undo the count of one event."""
        self._meter.add(-1.0, now)


class UnauthenticatedClients:
    """The connections on listeners with SASL or TLS that have not logged in, or not ended their TLS handshake.

    Above `MOST_OF_AN_ADDRESS` the oldest of the address is closed, not the new one: a client that logs in at once is
    served although another process of its machine opens connections without a login.
    """

    def __init__(self) -> None:
        self._by_address: dict[str, dict[int, BrokerConnection]] = {}

    def __repr__(self) -> str:
        count = sum(map(len, self._by_address.values()))
        return f"<UnauthenticatedClients {count} of {len(self._by_address)} addresses>"

    def add(self, connection: BrokerConnection) -> None:
        """Count a new connection, and close the oldest one if there are too many."""
        if connection.is_known:
            return
        found = self._by_address.setdefault(connection.address, {})
        found[connection.number] = connection
        if len(found) <= MOST_OF_AN_ADDRESS:
            return
        for each in [each for each in found.values() if each.is_known]:
            del found[each.number]
        if len(found) > MOST_OF_AN_ADDRESS:
            oldest = found.pop(next(iter(found)))
            log.warning(
                "closing a connection of %s: the oldest of more than %d that have not authenticated themselves",
                connection.address,
                MOST_OF_AN_ADDRESS,
            )
            oldest.close()

    def forget(self, connection: BrokerConnection) -> None:
        """Forget a closed connection."""
        found = self._by_address.get(connection.address)
        if found is not None and found.pop(connection.number, None) is not None and not found:
            del self._by_address[connection.address]


class ConnectionQuotas:
    """Admit or close the sockets that listeners accept, and keep the connections.

    `connect` makes the connection of an admitted socket, of which it gets the number. `NodeListeners` sets `listeners`.
    """

    def __init__(
        self,
        env: NodeEnvironment,
        descriptors: FileDescriptors,
        connect: Callable[[socket.socket, int, BoundListener], BrokerConnection],
    ) -> None:
        self.listeners: list[Listener] = []
        self.connections: dict[int, BrokerConnection] = {}
        self.addresses: Counter[str] = Counter()
        """Number of connections per address."""
        self._unauthenticated = UnauthenticatedClients()
        self._env = env
        self._descriptors = descriptors
        self._connect = connect
        self._rate = self._new_rate()
        self._rates: dict[str, Rate] = {}
        self._held: tuple[socket.socket, BoundListener, float] | None = None
        """The next socket, its listener, and when it may be served."""
        self._turn: Timer | None = None
        self._turned_away: dict[socket.socket, Timer] = {}
        self._numbers = 0

    def __repr__(self) -> str:
        state = "holding" if self._held is not None else "open"
        return f"<ConnectionQuotas {state} turned_away={len(self._turned_away)} {self._unauthenticated!r}>"

    @property
    def turned_away(self) -> int:
        """Return the number of sockets that are closed when their throttle time is over."""
        return len(self._turned_away)

    def take(self, sock: socket.socket, bound: BoundListener) -> None:
        """Serve an accepted socket, or hold it and pause the listeners until it may be served."""
        now = self._env.clock.monotonic()
        limit = self._env.config.integer("max.connection.creation.rate")
        wait = 0.0 if limit == INT_MAX else self._rate.count(limit, now)
        self._held = sock, bound, now + wait
        self._try()

    def take_node(self, sock: socket.socket, bound: BoundListener) -> None:
        """Serve a socket of the listener for controllers: the quotas are for clients."""
        self._serve(sock, address_of(sock), bound)

    def forget(self, connection: BrokerConnection) -> bool:
        """Release what is held for a closed connection. Return False if it was not admitted."""
        if self.connections.pop(connection.number, None) is None:
            return False
        self._unauthenticated.forget(connection)
        self.addresses[connection.address] -= 1
        if not self.addresses[connection.address]:
            del self.addresses[connection.address]
        self._check_room()
        return True

    def _check_room(self) -> None:
        """Serve a held socket if there is room for it now; accept again if a file descriptor is free."""
        self._descriptors.connections_are(len(self.connections))
        for listener in self.listeners:
            listener.retry()
        if self._held is not None and self._turn is None:
            self._turn = self._env.schedule(0.0, self._try)

    def limits_changed(self) -> None:
        """Apply changed options: close the longest idle of too many connections, or admit where there is room."""
        connections = list(self.connections.values())
        surplus = len(connections) - self._env.config.integer("max.connections")
        if surplus > 0:
            for connection in sorted(connections, key=lambda each: each.last_active)[:surplus]:
                log.info("closing %r: above max.connections", connection)
                connection.close()
        self._check_room()

    def close(self) -> None:
        """Close the sockets that are not served yet."""
        if self._turn is not None:
            self._turn.cancel()
        if self._held is not None:
            self._held[0].close()
            self._held = None
        for sock, timer in self._turned_away.items():
            timer.cancel()
            sock.close()
        self._turned_away.clear()

    def _try(self) -> None:
        self._turn = None
        if self._held is None:
            return
        env = self._env
        sock, bound, due = self._held
        wait = due - env.clock.monotonic()
        most = min(env.config.integer("max.connections"), self._descriptors.most_connections)
        is_full = len(self.connections) >= most
        if wait > _NEGLIGIBLE_WAIT or is_full:
            if wait > _NEGLIGIBLE_WAIT:
                self._turn = env.schedule(wait, self._try)
            else:
                log.warning(
                    "not accepting connections: there are %d, max.connections=%d, file descriptors allow %d",
                    len(self.connections),
                    env.config.integer("max.connections"),
                    self._descriptors.most_connections,
                )
            for listener in self.listeners:
                listener.hold()
            return
        self._held = None
        self._admit(sock, bound)
        for listener in self.listeners:
            listener.release()

    def _admit(self, sock: socket.socket, bound: BoundListener) -> None:
        address = address_of(sock)
        wait = self._wait_of(address)
        if wait > 0:
            log.warning("closing a connection of %s: above its rate of connections (%s)", address, CONNECTIONS)
            self._turned_away[sock] = self._env.schedule(wait, lambda: self._turn_away(sock))
            return
        limit = connections_of(self._env.config, address)
        if self.addresses[address] >= limit:
            log.warning("closing a connection of %s: max.connections.per.ip=%d reached", address, limit)
            sock.close()
            return
        self._serve(sock, address, bound)

    def _serve(self, sock: socket.socket, address: str, bound: BoundListener) -> None:
        self._numbers += 1
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # detects a peer whose machine is gone
            for option, name in _BUFFER_OPTIONS:
                if (size := self._env.config.integer(name)) > 0:
                    sock.setsockopt(socket.SOL_SOCKET, option, size)
            self.connections[self._numbers] = connection = self._connect(sock, self._numbers, bound)
            self.addresses[address] += 1
            self._descriptors.connections_are(len(self.connections))
            self._unauthenticated.add(connection)
        except OSError as error:  # gone before it was served
            log.info("a connection ended at once: %s", error)
            sock.close()

    def _wait_of(self, address: str) -> float:
        """Return for how many seconds an address is above its rate; 0 if it has no limit."""
        quotas = self._env.image.client_quotas
        own = quotas.get(((IP, address),), {}).get(CONNECTIONS)
        limit = own if own is not None else quotas.get(((IP, None),), {}).get(CONNECTIONS)
        if limit is None:
            return 0.0
        rate = self._rates.pop(address, None) or self._new_rate()
        self._rates[address] = rate
        if len(self._rates) > _MOST_ADDRESSES:
            del self._rates[next(iter(self._rates))]
        now = self._env.clock.monotonic()
        wait = rate.count(limit, now)
        if wait > 0:
            rate.take_back(now)  # it is not accepted
        return wait

    def _turn_away(self, sock: socket.socket) -> None:
        if self._turned_away.pop(sock, None) is not None:
            sock.close()

    def _new_rate(self) -> Rate:
        config = self._env.config
        return Rate(config.integer("quota.window.num"), config.integer("quota.window.size.seconds"))


def connections_of(config: BrokerConfig, address: str) -> int:
    """Return how many connections an address may have."""
    for override in (config.text("max.connections.per.ip.overrides") or "").split(","):
        name, separator, count = override.strip().rpartition(":")
        if separator and name.strip("[] ") == address and count.strip().isdigit():
            return int(count)
    return config.integer("max.connections.per.ip")
