"""Metrics of a group member: rebalances, heartbeats and commits, as plain numbers."""

from __future__ import annotations

from collections import deque
from typing import Final

_WINDOW: Final = 30.0  # seconds that the heartbeat rate looks back


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
