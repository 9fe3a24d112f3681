"""The invariants of consumer groups: members of partitions, committed offsets, and that nothing is passed over."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Container, Iterator
from typing import Final

from tests.chaos.history import OK, Commit, Committed, History, Place, readable

_LATEST_SECONDS: Final = 60.0  # no request arrives later than that after its client gave it up
_SUCCESSOR_SECONDS: Final = 5.0  # a coordinator has been asked by then, after another one was


def broken_groups(history: History) -> Iterator[str]:
    """Find partitions with two members in a generation, records that a member got of a partition that it did not have,
    and commits that went back, or that a member made in a generation in which another one had the partition."""
    for read in history.reads:
        if not read.assigned:
            yield f"{read.place}@{read.offset}: {read.consumer} read it without having the partition"
    owners: dict[tuple[str, int, Place], str] = {}
    for each in history.assignments:
        for place in each.places:
            owner = owners.setdefault((each.group, each.generation, place), each.member)
            if owner != each.member:
                yield f"group {each.group}, generation {each.generation}: {owner} and {each.member} have {place}"
    acknowledged: dict[tuple[str, Place], _Commits] = defaultdict(_Commits)
    for commit in history.commits:
        where = f"group {commit.group}, {commit.place}: {commit.member} committed {commit.offset}"
        commits = acknowledged[commit.group, commit.place]
        if commit.outcome != OK:
            commits.unknown.append(commit)
            continue
        owner = owners.get((commit.group, commit.generation, commit.place), commit.member)
        if owner != commit.member:
            yield f"{where} in generation {commit.generation}, in which {owner} has the partition"
        before = commits.highest(commit.began)
        if commit.offset < before and not commits.was_set_back(range(commit.offset + 1), commit.began, commit.at):
            yield f"{where} after {before}"
        commits.add(commit)


class _Commits:
    """The commits of a group for a partition."""

    def __init__(self) -> None:
        self.unknown: list[Commit] = []
        """Commits that the coordinator may have received, perhaps later than the next ones."""
        self._acknowledged: list[Commit] = []
        self._times: list[float] = []
        self._highest: list[int] = []

    def add(self, commit: Commit) -> None:
        """Note an acknowledged commit."""
        self._acknowledged.append(commit)
        self._times.append(max(commit.at, self._times[-1] if self._times else commit.at))
        self._highest.append(max(commit.offset, self._highest[-1] if self._highest else -1))

    def highest(self, until: float | None) -> int:
        """Return the highest offset that was acknowledged by then, -1 for none; with None that of all."""
        count = len(self._times) if until is None else bisect_right(self._times, until)
        return self._highest[count - 1] if count else -1

    def was_set_back(self, offsets: Container[int], until: float | None, at: float) -> bool:
        """Return True if a commit to one of `offsets` may have come late, but before `at`.

        It is refused after another member has committed in a later generation: here a higher offset, before `until`.
        """
        late = [each for each in self.unknown if each.offset in offsets and each.at > at - _LATEST_SECONDS]
        return any(not any(_supersedes(each, commit, until) for each in self._acknowledged) for commit in late)


def _supersedes(later: Commit, commit: Commit, until: float | None) -> bool:
    """Return True if a commit that was acknowledged by then proves that the generation of the other one was over."""
    return (
        later.member != commit.member
        and later.generation > commit.generation >= 0
        and later.offset > commit.offset
        and (until is None or later.at <= until)
    )


def lost_commits(history: History) -> Iterator[str]:
    """Find committed offsets that were read and are lower than one acknowledged before, or that no member committed.

    The answers that `outdated_commits` finds are left out.
    """
    offsets: dict[tuple[str, Place], set[int]] = defaultdict(lambda: {-1})
    for commit in history.commits:
        offsets[commit.group, commit.place].add(commit.offset)
    for seen in history.committed:
        if seen.offset not in offsets[seen.group, seen.place]:
            yield f"{_described(seen)}, which no member has committed"
    for seen, text in _lower_offsets(history):
        if not _is_outdated(seen, history):
            yield text


def outdated_commits(history: History) -> Iterator[str]:
    """Yield lower offsets by a coordinator that was replaced and did not know it: a node that is cut off, for example.

    As in Kafka it answers OffsetFetch until it learns of its successor; it cannot take a commit.
    """
    for seen, text in _lower_offsets(history):
        if _is_outdated(seen, history):
            yield f"{text}, by node {seen.node} in leader epoch {seen.leader_epoch}"


def _is_outdated(seen: Committed, history: History) -> bool:
    """Return True if another node has answered for the group in a later leader epoch, no later than soon after that."""
    return any(
        other.group == seen.group
        and other.node != seen.node
        and other.leader_epoch > seen.leader_epoch >= 0
        and other.began < seen.at + _SUCCESSOR_SECONDS
        for other in history.committed
    )


def _lower_offsets(history: History) -> Iterator[tuple[Committed, str]]:
    """Yield committed offsets that are lower than one acknowledged before they were read."""
    commits: dict[tuple[str, Place], _Commits] = defaultdict(_Commits)
    for commit in history.commits:
        found = commits[commit.group, commit.place]
        if commit.outcome == OK:
            found.add(commit)
        else:
            found.unknown.append(commit)
    for seen in history.committed:
        found = commits[seen.group, seen.place]
        acknowledged = found.highest(seen.began)
        if seen.offset < acknowledged and not found.was_set_back((seen.offset,), seen.began, seen.at):
            yield seen, f"{_described(seen)} after {acknowledged} was acknowledged"


def _described(seen: Committed) -> str:
    return f"group {seen.group}, {seen.place}: the committed offset is {seen.offset}"


def group_skips(history: History) -> Iterator[str]:
    """Find members that got a partition and began after a record that no member of their group had committed.

    This needs all attempts to commit, with their times: groups without these are left out.
    """
    groups = {commit.member: commit.group for commit in history.commits if commit.began is not None}
    attempts: dict[tuple[str, Place], list[tuple[float, int]]] = defaultdict(list)
    for commit in history.commits:
        if commit.began is not None:
            attempts[commit.group, commit.place].append((commit.began, commit.offset))
    highest = {
        key: (sorted(each), list(itertools.accumulate((offset for _, offset in sorted(each)), max)))
        for key, each in attempts.items()
    }
    versions = {place: sorted(offsets) for place, offsets in readable(history).items()}
    for read in history.reads:
        if not read.jumped or read.consumer not in groups:
            continue
        times, tops = highest.get((groups[read.consumer], read.place), ([], []))
        count = bisect_left(times, (read.at, 0))
        first = tops[count - 1] if count else 0
        known = versions.get(read.place, [])
        at = bisect_left(known, first)
        if at < len(known) and known[at] < read.offset:
            yield f"{read.place}: {read.consumer} began at {read.offset}; {known[at]} was never committed as read"


def unread_commits(history: History) -> Iterator[str]:
    """Find commits of a group past a record that none of its members had read by then."""
    groups = {commit.member: commit.group for commit in history.commits}
    first: dict[tuple[str, Place], dict[int, float]] = defaultdict(dict)
    for read in history.reads:
        if read.consumer in groups:
            times = first[groups[read.consumer], read.place]
            times[read.offset] = min(read.at, times.get(read.offset, read.at))
    commits: dict[tuple[str, Place], list[Commit]] = defaultdict(list)
    for commit in history.commits:
        commits[commit.group, commit.place].append(commit)
    versions = {place: sorted(offsets) for place, offsets in readable(history).items()}
    for (group, place), each in commits.items():
        known = versions.get(place, [])
        times = [first[group, place].get(offset, math.inf) for offset in known]
        all_read = list(itertools.accumulate(times, max))  # when all up to an offset had been read
        for commit in each:
            count = bisect_left(known, commit.offset)
            at = commit.at if commit.began is None else commit.began
            if count and all_read[count - 1] > at:
                unread = next(offset for offset, time in zip(known, times, strict=True) if time > at)
                yield f"group {group}, {place}: {commit.member} committed {commit.offset}, {unread} was unread then"
