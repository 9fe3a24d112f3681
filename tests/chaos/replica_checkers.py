"""The invariants of replicas: one leader in an epoch, the offsets that they report, and equal logs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.chaos.history import COMPACTED, History, Place, StoredRecord


def broken_replicas(history: History) -> Iterator[str]:
    """Find replicas that disagree: two leaders of an epoch, an ISR outside of the replicas, offsets that go back or are
    out of order, different batches or records below the high watermark, or a log that does not reach it."""
    yield from _leaders(history)
    yield from _offsets(history)
    yield from _batches(history)
    yield from _records(history)
    yield from _ranges(history)


def _leaders(history: History) -> Iterator[str]:
    leaders: dict[tuple[Place, int], set[int]] = defaultdict(set)
    reported: set[tuple[Place, int, tuple[int, ...]]] = set()
    for state in history.states:
        if state.leader < 0:
            continue
        leaders[state.place, state.leader_epoch].add(state.leader)
        key = (state.place, state.leader, state.isr)
        if key not in reported and (state.leader not in state.isr or not {*state.isr} <= {*state.replicas}):
            reported.add(key)
            yield f"{state.place}: the leader is {state.leader}, the ISR {state.isr}, the replicas {state.replicas}"
    for (place, epoch), found in leaders.items():
        if len(found) > 1:
            yield f"{place}: epoch {epoch} has the leaders {sorted(found)}"


def _offsets(history: History) -> Iterator[str]:
    last: dict[tuple[int, int, Place], tuple[int, int]] = {}
    for state in sorted(history.states, key=lambda each: each.at):
        if not state.stable_offset <= state.high_watermark <= state.end_offset:
            yield (
                f"{state.place} at node {state.node}: last stable offset {state.stable_offset}, "
                f"high watermark {state.high_watermark}, end {state.end_offset}"
            )
        key = (state.node, state.life, state.place)
        epoch, watermark = last.get(key, (-1, -1))
        if state.leader_epoch < epoch:
            yield f"{state.place} at node {state.node}: leader epoch {state.leader_epoch} after {epoch}"
        if state.high_watermark < watermark and state.node in state.isr:  # damaged replicas leave the ISR to be cut
            yield f"{state.place} at node {state.node}: high watermark {state.high_watermark} after {watermark}"
        last[key] = (state.leader_epoch, state.high_watermark)


def _batches(history: History) -> Iterator[str]:
    """Find the first batch below the high watermark that has another end, CRC or leader epoch in another log."""
    logs: dict[Place, dict[int, dict[int, tuple[int, int, int]]]] = defaultdict(lambda: defaultdict(dict))
    for batch in history.batches:
        if batch.below_high_watermark:
            logs[batch.place][batch.node][batch.offset] = (batch.last_offset, batch.crc, batch.leader_epoch)
    for place, nodes in logs.items():
        reference = max(nodes, key=lambda node: len(nodes[node]))
        for node, batches in nodes.items():
            first = max(min(batches), min(nodes[reference]))  # older segments may have been deleted
            end = min(max(batches), max(nodes[reference]))
            for offset in sorted({*batches, *nodes[reference]}):
                if first <= offset <= end and batches.get(offset) != nodes[reference].get(offset):
                    yield f"{place}@{offset}: the logs of nodes {node} and {reference} differ"
                    break


def _records(history: History) -> Iterator[str]:
    """Find the first record of a compacted topic that is another one in another log, or missing there without cause.

    Each node compacts by itself: it removes records before a later one with the same key, and what has no key here.
    What was never below a high watermark may be another one: nodes still write while one after the other is stopped.
    """
    logs: dict[Place, dict[int, dict[int, StoredRecord]]] = defaultdict(lambda: defaultdict(dict))
    for record in history.stored_records:
        logs[record.place][record.node][record.offset] = record
    ranges = {(each.place, each.node): each for each in history.logs}
    committed: dict[Place, int] = defaultdict(int)
    for state in history.states:
        committed[state.place] = max(committed[state.place], state.high_watermark)
    for place, nodes in logs.items():
        everything: dict[int, StoredRecord] = {}
        for records in nodes.values():
            everything = records | everything
        for node in sorted({*nodes, *(node for found, node in ranges if found == place)}):
            records = nodes.get(node, {})
            known = ranges.get((place, node))
            end = known.end if known is not None else max(records, default=-1) + 1
            end = min(end, committed[place])
            last = {record.key: offset for offset, record in sorted(records.items())}
            for offset, wanted in sorted(everything.items()):
                found = records.get(offset)
                if found is None and offset < end and wanted.key >= 0 and last.get(wanted.key, -1) < offset:
                    yield f"{place}@{offset}: the log of node {node} lacks a record, and has no later one with its key"
                    break
                if found is not None and offset < end and found.content != wanted.content:
                    yield f"{place}@{offset}: the logs of nodes {node} and {wanted.node} differ"
                    break


def _ranges(history: History) -> Iterator[str]:
    """Find logs that end before what was committed while they were in sync, and that begin later than others."""
    if not history.logs:
        return
    committed: dict[tuple[Place, int], int] = defaultdict(int)
    for state in history.states:
        if state.node == state.leader:
            for node in state.isr:
                committed[state.place, node] = max(committed[state.place, node], state.high_watermark)
    ends = {(each.place, each.node): each.end for each in history.logs}
    for (place, node), watermark in committed.items():
        end = ends.get((place, node), 0)
        if end < watermark:
            yield f"{place}: the log of node {node} ends at {end}, below the high watermark {watermark}"
    starts: dict[Place, dict[int, int]] = defaultdict(dict)
    for each in history.logs:
        starts[each.place][each.node] = each.start
    for place, by_node in starts.items():
        if place.topic not in COMPACTED and len({*by_node.values()}) > 1:
            yield f"{place}: the logs begin at {by_node}"
