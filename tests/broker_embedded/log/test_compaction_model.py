"""Compaction against a model: after any changes of a log, readers find the last value of each key."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyclient.records import Record, decode_batch, iter_batches
from tests.broker_embedded.log.compaction_tools import CODECS, DAY, compact, put

Row = tuple[bytes, bytes | None]
KEYS = [b"a", b"b", b"c", b"a key of more than sixteen bytes", b""]
ROWS = st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from([b"x", b"y", None])), min_size=1, max_size=8)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), ROWS, st.sampled_from(CODECS), st.sampled_from([-1, 1, 2])),
        st.tuples(st.just("transaction"), ROWS, st.booleans(), st.booleans()),
        st.tuples(st.just("roll")),
        st.tuples(st.just("compact"), st.integers(0, 3), st.sampled_from([2, 100])),
        st.tuples(st.just("restart"), st.booleans()),
    ),
    min_size=3,
    max_size=14,
)


class Model:
    """The records written, and each producer's next sequence number."""

    def __init__(self) -> None:
        self.records: dict[int, Row] = {}
        self.aborted: set[int] = set()
        self.markers: set[int] = set()
        self.sequences = {1: 0, 2: 0, 9: 0}

    def last(self) -> dict[bytes, bytes | None]:
        return {key: value for offset, (key, value) in self.records.items() if offset not in self.aborted}


def committed(log: Any) -> list[Record[Any, Any]]:
    """Return what a read_committed consumer gets from the start of the log."""
    found: list[Record[Any, Any]] = []
    at = log.start_offset
    while at < log.end_offset:
        read = log.read(at, 1 << 20, isolation="committed")
        for part in read.parts:
            part.release()
        pending = sorted(read.aborted, key=lambda entry: entry[1])
        data = log.read_bytes(at, 1 << 20, isolation="committed")
        dropped: set[int] = set()
        for position, header in iter_batches(data):
            while pending and pending[0][1] <= header.last_offset:
                dropped.add(pending.pop(0)[0])
            if header.is_control and header.count:
                raw = decode_batch(data, position, header, "t", 0)[0]
                if struct.unpack(">hh", raw.key)[1] == 0:
                    dropped.discard(header.producer_id)
            elif not header.is_control and not (header.is_transactional and header.producer_id in dropped):
                found += decode_batch(data, position, header, "t", 0, from_offset=at)
            at = header.next_offset
        if not data:
            break
    return found


def run(fixture: Any, log: Any, model: Model, step: Any, clock: int) -> Any:
    kind = step[0]
    if kind == "append":
        _, rows, codec, producer = step
        options = {}
        if producer > 0:
            options = {"producer_id": producer, "producer_epoch": 0, "base_sequence": model.sequences[producer]}
            model.sequences[producer] += len(rows)
        base = put(fixture, log, *rows, compression=codec, **options).base_offset
        model.records |= dict(enumerate(rows, base))
    elif kind == "transaction":
        _, rows, commit, rolls = step
        for row in rows:
            options = {"producer_id": 9, "producer_epoch": 0, "base_sequence": model.sequences[9]}
            base = put(fixture, log, row, transactional=True, **options).base_offset
            model.sequences[9] += 1
            model.records[base] = row
            if not commit:
                model.aborted.add(base)
            if rolls:
                log.roll()
        model.markers.add(fixture.end(log, 9, 0, commit=commit).base_offset)
    elif kind == "roll":
        log.roll()
    elif kind == "compact":
        compact(fixture, log, after_ms=clock + step[1] * 600, keys=step[2])
    else:
        start, cleaned = log.start_offset, log.cleaned_to
        log = fixture.reopen(log) if step[1] else fixture.crash(log)
        assert log.start_offset == start
        log.cleaned_to = cleaned
    return log


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_readers_find_the_last_value_of_each_key(new_fixture: Any, steps: list[Any]) -> None:
    fixture = new_fixture()
    fixture.configure(cleanup_policy=("compact",), delete_retention_ms=1000, index_interval_bytes=50)
    log, model = fixture.open(), Model()
    for clock, step in enumerate(steps):
        log = run(fixture, log, model, step, 500 * clock)
    before = [(record.offset, record.key, record.value) for record in committed(log)]
    kept = {offset for offset, *_ in before}
    assert [offset for offset, *_ in before] == sorted(kept)
    for offset, key, value in before:
        assert model.records[offset] == (key, value)
        assert offset not in model.aborted
    newest = model.last()
    found = {key: value for _offset, key, value in before}
    assert found | {key: None for key in newest if key not in found} == newest
    compact(fixture, log, after_ms=DAY)
    compact(fixture, log, after_ms=2 * DAY)
    after = [(key, value) for _offset, key, value in [(r.offset, r.key, r.value) for r in committed(log)]]
    assert sorted(after) == sorted((key, value) for key, value in newest.items() if value is not None)
    assert log.end_offset == len(model.records) + len(model.markers)
    log = fixture.crash(log, recovery_point=0)
    for producer in (1, 2):
        if model.sequences[producer]:
            options = {"producer_id": producer, "producer_epoch": 0, "base_sequence": model.sequences[producer]}
            put(fixture, log, (b"a", b"z"), **options)
    assert all(damage is None for damage in log.verify())
    fixture.close()
