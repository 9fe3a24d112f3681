"""Transactions in a log: the last stable offset, the index of aborted ones, also after restarts and truncations."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyclient import errors
from pyclient.broker_embedded.log.indexes import AbortedTransaction
from pyclient.records import ControlType, build_batch, control_key


def write(fixture: Any, log: Any, producer_id: int, *, epoch: int = 0, sequence: int | None = None) -> int:
    """Append a record of a producer's transaction; return its offset."""
    if sequence is None:
        entry = log.producers.get(producer_id)
        sequence = 0 if entry is None or entry.epoch != epoch else entry.last_sequence + 1
    return fixture.append(
        log, b"%d" % producer_id, producer_id=producer_id, epoch=epoch, sequence=sequence, transactional=True
    ).base_offset


def committed(log: Any, offset: int = 0) -> Any:
    """Return the result of a read_committed read: the end of its data and the aborted transactions."""
    read = log.read(offset, 1 << 20, isolation="committed")
    for part in read.parts:
        part.release()
    return read


def test_readers_of_committed_data_stop_before_an_open_transaction(fixture: Any) -> None:
    log = fixture.open()
    fixture.append(log, b"plain")
    write(fixture, log, 1)
    fixture.append(log, b"behind")
    assert (log.high_watermark, log.last_stable_offset) == (3, 1)
    assert committed(log).size == len(fixture.batch(b"plain"))
    assert committed(log, 1).size == 0
    fixture.end(log, 1, 0, commit=True)
    assert log.last_stable_offset == 4
    assert committed(log).aborted == []
    assert log.read(0, 1000).aborted is None


def test_the_stable_offset_is_not_below_the_start_of_the_log(fixture: Any) -> None:
    log = fixture.open()
    write(fixture, log, 1)
    fixture.append(log, b"behind")
    log.delete_records_before(1)
    assert (log.start_offset, log.last_stable_offset) == (1, 1)
    fixture.end(log, 1, 0, commit=False)
    assert log.last_stable_offset == 3


def test_fetch_lists_aborted_transactions_of_its_offsets(fixture: Any) -> None:
    log = fixture.open()
    for producer_id in (1, 2):
        write(fixture, log, producer_id)
    fixture.end(log, 1, 0, commit=False)
    assert (log.last_stable_offset, committed(log).aborted) == (1, [(1, 0)])
    fixture.end(log, 2, 0, commit=False)
    fixture.append(log, b"later")
    assert committed(log).aborted == [(1, 0), (2, 1)]
    assert committed(log, 3).aborted == [(2, 1)]
    assert committed(log, 4).aborted == []
    assert log.segments[0].indexes.transactions.collect(0, 9)[0] == [
        AbortedTransaction(1, 0, 2, 1),
        AbortedTransaction(2, 1, 3, 4),
    ]


def test_a_marker_of_a_transaction_without_data_here_changes_nothing(fixture: Any) -> None:
    log = fixture.open()
    fixture.end(log, 5, 3, commit=False)
    assert (log.last_stable_offset, committed(log).aborted) == (1, [])
    assert f"{0:020}.txnindex" not in fixture.names()


def test_markers_are_checked_against_epochs(fixture: Any) -> None:
    log = fixture.open()
    write(fixture, log, 1, epoch=3)
    with pytest.raises(errors.InvalidProducerEpoch):
        fixture.end(log, 1, 2, commit=True)
    fixture.end(log, 1, 3, commit=True, coordinator_epoch=7)
    with pytest.raises(errors.TransactionCoordinatorFenced):
        fixture.end(log, 1, 3, commit=True, coordinator_epoch=6)
    fixture.end(log, 1, 4, commit=False, coordinator_epoch=7)
    with pytest.raises(errors.InvalidProducerEpoch):
        write(fixture, log, 1, epoch=3)
    assert log.end_offset == 3


def test_sequences_continue_over_transactions_and_restart_with_the_epoch(fixture: Any) -> None:
    log = fixture.open()
    write(fixture, log, 1)
    fixture.end(log, 1, 0, commit=True)
    with pytest.raises(errors.OutOfOrderSequenceNumber):
        write(fixture, log, 1, sequence=5)
    write(fixture, log, 1, sequence=1)
    fixture.end(log, 1, 1, commit=True)
    with pytest.raises(errors.OutOfOrderSequenceNumber):
        write(fixture, log, 1, epoch=1, sequence=2)
    write(fixture, log, 1, epoch=1, sequence=0)


def test_a_producer_may_not_write_around_its_open_transaction(fixture: Any) -> None:
    log = fixture.open()
    write(fixture, log, 1)
    with pytest.raises(errors.InvalidTxnState, match="from offset 0 is still open"):
        fixture.append(log, producer_id=1, epoch=0, sequence=1)


def test_a_control_record_without_its_value_is_refused(fixture: Any) -> None:
    log = fixture.open()
    marker = build_batch(
        [(control_key(ControlType.ABORT), b"\0\0")],
        timestamp_ms=fixture.now,
        producer_id=1,
        producer_epoch=0,
        control=True,
        transactional=True,
    )
    with pytest.raises(errors.InvalidRecord, match="without a coordinator epoch"):
        log.append(marker, leader_epoch=0, now_ms=fixture.now, origin="coordinator")


def test_control_records_that_end_no_transaction_are_stored(fixture: Any) -> None:
    log = fixture.open()
    batch = build_batch([(control_key(ControlType.LEADER_CHANGE), b"x")], timestamp_ms=fixture.now, control=True)
    log.append(batch, leader_epoch=1, now_ms=fixture.now, origin="coordinator")
    assert (fixture.crash(log).end_offset, len(log.producers)) == (1, 0)


def test_marker_on_a_replica_is_final_when_it_is_committed(fixture: Any, new_fixture: Any) -> None:
    other = new_fixture()
    leader, follower = other.open(), fixture.open(high_watermark=0)
    write(other, leader, 1)
    other.end(leader, 1, 0, commit=False)
    follower.append(leader.read_bytes(0, 1000), leader_epoch=-1, now_ms=0, origin="replica")
    seen = []
    for high_watermark in (0, 1, 2):
        follower.advance_high_watermark(high_watermark)
        seen.append((follower.high_watermark, follower.last_stable_offset))
    assert seen == [(0, 0), (1, 0), (2, 2)]
    assert committed(follower).aborted == [(1, 0)]
    other.close()


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_damaged_transaction_index_is_made_again(fixture: Any, damage: str) -> None:
    log = fixture.open()
    write(fixture, log, 1)
    log.roll()
    fixture.end(log, 1, 0, commit=False)
    for _ in range(2):
        write(fixture, log, 2)
        fixture.end(log, 2, 0, commit=False)
    before = committed(log, 1).aborted
    assert len(before) == 3
    log.close()
    path = fixture.path(f"{1:020}.txnindex")
    content = path.read_bytes()
    path.write_bytes(content[:-5] if damage == "cut" else content[:1] + b"\x09" + content[2:])
    log = fixture.open()
    assert committed(log, 1).aborted == before
    assert len(path.read_bytes()) == len(content)


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 3)),
        st.tuples(st.just("end"), st.integers(1, 3), st.booleans()),
        st.tuples(st.sampled_from(["plain", "roll", "reopen", "crash", "old crash", "flush"])),
        st.tuples(st.just("truncate"), st.floats(0, 1)),
    ),
    max_size=30,
)


class Model:
    """The log as a list of (kind, producer id), one offset each."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, int]] = []

    def transactions(self) -> tuple[dict[int, int], list[tuple[int, int, int]]]:
        """Return the open ones by producer and the aborted ones as (producer, first, last)."""
        opened: dict[int, int] = {}
        aborted = []
        for offset, (kind, producer_id) in enumerate(self.entries):
            if kind == "write":
                opened.setdefault(producer_id, offset)
            elif kind in ("commit", "abort") and producer_id in opened:
                first = opened.pop(producer_id)
                if kind == "abort":
                    aborted.append((producer_id, first, offset))
        return opened, aborted


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_STEPS)
def test_readers_of_committed_data_see_what_the_history_says(new_fixture: Any, steps: list[Any]) -> None:
    fixture = new_fixture()
    log, model = fixture.open(), Model()
    for kind, *arguments in steps:
        if kind == "write":
            write(fixture, log, arguments[0])
            model.entries.append(("write", arguments[0]))
        elif kind == "end":
            fixture.end(log, arguments[0], 0, commit=arguments[1])
            model.entries.append(("commit" if arguments[1] else "abort", arguments[0]))
        elif kind == "plain":
            fixture.append(log, b"plain")
            model.entries.append(("plain", 0))
        elif kind == "truncate":
            offset = round(arguments[0] * log.end_offset)
            log.truncate_to(offset)
            del model.entries[offset:]
        elif kind == "roll":
            log.roll()
        elif kind == "flush":
            log.flush()
        elif kind == "reopen":
            log = fixture.reopen(log)
        else:
            log = fixture.crash(log, recovery_point=0 if kind == "old crash" else None)
        _check(log, model)
    fixture.close()


def _check(log: Any, model: Model) -> None:
    opened, aborted = model.transactions()
    stable = min(opened.values(), default=len(model.entries))
    assert (log.end_offset, log.last_stable_offset) == (len(model.entries), stable)
    for offset in range(stable):
        read = committed(log, offset)
        following = [segment.base_offset for segment in log.segments if segment.base_offset > offset]
        end = min([*following, stable])
        expected = {(pid, first) for pid, first, last in aborted if last >= offset and first < end}
        assert set(read.aborted) == expected


def test_version_2_takes_a_repeated_marker_and_refuses_a_late_one(fixture: Any) -> None:
    log = fixture.open()
    write(fixture, log, 1, epoch=0)
    fixture.end(log, 1, 1, commit=True, transaction_version=2)
    fixture.end(log, 1, 1, commit=True, transaction_version=2)
    assert (log.last_stable_offset, log.end_offset) == (3, 3)
    write(fixture, log, 1, epoch=1, sequence=0)
    with pytest.raises(errors.InvalidProducerEpoch):
        fixture.end(log, 1, 1, commit=False, transaction_version=2)
    assert (log.last_stable_offset, log.end_offset) == (3, 4)
    fixture.end(log, 1, 2, commit=False, transaction_version=2)
    assert committed(log, 3).aborted == [(1, 3)]


def test_a_new_producer_of_version_2_begins_with_sequence_0(fixture: Any) -> None:
    log = fixture.open()

    def send(sequence: int) -> None:
        log.append(
            fixture.batch(b"x", producer_id=1, epoch=0, sequence=sequence, transactional=True),
            leader_epoch=0,
            now_ms=fixture.now,
            transaction_version=2,
        )

    with pytest.raises(errors.OutOfOrderSequenceNumber, match="begins with 0"):
        send(3)
    send(0)
    assert log.end_offset == 1


def test_a_coordinator_does_not_write_for_a_fenced_producer(fixture: Any) -> None:
    log = fixture.open()
    fixture.end(log, 1, 4, commit=False)
    offsets = fixture.batch(b"x", producer_id=1, epoch=3, transactional=True)
    with pytest.raises(errors.InvalidProducerEpoch):
        log.append(offsets, leader_epoch=0, now_ms=fixture.now, origin="coordinator")
    assert log.end_offset == 1


def test_the_guard_of_a_producer_changes_with_each_of_its_markers(fixture: Any) -> None:
    log = fixture.open()
    before = log.producers.guard(1)
    write(fixture, log, 1)
    assert (log.producers.guard(1), log.producers.is_in_transaction(1, 0)) == (before, True)
    fixture.end(log, 2, 0, commit=True)
    assert log.producers.guard(1) == before
    fixture.end(log, 1, 0, commit=True)
    assert (log.producers.guard(1) == before, log.producers.is_in_transaction(1, 0)) == (False, False)
