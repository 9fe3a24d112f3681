"""Requests of transactions that arrive late: instead of in time, or a second time after they were answered.

A node may process a request long after the client gave up its connection, and sent it again (nemesis N4).
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Final

from tests.simulation.cluster import PORT

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.network import SimulatedSocket
    from tests.simulation.world import Process

PRODUCE: Final = 0
ADD_PARTITIONS: Final = 24
END: Final = 26
MARKERS: Final = 27
OFFSETS: Final = 28
_REPEATED: Final = (ADD_PARTITIONS, END, MARKERS, MARKERS, OFFSETS)
"""Requests that may arrive twice where each transaction has its epoch, mostly markers, of which there are many."""

_KEPT: Final = 20
_LENGTH: Final = struct.Struct(">ih")

Sent = tuple[str, bytes]
"""The host of a node, and the request."""


class LateRequests:
    """Keeps requests on their way to nodes, and delivers them later.

    Before transaction version 2 several transactions have the same epoch, and a second EndTxn may end the wrong one:
    only writes come late then, in place of those that were sent.
    """

    def __init__(self, cluster: Cluster, *, repeats: bool) -> None:
        self.count = 0
        self.held = 0
        """The requests that were sent and have not arrived."""
        self._cluster = cluster
        self._keys = _REPEATED if repeats else ()
        self._sent: dict[int, deque[Sent]] = {key: deque(maxlen=_KEPT) for key in _REPEATED}
        self._wanted: int | None = None
        self._process: Process | None = None
        cluster.network.on_sent = self._on_sent

    def hold(self) -> None:
        """Let the next request of a random kind arrive late; its connection breaks, so that the client retries."""
        self._wanted = self._cluster.world.rng.choice((*self._keys, PRODUCE))

    def repeat(self) -> None:
        """Deliver a request again that was sent some time ago."""
        rng = self._cluster.world.rng
        known = [key for key in self._keys if self._sent[key]]
        if known:
            self._deliver(rng.choice(self._sent[rng.choice(known)]))

    def _on_sent(self, sock: SimulatedSocket, data: bytes) -> bool:
        host, port = sock.getpeername()
        if port != PORT or len(data) < _LENGTH.size:
            return False
        size, key = _LENGTH.unpack_from(data)
        if size + 4 != len(data):  # a part of a request, or several
            return False
        if key == self._wanted:
            self._wanted = None
            rng = self._cluster.world.rng
            self.held += 1
            self._cluster.world.after(rng.choice((0.05, 0.5, 3.0)) * rng.random(), lambda: self._arrives((host, data)))
            return True
        if key in self._sent:
            self._sent[key].append((host, data))
        return False

    def _arrives(self, sent: Sent) -> None:
        self.held -= 1
        self._deliver(sent)

    def _deliver(self, sent: Sent) -> None:
        if self._process is None:
            self._process = self._cluster.client("late requests")
        host, data = sent
        if self._cluster.network.deliver(self._process, host, PORT, data):
            self.count += 1
            self._cluster.world.note(f"a request of API {_LENGTH.unpack_from(data)[1]} reaches {host} late")
