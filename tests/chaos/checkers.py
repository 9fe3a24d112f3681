"""The invariants of every history: pure functions that return a sentence for each violation they find.

They follow Jepsen's analysis of queues: offsets are the versions of a partition, and a value is written once.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tests.chaos.acknowledgement_checkers import unsafe_acknowledgements
from tests.chaos.duplicates import EXACTLY_ONCE, duplicates, wrong_refusals
from tests.chaos.group_checkers import broken_groups, group_skips, lost_commits, unread_commits
from tests.chaos.history import (
    COMMITTED,
    FAIL,
    INFO,
    OK,
    ONE,
    SAFE,
    Ends,
    History,
    Place,
    Send,
    Value,
    by_client,
    readable,
)
from tests.chaos.implied_acknowledgements import lost_by_implied_acknowledgements
from tests.chaos.progress_checkers import growing_processes, idle_faults, stalls, unrecovered_rates
from tests.chaos.replica_checkers import broken_replicas

_OPEN_SECONDS: Final = 20.0  # the time limit of a transaction, and time to abort it


def lost_writes(history: History, kinds: frozenset[str] = SAFE) -> Iterator[str]:
    """Find acknowledged values that no consumer read, although all partitions were read to their ends.

    Those that only a producer of librdkafka took for acknowledged (`lost_by_implied_acknowledgements`) are left out.
    """
    lost = _lost(history, kinds)
    implied = {send.value for send in lost_by_implied_acknowledgements(history, lost)}
    for send in lost:
        if send.value not in implied:
            yield f"{send.place}: {send.value} was acknowledged (offset {send.offset}) and is lost"


def lost_by_librdkafka(history: History) -> list[str]:
    """Return the values that are lost, and that only a producer of librdkafka took for acknowledged."""
    implied = lost_by_implied_acknowledgements(history, _lost(history, SAFE))
    return [f"{send.place}: {send.value} was acknowledged without an answer" for send in implied]


def _lost(history: History, kinds: frozenset[str]) -> list[Send]:
    seen = {read.value for read in history.reads if read.value is not None}
    return [send for send in acknowledged(history) if send.kind in kinds and send.value not in seen]


def acknowledged(history: History) -> Iterator[Send]:
    """Yield the sends that must be readable: those that are OK, and whose transaction was committed for certain.

    A transaction with an unknown outcome has committed if any of its writes was read with read_committed.
    """
    outcomes = {each.name: each.outcome for each in history.transactions}
    seen = {read.value for read in history.reads if read.isolation == COMMITTED}
    proven = {send.transaction for send in history.sends if send.transaction and send.value in seen}
    for send in history.sends:
        if send.transaction is None:
            committed = send.outcome == OK
        else:
            outcome = outcomes.get(send.transaction, INFO)
            committed = send.outcome != FAIL and (outcome == OK or (outcome == INFO and send.transaction in proven))
        if committed:
            yield send


def aborted_reads(history: History) -> Iterator[str]:
    """Find reads with read_committed of values whose send certainly failed, or whose transaction was aborted."""
    aborted = {each.name for each in history.transactions if each.outcome == FAIL}
    never = {send.value for send in history.sends if send.outcome == FAIL or send.transaction in aborted}
    for read in history.reads:
        if read.value in never and read.isolation == COMMITTED:
            yield f"{read.place}@{read.offset}: {read.consumer} read {read.value}, which was aborted or never written"


def failed_sends_that_were_written(history: History) -> Iterator[str]:
    """Find reads, by any consumer, of values whose send certainly failed outside of transactions."""
    never = {send.value for send in history.sends if send.outcome == FAIL and send.transaction is None}
    for read in history.reads:
        if read.value in never:
            yield f"{read.place}@{read.offset}: {read.value} was reported as not written, and {read.consumer} read it"


def precommitted_reads(history: History) -> Iterator[str]:
    """Find reads with read_committed of a transaction's value before its commit was requested, or in itself.

    Where this holds, a transaction that has read of another one began to commit later: reads make no cycles (G1c).
    """
    began = {each.name: each.began for each in history.transactions if each.began is not None}
    requested = {send.value: began[send.transaction] for send in history.sends if send.transaction in began}
    own = {send.value: send.transaction for send in history.sends if send.transaction is not None}
    for read in history.reads:
        if read.isolation != COMMITTED:
            continue
        is_own = read.transaction is not None and own.get(read.value) == read.transaction
        if is_own or (read.value in requested and read.at < requested[read.value]):
            yield f"{read.place}@{read.offset}: {read.consumer} read {read.value} before its transaction was to commit"


def torn_transactions(history: History) -> Iterator[str]:
    """Find transactions of which some writes were read with read_committed at the end, and some were not."""
    seen = {read.value for read in history.reads if read.isolation == COMMITTED}
    writes: dict[str, list[Send]] = defaultdict(list)
    for send in history.sends:
        if send.transaction is not None and send.outcome != FAIL:
            writes[send.transaction].append(send)
    for name, sends in writes.items():
        missing = [str(send.value) for send in sends if send.value not in seen]
        if 0 < len(missing) < len(sends):
            yield f"transaction {name}: {len(sends) - len(missing)} writes are visible, {', '.join(missing)} not"


def inconsistent_offsets(history: History) -> Iterator[str]:
    """Find offsets of a partition that have several values, by what sends, consumers and replicas say."""
    for place, offsets in history.values_at().items():
        for offset, values in sorted(offsets.items()):
            if len(values) > 1:
                yield f"{place}@{offset}: it is {' and '.join(sorted(map(str, values)))}"


def misrouted_or_damaged(history: History) -> Iterator[str]:
    """Find records whose value does not match its CRC, or was sent to another partition."""
    for read in history.reads:
        if read.value is None:
            yield f"{read.place}@{read.offset}: the value that {read.consumer} read is damaged"
        elif read.says != read.place:
            yield f"{read.place}@{read.offset}: {read.value} was sent to {read.says}"


def unordered_sends(history: History) -> Iterator[str]:
    """Find values of an idempotent producer whose offsets in a partition are not in the order of its calls."""
    found: dict[tuple[str, Place], list[tuple[Send, int]]] = defaultdict(list)
    first_seen: dict[Value, int] = {}
    for read in history.reads:
        if read.value is not None:
            first_seen[read.value] = min(read.offset, first_seen.get(read.value, read.offset))
    for send in history.sends:
        if send.kind in EXACTLY_ONCE:
            offset = first_seen.get(send.value) if send.known_offset is None else send.known_offset
            if offset is not None:
                found[send.value.producer, send.place].append((send, offset))
    for (_producer, place), sends in found.items():
        in_order = sorted(sends, key=lambda each: each[0].value.number)  # not by when their outcomes came
        for (earlier, low), (later, high) in itertools.pairwise(in_order):
            if low >= high:
                yield f"{place}: {earlier.value} is at {low}, {later.value}, which was sent later, at {high}"


def skipping_polls(history: History) -> Iterator[str]:
    """Find consumers that went back, or passed over a value that is there, without having been moved.

    A consumer of librdkafka may return to the beginning once for each time that it has logged a reset of its position.
    """
    versions = {place: sorted(offsets) for place, offsets in readable(history).items()}
    resets = defaultdict(list)
    for each in history.position_resets:
        resets[each.consumer, each.place].append(each.at)
    for (consumer, place), reads in by_client(history.reads).items():
        known = versions.get(place, [])
        logged = sorted(resets[consumer, place])
        for before, read in itertools.pairwise(reads):
            if read.jumped and read.poll != before.poll:
                continue
            if read.offset <= before.offset:
                if known[:1] == [read.offset] and read.poll != before.poll and logged and logged[0] <= read.at:
                    del logged[0]
                    continue
                yield f"{place}: {consumer} read {read.offset} after {before.offset}"
                continue
            at = bisect_right(known, before.offset)
            if at < len(known) and known[at] < read.offset:
                yield f"{place}: {consumer} read {read.offset} after {before.offset} and skipped {known[at]}"


def unaccounted_sends(history: History, longest: float) -> Iterator[str]:
    """Find sends with no outcome or several, over their time limit by more than a second, or OK at no offset."""
    outcomes = Counter(send.value for send in history.sends)
    called = {call.value for call in history.calls}
    for call in history.calls:
        if outcomes[call.value] != 1:
            yield f"{call.place}: {call.value} has {outcomes[call.value]} outcomes"
    for send in history.sends:
        if send.value not in called:
            yield f"{send.place}: {send.value} has an outcome, and was never sent"
        if send.ended - send.began > longest + 1:
            yield f"{send.place}: {send.value} took {send.ended - send.began:.1f} s, its limit is {longest:g} s"
        if send.outcome == OK and (send.offset is None or send.offset < 0) and send.kind not in EXACTLY_ONCE:
            yield f"{send.place}: {send.value} is acknowledged at offset {send.offset}"


def stuck_transactions(history: History, longest: float) -> Iterator[str]:
    """Find last stable offsets that were below the high watermark for too long, not counting the time of faults."""
    since: dict[Place, Ends] = {}
    reported: set[tuple[Place, int]] = set()
    for seen in sorted(history.ends, key=lambda each: each.at):
        first = since.get(seen.place)
        if seen.stable_offset >= seen.high_watermark or first is None or first.stable_offset != seen.stable_offset:
            since[seen.place] = seen
            continue
        in_faults = sum(max(0.0, min(fault.ended, seen.at) - max(fault.began, first.at)) for fault in history.faults)
        stood = seen.at - first.at - in_faults
        key = (seen.place, seen.stable_offset)
        if stood > longest and first.stable_offset < first.high_watermark and key not in reported:
            reported.add(key)
            yield f"{seen.place}: the last stable offset stood at {seen.stable_offset} for {stood:.1f} s"


def lost_topic_changes(history: History) -> Iterator[str]:
    """Find topics that differ from their last acknowledged change, and from later ones without an answer."""
    found = {each.topic: each.partitions for each in history.found_topics}
    possible: dict[str, set[int]] = {}
    for change in history.topic_changes:
        before = possible.get(change.topic, {0}) if change.outcome != OK else set()
        possible[change.topic] = {*before, change.partitions}
    for topic, partitions in possible.items():
        if found.get(topic, 0) not in partitions:
            wanted = " or ".join(map(str, sorted(partitions)))
            yield f"{topic}: it has {found.get(topic, 0)} partitions, after changes to {wanted} were acknowledged"


Checker = Callable[[History], Iterable[str]]


@dataclass(frozen=True)
class Limits:
    """The limits that a cluster and its clients have to keep; times are in seconds."""

    delivery_timeout: float
    """The time limit of a send."""
    recovery: float
    """The longest time from the end of a fault until a record is acknowledged."""
    min_isr: int = 2
    progress: int = 1
    """The sends that must succeed in a fault that leaves a majority connected and is no shorter than the next one."""
    progress_seconds: float = 20.0


def checkers(limits: Limits) -> Mapping[str, Checker]:
    """Return all checkers by name."""
    return {
        "lost": lost_writes,
        "aborted reads": aborted_reads,
        "precommitted reads": precommitted_reads,
        "failed but written": failed_sends_that_were_written,
        "torn transactions": torn_transactions,
        "inconsistent offsets": inconsistent_offsets,
        "misrouted or damaged": misrouted_or_damaged,
        "duplicated": duplicates,
        "refusals": wrong_refusals,
        "unordered sends": unordered_sends,
        "skipping polls": skipping_polls,
        "unaccounted sends": lambda history: unaccounted_sends(history, limits.delivery_timeout),
        "unsafe acknowledgements": lambda history: unsafe_acknowledgements(history, limits.min_isr),
        "replicas": broken_replicas,
        "groups": broken_groups,
        "unread commits": unread_commits,
        "lost commits": lost_commits,
        "group skips": group_skips,
        "stuck transactions": lambda history: stuck_transactions(history, _OPEN_SECONDS),
        "topics": lost_topic_changes,
        "stalls": lambda history: stalls(history, limits.recovery),
        "idle faults": lambda history: idle_faults(history, limits.progress, limits.progress_seconds),
        "unrecovered rates": unrecovered_rates,
        "growing processes": growing_processes,
    }


def check(history: History, limits: Limits) -> dict[str, list[str]]:
    """Return the violations by checker; checkers without any are left out."""
    found = {name: list(checker(history)) for name, checker in checkers(limits).items()}
    return {name: each for name, each in found.items() if each}


def lost_by_one(history: History) -> list[str]:
    """Return what the producers with acks=1 lost: the control, which shows that the faults are real."""
    return list(lost_writes(history, frozenset({ONE})))


def harmless_faults(history: History) -> Iterator[str]:
    """Report a control run whose faults took nothing from the producers with acks=1, so that it proves nothing."""
    if not lost_by_one(history):
        count = sum(send.kind == ONE and send.outcome == OK for send in history.sends)
        yield f"none of {count} records acknowledged with acks=1 was lost in {len(history.faults)} faults"
