"""A producer's counters, updated for each batch, not for each record."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final

from pyclient.rates import Rate

LATENCY_BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000)
"""Upper bounds of the latency histogram's buckets in milliseconds; one more bucket has no bound."""


class ProducerMetrics:
    """Counts since the producer was created, and rates over the last 30 s. Times are monotonic seconds."""

    def __init__(self) -> None:
        self.records_delivered = 0
        self.bytes_delivered = 0
        self.batches_delivered = 0
        self.batches_retried = 0
        self.batches_split = 0
        self.requests = 0
        self._latency = [0] * (len(LATENCY_BOUNDS_MS) + 1)
        self._longest = 0.0
        self._delivered = Rate()

    def delivered(self, records: int, size: int, latency: float, now: float) -> None:
        """Count a batch that was confirmed `latency` seconds after its first record was sent."""
        self.records_delivered += records
        self.bytes_delivered += size
        self.batches_delivered += 1
        self._latency[bisect_left(LATENCY_BOUNDS_MS, latency * 1000)] += 1
        self._longest = max(self._longest, latency)
        self._delivered.add(now, records, size)

    def delivered_singly(self, count: int, size: int, last: float, longest: float, buckets: Sequence[int]) -> None:
        """Count `count` batches of one record each, confirmed up to the time `last`, and add their latency buckets."""
        self.records_delivered += count
        self.batches_delivered += count
        self.bytes_delivered += size
        self._latency = [before + more for before, more in zip(self._latency, buckets, strict=True)]
        self._longest = max(self._longest, longest)
        self._delivered.add(last, count, size)

    def snapshot(self, now: float) -> dict[str, Any]:
        """Return the numbers as a dictionary; see `Producer.metrics`."""
        records_rate, bytes_rate = self._delivered.per_second(now)
        batches = self.batches_delivered
        return {
            "records_delivered": self.records_delivered,
            "bytes_delivered": self.bytes_delivered,
            "batches_delivered": batches,
            "batches_retried": self.batches_retried,
            "batches_split": self.batches_split,
            "requests": self.requests,
            "records_per_second": records_rate,
            "bytes_per_second": bytes_rate,
            "records_per_batch": self.records_delivered / batches if batches else 0.0,
            "bytes_per_batch": self.bytes_delivered / batches if batches else 0.0,
            "latency_ms": {
                "p50": self._percentile(0.5),
                "p99": self._percentile(0.99),
                "max": self._longest * 1000,
                "buckets": dict(zip([*map(str, LATENCY_BOUNDS_MS), "inf"], self._latency, strict=True)),
            },
        }

    def _percentile(self, share: float) -> float:
        """Return the bound (ms) of the bucket that holds this percentile, at most the maximum; 0 without batches."""
        wanted, seen = share * self.batches_delivered, 0
        for bound, count in zip(LATENCY_BOUNDS_MS, self._latency, strict=False):
            seen += count
            if seen and seen >= wanted:
                return min(float(bound), self._longest * 1000)
        return self._longest * 1000
