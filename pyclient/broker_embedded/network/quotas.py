"""Quotas of bytes per second (KIP-13, KIP-219): the bytes of each client, and its throttle time. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.controller.client_quotas import limit_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyclient.broker_embedded.controller.client_quotas import Entity, Owner

ANONYMOUS: Final = "ANONYMOUS"
"""The name of every user, as there is no authentication."""

LONGEST_THROTTLE: Final = (2**31 - 1) / 1000
"""The longest throttle time in seconds: responses have it as an int32 of milliseconds. A tiny quota asks for more."""

_MOST_METERS: Final = 10_000  # clients; above it the least recently active one is dropped


class Meter:
    """Bytes in `windows` time windows of `seconds` each, as Kafka counts them; the oldest windows drop out.

    The time before the first sample counts as idle: a new client may at once use the quota of all windows but one.
    """

    __slots__ = ("_samples", "_seconds", "_windows")

    def __init__(self, windows: int, seconds: float) -> None:
        self._windows = windows
        self._seconds = seconds
        self._samples: deque[list[float]] = deque()  # [start of the window, bytes]

    def add(self, amount: float, now: float) -> None:
        """Count `amount` bytes; a negative amount undoes an earlier one."""
        samples = self._samples
        if not samples or now - samples[-1][0] >= self._seconds:
            samples.append([now, 0.0])
            if len(samples) > self._windows:
                samples.popleft()
        samples[-1][1] += amount

    def is_idle(self, now: float) -> bool:
        """Return True if no window has bytes any more: the meter then says as much as a new one."""
        return not self._samples or now - self._samples[-1][0] >= self._windows * self._seconds

    def excess(self, limit: float, now: float) -> float:
        """Return the seconds until the rate is down to `limit` bytes per second, at most `LONGEST_THROTTLE`.

        0 if it is not above the limit.
        """
        samples = self._samples
        while samples and now - samples[0][0] >= self._windows * self._seconds:
            samples.popleft()
        if not samples:
            return 0.0
        elapsed = now - samples[0][0]
        missing = self._windows - 1 - int(elapsed / self._seconds)
        span = max(elapsed + max(missing, 0) * self._seconds, self._seconds)
        rate = sum(amount for _began, amount in samples) / span
        return min((rate - limit) / limit * span, LONGEST_THROTTLE) if rate > limit else 0.0


class ByteQuotas:
    """The quotas of one kind for all clients of a node. `quotas` is the live mapping of the metadata image."""

    def __init__(self, key: str, quotas: Mapping[Entity, Mapping[str, float]], *, windows: int, seconds: float) -> None:
        self._key = key
        self._quotas = quotas
        self._windows = windows
        self._seconds = seconds
        self._meters: dict[Owner, Meter] = {}

    def __repr__(self) -> str:
        return f"<ByteQuotas {self._key} of {len(self._meters)} clients>"

    def most_at_once(self, client_id: str) -> float | None:
        """Return the maximum bytes of one response, without which a small quota could not be kept; None: no quota."""
        if not self._quotas:
            return None
        found = limit_of(self._quotas, self._key, ANONYMOUS, client_id)
        return None if found is None else found[0] * max(self._windows - 1, 1) * self._seconds

    def charge(self, client_id: str, amount: float, now: float) -> float:
        """Count bytes of a client. Return the seconds that it has to wait."""
        if not self._quotas:
            self._meters.clear()
            return 0.0
        found = limit_of(self._quotas, self._key, ANONYMOUS, client_id)
        if found is None:
            return 0.0
        limit, owner = found
        meter = self._meters.pop(owner, None) or Meter(self._windows, self._seconds)
        self._meters[owner] = meter  # to the end: the most recently used
        self._forget_idle(now)
        meter.add(amount, now)
        return meter.excess(limit, now)

    def _forget_idle(self, now: float) -> None:
        """Drop the meters of clients that have been idle for all windows: client ids may be new all the time."""
        meters = self._meters
        first = next(iter(meters))
        while len(meters) > 1 and (len(meters) > _MOST_METERS or meters[first].is_idle(now)):
            del meters[first]
            first = next(iter(meters))

    def had_nothing(self, client_id: str, now: float) -> bool:
        """Return True if the client was idle in all windows; it may then exceed the quota with one large batch."""
        found = limit_of(self._quotas, self._key, ANONYMOUS, client_id)
        meter = None if found is None else self._meters.get(found[1])
        return meter is None or meter.excess(1e-9, now) == 0

    def refund(self, client_id: str, amount: float, now: float) -> None:
        """Undo a charge for bytes that are not sent."""
        self.charge(client_id, -amount, now)
