"""Metrics of polls, fetches and a group member, as plain numbers, with no cost per record."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Final

from pyclient.consumer.completed_fetch import BatchSlice
from pyclient.rates import Rate

_WINDOW: Final = 30.0  # seconds that the heartbeat rate looks back


class ConsumerMetrics:
    """Counts since the consumer was created. Times are monotonic seconds.

    `poll_begun` and `poll_ended` run in the thread that polls, the rest on the event loop.
    """

    def __init__(self) -> None:
        self.polls = 0
        self.records = 0
        self.bytes = 0
        self.skipped = 0
        self.fetches = 0
        self.fetches_failed = 0
        self.fetched_bytes = 0
        self.bytes_by_node: Counter[int] = Counter()
        self._fetch_seconds = 0.0
        self._fetch_longest = 0.0
        self._first_poll: float | None = None
        self._poll_begun: float | None = None
        self._last_poll = 0.0
        self._in_polls = 0.0
        self._consumed = Rate()
        self._fetched = Rate()

    def poll_begun(self, now: float) -> None:
        """Count a poll."""
        self.polls += 1
        if self._first_poll is None:
            self._first_poll = now
        self._poll_begun = self._last_poll = now

    def poll_ended(self, slices: Sequence[BatchSlice], now: float) -> None:
        """Count the returned records. Each record of a partly returned batch counts the same share of its bytes."""
        if self._poll_begun is not None:
            self._in_polls += now - self._poll_begun
            self._poll_begun = None
        if not slices:
            return
        records = sum(piece.count for piece in slices)
        size = sum(map(_size, slices))
        self.records += records
        self.bytes += size
        self._consumed.add(now, records, size)

    def fetched(self, node: int, size: int, seconds: float, now: float) -> None:
        """Count a response with `size` bytes of records after `seconds`, waiting at the broker included."""
        self.fetches += 1
        self.fetched_bytes += size
        self.bytes_by_node[node] += size
        self._fetch_seconds += seconds
        self._fetch_longest = max(self._fetch_longest, seconds)
        self._fetched.add(now, 1, size)

    def fetch_failed(self) -> None:
        """Count a fetch that failed or had no response."""
        self.fetches_failed += 1

    def snapshot(self, now: float) -> dict[str, float]:
        """Return the numbers by name; rates are those of the last 30 s.

        `poll_idle_ratio` is the share of the time since the first poll that was spent inside polls; near 1 the user
        waits for records.
        """
        records_rate, bytes_rate = self._consumed.per_second(now)
        fetch_rate, fetched_rate = self._fetched.per_second(now)
        begun = self._poll_begun
        waited = self._in_polls + (0.0 if begun is None else max(0.0, now - begun))
        since = 0.0 if self._first_poll is None else now - self._first_poll
        return {
            "records_consumed": self.records,
            "bytes_consumed": self.bytes,
            "records_skipped": self.skipped,
            "records_per_second": records_rate,
            "bytes_per_second": bytes_rate,
            "polls": self.polls,
            "records_per_poll": self.records / max(1, self.polls),
            "poll_idle_ratio": min(1.0, waited / since) if since > 0 else 0.0,
            "last_poll_age_seconds": now - self._last_poll if self.polls else -1.0,
            "fetches": self.fetches,
            "fetches_failed": self.fetches_failed,
            "fetches_per_second": fetch_rate,
            "fetched_bytes": self.fetched_bytes,
            "fetched_bytes_per_second": fetched_rate,
            "fetch_bytes_average": self.fetched_bytes / max(1, self.fetches),
            "fetch_seconds_average": self._fetch_seconds / max(1, self.fetches),
            "fetch_seconds_longest": self._fetch_longest,
        }


def _size(piece: BatchSlice) -> int:
    batch = piece.batch
    return batch.size * piece.count // max(piece.count, batch.count)


class GroupMetrics:
    """Counts since the consumer was created. Times are monotonic seconds; everything runs on the event loop."""

    def __init__(self) -> None:
        self.rebalances = 0
        self.losses = 0
        self.heartbeats = 0
        self.heartbeats_failed = 0
        self.commits = 0
        self.commits_failed = 0
        self._rebalance_begun: float | None = None
        self._rebalance_last = 0.0
        self._rebalance_total = 0.0
        self._heartbeat_seconds_total = 0.0
        self._heartbeat_answered_at: float | None = None
        self._heartbeat_times: deque[float] = deque()
        self._commit_last = 0.0
        self._commit_longest = 0.0
        self._commit_total = 0.0

    def rebalance_begun(self, now: float) -> None:
        """Note that the member joins, or revokes or receives partitions; counts once until `rebalance_done`."""
        if self._rebalance_begun is None:
            self._rebalance_begun = now

    def rebalance_done(self, now: float) -> None:
        """Note that the polling thread has applied the new assignment."""
        begun, self._rebalance_begun = self._rebalance_begun, None
        if begun is not None:
            self.rebalances += 1
            self._rebalance_last = now - begun
            self._rebalance_total += now - begun

    def rebalance_given_up(self, *, lost: bool) -> None:
        """Note that the member left, or lost its partitions (`lost`)."""
        self._rebalance_begun = None
        self.losses += lost

    def heartbeat(self, seconds: float, now: float, *, failed: bool) -> None:
        """Count a heartbeat that took so many seconds."""
        self.heartbeats += 1
        self.heartbeats_failed += failed
        self._heartbeat_seconds_total += seconds
        self._heartbeat_times.append(now)
        self._expire(now)
        if not failed:
            self._heartbeat_answered_at = now

    def commit(self, seconds: float, *, failed: bool) -> None:
        """Count a commit that took so many seconds with all its retries."""
        self.commits += 1
        self.commits_failed += failed
        self._commit_last = seconds
        self._commit_longest = max(self._commit_longest, seconds)
        self._commit_total += seconds

    def _expire(self, now: float) -> None:
        while self._heartbeat_times and self._heartbeat_times[0] <= now - _WINDOW:
            self._heartbeat_times.popleft()

    def snapshot(self, now: float, *, assigned: int) -> dict[str, float]:
        """Return the numbers by name; seconds are floats, the heartbeat rate is that of the last 30 s.

        `last_heartbeat_age_seconds` is -1 before the first answer; `rebalancing_seconds` is 0 outside a rebalance.
        """
        self._expire(now)
        answered, begun = self._heartbeat_answered_at, self._rebalance_begun
        return {
            "assigned_partitions": assigned,
            "rebalances": self.rebalances,
            "rebalances_lost": self.losses,
            "rebalance_seconds_last": self._rebalance_last,
            "rebalance_seconds_total": self._rebalance_total,
            "rebalancing_seconds": 0.0 if begun is None else now - begun,
            "heartbeats": self.heartbeats,
            "heartbeats_failed": self.heartbeats_failed,
            "heartbeat_seconds_average": self._heartbeat_seconds_total / max(1, self.heartbeats),
            "heartbeats_per_second": len(self._heartbeat_times) / _WINDOW,
            "last_heartbeat_age_seconds": -1.0 if answered is None else now - answered,
            "commits": self.commits,
            "commits_failed": self.commits_failed,
            "commit_seconds_last": self._commit_last,
            "commit_seconds_longest": self._commit_longest,
            "commit_seconds_average": self._commit_total / max(1, self.commits),
        }
