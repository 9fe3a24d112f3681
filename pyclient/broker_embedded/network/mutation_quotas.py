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

    __slots__ = ("_at", "_saved", "_tokens")

    def __init__(self, saved: float) -> None:
        self._saved = saved
        self._tokens: float | None = None  # full
        self._at = 0.0

    def take(self, count: float, rate: float, now: float) -> None:
        """Take `count` tokens, also more than there are."""
        self._tokens = self._left(rate, now) - count
        self._at = now

    def wait(self, rate: float, now: float) -> float:
        """Return the seconds until the balance is no longer negative, at most `LONGEST_THROTTLE`."""
        return min(max(-self._left(rate, now) / rate, 0.0), LONGEST_THROTTLE)

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
        found = limit_of(self._quotas, MUTATIONS, ANONYMOUS, client_id) if self._quotas else None
        if found is None:
            return MutationQuota(None, 0.0, now, strict=strict)
        rate, owner = found
        bucket = self._buckets.pop(owner, None) or TokenBucket(self._saved)
        self._buckets[owner] = bucket  # to the end: the most recently used
        if len(self._buckets) > _MOST_BUCKETS:
            del self._buckets[next(iter(self._buckets))]
        return MutationQuota(bucket, rate, now, strict=strict)


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
