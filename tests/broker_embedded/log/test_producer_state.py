"""Sequences, epochs and duplicates of idempotent producers (KIP-98), through the log and in the pure state."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyclient import errors
from pyclient.broker_embedded.log.producer_state_manager import (
    BatchMetadata,
    CorruptSnapshot,
    ProducerStateEntry,
    ProducerStateManager,
    parse_snapshot,
    render_snapshot,
)
from pyclient.records import BatchHeader

LAST = 2**31 - 1


def header(epoch: int = 0, sequence: int = 0, count: int = 1, **changes: Any) -> BatchHeader:
    """Return the header of a producer's batch."""
    values: dict[str, Any] = {
        "base_offset": 0,
        "size": 100,
        "leader_epoch": 0,
        "magic": 2,
        "crc": 0,
        "attributes": 0,
        "last_offset_delta": count - 1,
        "base_timestamp": 1000,
        "max_timestamp": 1000,
        "producer_id": 1,
        "producer_epoch": epoch,
        "base_sequence": sequence,
        "count": count,
    }
    return BatchHeader(**{**values, **changes})


def send(fixture: Any, log: Any, sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = 1) -> Any:
    """Append a batch of `count` records."""
    return fixture.append(log, *[b"v"] * count, producer_id=producer_id, epoch=epoch, sequence=sequence)


def test_sequences_follow_each_other(fixture: Any) -> None:
    log = fixture.open()
    assert [send(fixture, log, sequence, 3).base_offset for sequence in (0, 3, 6)] == [0, 3, 6]
    for sequence in (8, 10):
        with pytest.raises(errors.OutOfOrderSequenceNumber, match=f"sequence {sequence} came, 9 is next"):
            send(fixture, log, sequence, 2)
    assert log.end_offset == 9


def test_a_repeated_batch_gets_its_first_offset_again_and_is_not_written(fixture: Any) -> None:
    log = fixture.open()
    for sequence in range(0, 14, 2):
        send(fixture, log, sequence, 2)
    for sequence in (4, 6, 8, 10, 12):
        info = send(fixture, log, sequence, 2)
        assert (info.duplicate, info.base_offset, info.last_offset) == (True, sequence, sequence + 1)
        assert info.append_time_ms == fixture.now
    assert log.end_offset == 14


def test_only_the_last_five_batches_are_known_again(fixture: Any) -> None:
    log = fixture.open()
    for sequence in range(6):
        send(fixture, log, sequence)
    assert send(fixture, log, 1).duplicate
    with pytest.raises(errors.OutOfOrderSequenceNumber):
        send(fixture, log, 0)


def test_a_batch_with_other_records_is_no_duplicate(fixture: Any) -> None:
    log = fixture.open()
    send(fixture, log, 0, 3)
    with pytest.raises(errors.OutOfOrderSequenceNumber):
        send(fixture, log, 0, 2)


def test_an_unknown_producer_may_begin_anywhere(fixture: Any) -> None:
    log = fixture.open()
    assert send(fixture, log, 77).base_offset == 0
    assert send(fixture, log, 78).base_offset == 1


def test_a_new_epoch_begins_at_zero_and_forgets_the_old_one(fixture: Any) -> None:
    log = fixture.open()
    send(fixture, log, 0, 3)
    with pytest.raises(errors.OutOfOrderSequenceNumber, match="0 is next"):
        send(fixture, log, 3, epoch=1)
    assert not send(fixture, log, 0, 3, epoch=1).duplicate
    with pytest.raises(errors.InvalidProducerEpoch, match="newer instance has epoch 1"):
        send(fixture, log, 3, epoch=0)


def test_producers_do_not_disturb_each_other(fixture: Any) -> None:
    log = fixture.open()
    for producer_id in (1, 2):
        for sequence in (0, 1):
            assert not send(fixture, log, sequence, producer_id=producer_id).duplicate
    assert log.end_offset == 4


def test_sequences_begin_at_zero_again_after_the_largest(fixture: Any) -> None:
    log = fixture.open()
    send(fixture, log, LAST - 3, 3)
    send(fixture, log, LAST, 3)
    assert next(iter(log.producers)).last_sequence == 1
    assert send(fixture, log, LAST, 3).duplicate
    assert send(fixture, log, LAST - 3, 3).duplicate
    assert send(fixture, log, 2).base_offset == 6


def test_the_wrap_falls_between_batches_as_well(fixture: Any) -> None:
    log = fixture.open()
    send(fixture, log, LAST)
    assert send(fixture, log, 0).base_offset == 1
    assert send(fixture, log, LAST).duplicate


@pytest.mark.parametrize("how", ["clean", "crash", "no snapshot"])
def test_duplicates_are_known_after_a_restart(fixture: Any, how: str) -> None:
    log = fixture.open()
    for sequence in (0, 2, 4):
        send(fixture, log, sequence, 2)
    log = fixture.reopen(log) if how == "clean" else fixture.crash(log)
    assert send(fixture, log, 4, 2).duplicate
    assert not send(fixture, log, 6, 2).duplicate
    if how == "clean":  # a snapshot keeps the last batch of each producer only
        with pytest.raises(errors.OutOfOrderSequenceNumber):
            send(fixture, log, 0, 2)


def test_truncation_takes_sequences_back(fixture: Any) -> None:
    log = fixture.open()
    for sequence in range(4):
        send(fixture, log, sequence)
        log.roll()
    log.truncate_to(2)
    assert send(fixture, log, 2).base_offset == 2
    log.truncate_fully_and_start_at(9)
    assert send(fixture, log, 40).base_offset == 9


def test_a_producer_is_forgotten_a_day_after_its_last_batch(fixture: Any) -> None:
    fixture.configure(retention_ms=-1)
    log = fixture.open()
    send(fixture, log, 0)
    day = 86_400_000
    log.apply_retention(fixture.now + day - 1)
    assert len(log.producers) == 1
    log.apply_retention(fixture.now + day)
    assert len(log.producers) == 0
    assert not send(fixture, log, 0).duplicate


def test_a_producer_is_not_forgotten_inside_a_transaction() -> None:
    producers = ProducerStateManager("t-0")
    producers.add_batch(header(attributes=0x10), 0)
    assert producers.expire(10**15, 1) == 0
    producers.add_marker(header(attributes=0x30), 1, commit=True, coordinator_epoch=0)
    assert producers.expire(10**15, 1) == 1


def test_offsets_of_a_transaction_have_no_sequence(fixture: Any) -> None:
    """The group coordinator writes them for the producer, with a sequence of -1."""
    log = fixture.open()
    batch = fixture.batch(b"offset", key=b"k", producer_id=1, epoch=0, transactional=True)
    for _ in range(2):
        log.append(bytes(batch), leader_epoch=0, now_ms=fixture.now, origin="coordinator")
    assert (log.end_offset, log.last_stable_offset) == (2, 0)
    assert next(iter(log.producers)).last_sequence == -1


class Model:
    """A slow reference implementation of the broker's rules: all batches of a producer, as (epoch, sequences)."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, list[int], int]] = []
        self.end = 0

    def answer(self, epoch: int, sequences: list[int]) -> int | str:
        current = self.batches[-1][0] if self.batches else -1
        same = [batch for batch in self.batches if batch[0] == epoch == current]
        for _, known, offset in same[-5:]:
            if known[0] == sequences[0] and known[-1] == sequences[-1] and len(known) == len(sequences):
                return offset
        if epoch < current:
            return "InvalidProducerEpoch"
        expected = (same[-1][1][-1] + 1) % 2**31 if same else 0
        if self.batches and sequences[0] != expected:
            return "OutOfOrderSequenceNumber"
        self.batches.append((epoch, sequences, self.end))
        self.end += len(sequences)
        return self.batches[-1][2]


@settings(deadline=None)
@given(
    st.integers(0, 3).map(lambda back: 2**31 - 1 - back),
    st.lists(st.tuples(st.integers(0, 2), st.integers(-9, 9), st.integers(1, 3)), max_size=40),
)
def test_producer_state_agrees_with_a_model(first: int, steps: list[tuple[int, int, int]]) -> None:
    producers, model, following = ProducerStateManager("t-0"), Model(), first
    for epoch, shift, count in steps:
        sequence = (following + (shift if abs(shift) > 5 else 0)) % 2**31 if shift % 3 else 0
        sequences = [(sequence + index) % 2**31 for index in range(count)]
        batch, at = header(epoch, sequence, count), model.end
        expected = model.answer(epoch, sequences)
        duplicate = producers.duplicate_of(batch)
        if duplicate is not None:
            assert duplicate.first_offset == expected < at
        elif isinstance(expected, str):
            with pytest.raises(getattr(errors, expected)):
                producers.check_batch(batch)
        else:
            producers.check_batch(batch)
            producers.add_batch(batch, at)
            assert expected == at
            following = (sequences[-1] + 1) % 2**31


_ENTRIES = st.lists(
    st.builds(
        ProducerStateEntry,
        st.integers(0, 2**63 - 1),
        st.integers(0, 2**15 - 1),
        batches=st.lists(
            st.builds(
                BatchMetadata,
                st.integers(0, LAST),
                st.integers(0, 2**62),
                st.integers(0, 2**20),
                st.just(5),
            ),
            max_size=2,
        ),
        coordinator_epoch=st.integers(-1, 100),
        last_timestamp=st.just(5),
        transaction_start=st.integers(-1, 2**62),
    ),
    max_size=5,
)


def facts(entry: ProducerStateEntry) -> tuple[Any, ...]:
    """Return the fields of an entry that a snapshot keeps."""
    known = entry.producer_id, entry.epoch, entry.coordinator_epoch, entry.last_timestamp, entry.transaction_start
    return *known, entry.batches[-1:]


@given(_ENTRIES)
def test_a_snapshot_keeps_the_last_batch_of_every_producer(entries: list[ProducerStateEntry]) -> None:
    assert [facts(entry) for entry in parse_snapshot(render_snapshot(entries))] == [facts(entry) for entry in entries]


def test_truncated_or_changed_snapshot_is_refused() -> None:
    content = render_snapshot([ProducerStateEntry(1, 2, batches=[BatchMetadata(3, 4, 0, 5)])])
    for size in range(len(content)):
        with pytest.raises(CorruptSnapshot):
            parse_snapshot(content[:size])
    for at in range(len(content)):
        with pytest.raises(CorruptSnapshot):
            parse_snapshot(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    with pytest.raises(CorruptSnapshot):
        parse_snapshot(content + b"\0")


def test_repr_shows_producer_states() -> None:
    producers = ProducerStateManager("t-0")
    producers.add_batch(header(sequence=5, attributes=0x10), 7)
    assert repr(producers) == "<ProducerStateManager t-0 producers=1 open=1>"
    assert repr(producers.get(1)) == "<ProducerStateEntry 1 epoch=0 last_sequence=5 transaction_start=7>"
