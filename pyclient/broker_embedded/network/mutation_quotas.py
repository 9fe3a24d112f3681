"""Quotas of partitions created and deleted per second (KIP-599): a token bucket for each client. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient import errors
from pyclient.broker_embedded.controller.client_quotas import MUTATIONS, limit_of
from pyclient.broker_embedded.network.quotas import ANONYMOUS, LONGEST_THROTTLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyclient.broker_embedded.controller.client_quotas import Entity, Owner

_MOST_BUCKETS: Final = 10_000  # clients; above it the least recently active one is dropped


class TokenBucket:
    """Tokens that accrue at a rate, up to `saved` seconds of them. The balance may become negative."""

    __slots__ = ("_at", "_rate", "_saved", "_tokens")

    def __init__(self, saved: float) -> None:
        self._saved = saved
        self._tokens: float | None = None  # full
        self._at = self._rate = 0.0

    def take(self, count: float, rate: float, now: float) -> None:
        """Take `count` tokens, also more than there are."""
        self._tokens = self._left(rate, now) - count
        self._at, self._rate = now, rate

    def wait(self, rate: float, now: float) -> float:
        """Return the seconds until the balance is no longer negative, at most `LONGEST_THROTTLE`."""
        return min(max(-self._left(rate, now) / rate, 0.0), LONGEST_THROTTLE)

    def is_full(self, now: float) -> bool:
        """Return True if all is accrued at the rate of the last `take`: the bucket then gives as much as a new one."""
        return self._left(self._rate, now) >= self._rate * self._saved

    def _left(self, rate: float, now: float) -> float:
        most = rate * self._saved
        return most if self._tokens is None else min(self._tokens + (now - self._at) * rate, most)


class MutationQuotas:
    """The quotas of all clients of a node. `quotas` is the live mapping of the metadata image."""

    def __init__(self, quotas: Mapping[Entity, Mapping[str, float]], *, windows: int, seconds: float) -> None:
        self._quotas = quotas
        self._saved = windows * seconds
        self._buckets: dict[Owner, TokenBucket] = {}

    def __repr__(self) -> str:
        return f"<MutationQuotas of {len(self._buckets)} clients>"

    def of_request(self, client_id: str, now: float, *, strict: bool) -> MutationQuota:
        """Return the quota of one request. A `strict` one is refused without tokens; otherwise its client waits."""
        if not self._quotas:
            self._buckets.clear()
        found = limit_of(self._quotas, MUTATIONS, ANONYMOUS, client_id) if self._quotas else None
        if found is None:
            return MutationQuota(None, 0.0, now, strict=strict)
        rate, owner = found
        bucket = self._buckets.pop(owner, None) or TokenBucket(self._saved)
        self._buckets[owner] = bucket  # to the end: the most recently used
        self._forget_full(now)
        return MutationQuota(bucket, rate, now, strict=strict)

    def _forget_full(self, now: float) -> None:
        """Drop the buckets of clients that were idle for long enough: client ids may be new all the time."""
        buckets = self._buckets
        first = next(iter(buckets))
        while len(buckets) > 1 and (len(buckets) > _MOST_BUCKETS or buckets[first].is_full(now)):
            del buckets[first]
            first = next(iter(buckets))


class MutationQuota:
    """The quota of one request."""

    __slots__ = ("_bucket", "_now", "_rate", "_strict", "wait")

    def __init__(self, bucket: TokenBucket | None, rate: float, now: float, *, strict: bool) -> None:
        self._bucket = bucket
        self._rate = rate
        self._now = now
        self._strict = strict
        self.wait = 0.0
        """Seconds for which the client must be throttled."""

    def charge(self, partitions: int) -> None:
        """Count partitions that are created or deleted.

        Raises `ThrottlingQuotaExceeded` in a strict request while the balance is negative.
        """
        bucket = self._bucket
        if bucket is None:
            return
        if self._strict:
            self.wait = bucket.wait(self._rate, self._now)
            if self.wait > 0:
                raise errors.ThrottlingQuotaExceeded(f"too many partitions are made or deleted: wait {self.wait:.3f} s")
        bucket.take(partitions, self._rate, self._now)
        if not self._strict:
            self.wait = bucket.wait(self._rate, self._now)
