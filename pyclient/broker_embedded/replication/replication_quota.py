"""The throttle of replication (KIP-73): bytes per second of the throttled replicas of a leader or of a follower. Pure.

As in Kafka, a node has two of them: as a leader it leaves throttled partitions out of its answers to followers that are
not in sync, as a follower it leaves them out of its fetches. An answer is never cut short: a rate below the size of one
(`replica.fetch.max.bytes`) is kept on the average over the windows only.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ALL_REPLICAS: Final = "*"


def is_listed(listed: Sequence[str], partition: int, node_id: int) -> bool:
    """Return True if a topic's list of throttled replicas (`partition:broker` or `*`) names the one on a broker."""
    return bool(listed) and (f"{partition}:{node_id}" in listed or ALL_REPLICAS in listed)


class ReplicationQuota:
    """The throttled bytes of the last windows (`replication.quota.window.*`), against the rate that `limit` returns.

    Kafka's SimpleRate: the time runs from the start of the oldest window, and is one window at least.
    """

    def __init__(self, limit: Callable[[], int], *, windows: int, seconds: float) -> None:
        self._limit = limit
        self._windows = windows
        self._seconds = seconds
        self._samples: deque[tuple[float, int]] = deque()  # (start of the window, bytes)

    def __repr__(self) -> str:
        return f"<ReplicationQuota limit={self._limit()} bytes={sum(size for _began, size in self._samples)}>"

    def record(self, size: int, now: float) -> None:
        """Count bytes of throttled replicas."""
        if not size:
            return
        self._expire(now)
        if self._samples and now - self._samples[-1][0] < self._seconds:
            began, before = self._samples.pop()
            self._samples.append((began, before + size))
        else:
            self._samples.append((now, size))

    def rate(self, now: float) -> float:
        """Return the bytes per second over the windows."""
        self._expire(now)
        if not self._samples:
            return 0.0
        return sum(size for _began, size in self._samples) / max(now - self._samples[0][0], self._seconds)

    def wait(self, now: float) -> float:
        """Return the seconds until the rate is down to the limit if nothing is added; 0 if it is not above it."""
        limit, rate = self._limit(), self.rate(now)
        if rate <= limit:
            return 0.0
        oldest, size = self._samples[0][0], sum(size for _began, size in self._samples)
        all_expired = self._samples[-1][0] + self._windows * self._seconds - now
        return all_expired if not limit else min(all_expired, oldest + size / limit - now)

    def is_exceeded(self, now: float) -> bool:
        """Return True if throttled replicas have to wait."""
        return self.rate(now) > self._limit()

    def _expire(self, now: float) -> None:
        while self._samples and now - self._samples[0][0] >= self._windows * self._seconds:
            self._samples.popleft()
