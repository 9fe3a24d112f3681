"""Quotas of each user and client id, and the throttle time. Pure.

Bytes and request time per second (KIP-13, KIP-219) are counted in time windows, partitions that are created and deleted
(KIP-599) with a token bucket.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from pyclient import errors
from pyclient.broker_embedded.controller.client_quotas import FETCH, MUTATIONS, PRODUCE, REQUESTS, limit_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyclient.broker_embedded.config.broker_config import BrokerConfig
    from pyclient.broker_embedded.controller.client_quotas import Entity, Owner

Client = tuple[str, str]
"""The name of the authenticated user, `ANONYMOUS` without a login, and the client id of a request."""

LONGEST_THROTTLE: Final = (2**31 - 1) / 1000
"""The longest throttle time in seconds: responses have it as an int32 of milliseconds. A tiny quota asks for more."""

_MOST_METERS: Final = 10_000  # clients; above it the least recently active one is dropped
_MOST_BUCKETS: Final = 10_000  # clients; above it the least recently active one is dropped


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

    def most_at_once(self, client: Client) -> float | None:
        """Return the maximum bytes of one response, without which a small quota could not be kept; None: no quota."""
        found = limit_of(self._quotas, self._key, *client)
        return None if found is None else found[0] * max(self._windows - 1, 1) * self._seconds

    def charge(self, client: Client, amount: float, now: float) -> float:
        """Count bytes of a client. Return the seconds that it has to wait."""
        if not self._quotas:
            self._meters.clear()
            return 0.0
        found = limit_of(self._quotas, self._key, *client)
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

    def had_nothing(self, client: Client, now: float) -> bool:
        """Return True if the client was idle in all windows; it may then exceed the quota with one large batch."""
        found = limit_of(self._quotas, self._key, *client)
        meter = None if found is None else self._meters.get(found[1])
        return meter is None or meter.excess(1e-9, now) == 0

    def refund(self, client: Client, amount: float, now: float) -> None:
        """Undo a charge for bytes that are not sent."""
        self.charge(client, -amount, now)


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

    def of_request(self, client: Client, now: float, *, strict: bool) -> MutationQuota:
        """Return the quota of one request. A `strict` one is refused without tokens; otherwise its client waits."""
        if not self._quotas:
            self._buckets.clear()
        found = limit_of(self._quotas, MUTATIONS, *client) if self._quotas else None
        if found is None:
            return MutationQuota(None, 0.0, now, strict=strict)
        rate, owner = found
        return MutationQuota(partial(self._bucket, owner), rate, now, strict=strict)

    def _bucket(self, owner: Owner, now: float) -> TokenBucket:
        """Return the bucket of a client that is about to take tokens; before that no bucket is kept for it."""
        bucket = self._buckets.pop(owner, None) or TokenBucket(self._saved)
        self._buckets[owner] = bucket  # to the end: the most recently used
        self._forget_full(now)
        return bucket

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

    def __init__(self, bucket: Callable[[float], TokenBucket] | None, rate: float, now: float, *, strict: bool) -> None:
        """`bucket` returns the client's bucket at a time, None without a quota."""
        self._bucket = bucket
        self._rate = rate
        self._now = now
        self._strict = strict
        self.wait = 0.0
        """Seconds for which the client must be throttled."""

    def charge(self, partitions: int) -> None:
        """Count partitions that are created or deleted.

        Raise `ThrottlingQuotaExceeded` in a strict request while the balance is negative.
        """
        if self._bucket is None:
            return
        bucket = self._bucket(self._now)
        if self._strict:
            self.wait = bucket.wait(self._rate, self._now)
            if self.wait > 0:
                raise errors.ThrottlingQuotaExceeded(f"too many partitions are made or deleted: wait {self.wait:.3f} s")
        bucket.take(partitions, self._rate, self._now)
        if not self._strict:
            self.wait = bucket.wait(self._rate, self._now)


class Quotas:
    """The quotas of a node: of bytes that clients send and get, of request time, and of changes of partitions."""

    __slots__ = ("fetch", "mutation", "produce", "request")

    def __init__(self, config: BrokerConfig, quotas: Mapping[Entity, Mapping[str, float]]) -> None:
        windows, seconds = config.integer("quota.window.num"), config.integer("quota.window.size.seconds")
        self.produce = ByteQuotas(PRODUCE, quotas, windows=windows, seconds=seconds)
        self.fetch = ByteQuotas(FETCH, quotas, windows=windows, seconds=seconds)
        self.request = ByteQuotas(REQUESTS, quotas, windows=windows, seconds=seconds)
        self.mutation = MutationQuotas(
            quotas,
            windows=config.integer("controller.quota.window.num"),
            seconds=config.integer("controller.quota.window.size.seconds"),
        )

    def __repr__(self) -> str:
        return f"<Quotas {self.produce!r} {self.fetch!r} {self.request!r} {self.mutation!r}>"
