"""A broker as the sender sees it, and over how many connections its partitions are spread.

Kafka handles the requests of one connection one at a time: whoever has more to send than that takes waits for the
broker while most of it is idle. Each partition keeps to one connection, so its order is what it is with one.
"""

from __future__ import annotations

from typing import Final

PRESSED: Final = 40
"""Answers behind which partitions are left that have to wait for the next: then one more connection is worth it."""


class Node:
    """What is under way at one broker: at most `depth` requests on each of at most `most` connections.

    Whoever holds the connections says how many there are (`spread`); `wanted` is how many there should be.
    Connections are numbered from 0. Times are monotonic seconds.
    """

    __slots__ = (
        "_answered", "_depth", "_most", "_others", "_pressed", "in_flight", "stalled_since", "throttled_until", "width",
    )  # fmt: skip

    def __init__(self, depth: int, most: int) -> None:
        self.in_flight = 0  # on all connections
        self.throttled_until = 0.0
        self.stalled_since = float("inf")
        self.width = 1  # connections that its partitions are spread over
        self._depth = depth
        self._most = most
        self._others = [0] * (most - 1)  # in flight on those behind the first
        self._pressed = 0
        self._answered = False  # since the last look: looks that nothing came between say nothing new

    def __repr__(self) -> str:
        return f"<Node in_flight={self.in_flight} width={self.width}>"

    def in_flight_on(self, link: int) -> int:
        """How many requests wait for an answer on this connection."""
        return self._others[link - 1] if link else self.in_flight - sum(self._others)

    def is_full(self, link: int) -> bool:
        """Whether no more may be under way on this connection."""
        return self.in_flight_on(link) >= self._depth

    def began(self, link: int) -> None:
        """A request goes out on this connection."""
        self.in_flight += 1
        if link:
            self._others[link - 1] += 1

    def ended(self, link: int) -> None:
        """A request on this connection has ended."""
        self.in_flight -= 1
        if link:
            self._others[link - 1] -= 1
        self._answered = True

    def looked(self, left: int) -> None:
        """All was taken that may go out now, and so many partitions have more."""
        if not left:
            self._pressed = max(0, self._pressed - 1)
        elif self._answered and left > self.width and any(map(self.is_full, range(self.width))):
            self._pressed += 1
            self._answered = False

    def rested(self) -> None:
        """Nothing is under way and nothing waits: one connection will do, until it is too little again."""
        self.spread(1)
        self._pressed = 0

    @property
    def wanted(self) -> int:
        """How many connections would be right."""
        return min(self.width + 1, self._most) if self._pressed >= PRESSED else self.width

    def spread(self, width: int) -> None:
        """So many connections are there now."""
        if width != self.width:
            self.width = width
            self._pressed = 0
