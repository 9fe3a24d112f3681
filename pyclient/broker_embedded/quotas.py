"""Quotas of bytes a second (KIP-13, KIP-219): how much a client has had, and how long it is to be left alone. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.controller.client_quotas import limit_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyclient.broker_embedded.controller.client_quotas import Entity, Owner

ANONYMOUS: Final = "ANONYMOUS"
"""The name of every user, as there is no authentication."""

_MOST_METERS: Final = 10_000  # clients that are remembered; the one that was quiet for longest is forgotten


class Meter:
    """Bytes in windows of time, as Kafka counts them: `windows` of them, `seconds` each; the oldest ones drop out.

    A client that has just begun is taken to have been quiet before: it may have what it saved up in all windows but
    one, at once.
    """

    __slots__ = ("_samples", "_seconds", "_windows")

    def __init__(self, windows: int, seconds: float) -> None:
        self._windows = windows
        self._seconds = seconds
        self._samples: deque[list[float]] = deque()  # [when it began, bytes]

    def add(self, amount: float, now: float) -> None:
        """So many bytes now; fewer than none take back what was added."""
        samples = self._samples
        if not samples or now - samples[-1][0] >= self._seconds:
            samples.append([now, 0.0])
            if len(samples) > self._windows:
                samples.popleft()
        samples[-1][1] += amount

    def excess(self, limit: float, now: float) -> float:
        """Seconds after which the rate is down to `limit` bytes a second; 0 where it is not above it."""
        samples = self._samples
        while samples and now - samples[0][0] >= self._windows * self._seconds:
            samples.popleft()
        if not samples:
            return 0.0
        elapsed = now - samples[0][0]
        missing = self._windows - 1 - int(elapsed / self._seconds)
        span = max(elapsed + max(missing, 0) * self._seconds, self._seconds)
        rate = sum(amount for _began, amount in samples) / span
        return (rate - limit) / limit * span if rate > limit else 0.0


class ByteQuotas:
    """The quotas of one direction for all clients of a node. `quotas` is the image's, which changes."""

    def __init__(self, key: str, quotas: Mapping[Entity, Mapping[str, float]], *, windows: int, seconds: float) -> None:
        self._key = key
        self._quotas = quotas
        self._windows = windows
        self._seconds = seconds
        self._meters: dict[Owner, Meter] = {}

    def __repr__(self) -> str:
        return f"<ByteQuotas {self._key} of {len(self._meters)} clients>"

    def most_at_once(self, client_id: str) -> float | None:
        """The bytes that one answer may have, so that a small quota can be kept at all; None: no quota."""
        if not self._quotas:
            return None
        found = limit_of(self._quotas, self._key, ANONYMOUS, client_id)
        return None if found is None else found[0] * max(self._windows - 1, 1) * self._seconds

    def charge(self, client_id: str, amount: float, now: float) -> float:
        """Count bytes of a client; seconds that it has to wait before it may go on."""
        if not self._quotas:
            return 0.0
        found = limit_of(self._quotas, self._key, ANONYMOUS, client_id)
        if found is None:
            return 0.0
        limit, owner = found
        meter = self._meters.pop(owner, None) or Meter(self._windows, self._seconds)
        self._meters[owner] = meter  # at the end: it was used last
        if len(self._meters) > _MOST_METERS:
            del self._meters[next(iter(self._meters))]
        meter.add(amount, now)
        return meter.excess(limit, now)

    def had_nothing(self, client_id: str, now: float) -> bool:
        """Whether the client was quiet in all windows: then it gets what it asks for, even if that is a large batch."""
        found = limit_of(self._quotas, self._key, ANONYMOUS, client_id)
        meter = None if found is None else self._meters.get(found[1])
        return meter is None or meter.excess(1e-9, now) == 0

    def refund(self, client_id: str, amount: float, now: float) -> None:
        """What was charged is not sent after all."""
        self.charge(client_id, -amount, now)
