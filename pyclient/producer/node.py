"""Node: the sender's state of a broker, and the number of connections over which its partitions are spread.

Kafka handles the requests of one connection one at a time, so a producer with more to send would wait for the broker
while most of that is idle. Each partition uses one connection, so its order is kept.
"""

from __future__ import annotations

from typing import Final

PRESSED: Final = 40
"""Responses after which partitions still had to wait for the next one: then one more connection is opened."""


class Node:
    """Requests in flight to one broker: at most `depth` on each of at most `most` connections.

    `BrokerLinks` opens the connections; `spread` sets how many there are, `wanted` is how many there should be.
    Connections are numbered from 0. Times are monotonic seconds.
    """

    __slots__ = (
        "_answered", "_depth", "_most", "_others", "_pressed", "in_flight", "stalled_since", "throttled_until", "width",
    )  # fmt: skip

    def __init__(self, depth: int, most: int) -> None:
        self.in_flight = 0  # on all connections
        self.throttled_until = 0.0
        self.stalled_since = float("inf")
        self.width = 1  # connections over which its partitions are spread
        self._depth = depth
        self._most = most
        self._others = [0] * (most - 1)  # in flight on each connection after the first
        self._pressed = 0
        self._answered = False  # a response came since the last `looked`; without one it counts nothing

    def __repr__(self) -> str:
        return f"<Node in_flight={self.in_flight} width={self.width}>"

    def in_flight_on(self, link: int) -> int:
        """Return the number of requests in flight on this connection."""
        return self._others[link - 1] if link else self.in_flight - sum(self._others)

    def is_full(self, link: int) -> bool:
        """Return True if this connection has its maximum of requests in flight."""
        return self.in_flight_on(link) >= self._depth

    def began(self, link: int) -> None:
        """Count a request that is sent on this connection."""
        self.in_flight += 1
        if link:
            self._others[link - 1] += 1

    def ended(self, link: int) -> None:
        """Count a request on this connection as ended."""
        self.in_flight -= 1
        if link:
            self._others[link - 1] -= 1
        self._answered = True

    def looked(self, left: int) -> None:
        """Update the load after a drain that left `left` partitions with more to send."""
        if not left:
            self._pressed = max(0, self._pressed - 1)
        elif self._answered and left > self.width and any(map(self.is_full, range(self.width))):
            self._pressed += 1
            self._answered = False

    def rested(self) -> None:
        """Return to one connection, as nothing is in flight and nothing waits."""
        self.spread(1)
        self._pressed = 0

    @property
    def wanted(self) -> int:
        """The number of connections that the load calls for."""
        return min(self.width + 1, self._most) if self._pressed >= PRESSED else self.width

    def spread(self, width: int) -> None:
        """Set the number of connections in use."""
        if width != self.width:
            self.width = width
            self._pressed = 0
