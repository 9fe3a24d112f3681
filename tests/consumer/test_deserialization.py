"""Deserialization of a poll: records are returned, skipped or given back."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient import serialization
from pyclient.consumer.completed_fetch import BatchSlice
from pyclient.consumer.deserialization import Deserializers, PolledSlices
from pyclient.errors import DeserializationError, PoisonRecord, SerializationError
from pyclient.records import Record, build_batch
from tests.consumer.consumer_samples import batch_of, fetched


def slice_of(first: int, count: int, partition: int = 0) -> BatchSlice:
    """Return records whose values are their offsets."""
    return fetched(batch_of(first, count), "t", partition).take(first, first + count, count)


def number_except(*poison: int) -> Callable[[bytes], int]:
    def number(data: bytes) -> int:
        if int(data) in poison:
            raise ValueError(f"not {int(data)}")
        return int(data)

    return number


def made(work: PolledSlices) -> list[tuple[int, int]]:
    return [(record.partition, record.value) for piece in work.done for record in piece.records()]


def test_missing_key_or_value_is_not_deserialized() -> None:
    batch = fetched(build_batch([(None, None)], timestamp_ms=0))
    both = Deserializers(serialization.string.deserialize, serialization.json.deserialize)
    [raw] = batch.records()
    record = both.apply(raw)
    assert (record.key, record.value) == (None, None)


@pytest.mark.parametrize("origin", ["key", "value"])
def test_error_has_the_fields_for_a_dead_letter_topic(origin: str) -> None:
    raw: Record[Any, Any] = Record("t", 3, 6, 1234, 0, 1, b"k", b"v", (("h", b"w"),))
    broken = {origin: number_except()}
    with pytest.raises(DeserializationError, match=rf"t-3 offset 6: the {origin} cannot be deserialized") as caught:
        Deserializers(**broken).apply(raw)
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert isinstance(error, PoisonRecord)
        assert isinstance(error, SerializationError)
        assert (error.topic, error.partition, error.offset, error.next_offset) == ("t", 3, 6, 7)
        assert (error.origin, error.key, error.value, error.headers) == (origin, b"k", b"v", (("h", b"w"),))
        assert error.timestamp_ms == 1234
    assert isinstance(caught.value.__cause__, ValueError)


def test_stopped_partition_gives_back_the_record_and_its_successors() -> None:
    work = PolledSlices([slice_of(0, 4), slice_of(0, 3, 1), slice_of(4, 2)], Deserializers(None, number_except(2)))
    error = work.run()
    assert error is not None
    assert error.offset == 2
    work.stop()
    error = work.run()
    assert error is not None
    assert (error.partition, error.offset) == (1, 2)
    work.stop()
    assert work.run() is None
    assert made(work) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    places = [(piece.topic_partition.partition, offset) for piece, offset in work.unread]
    assert places == [(0, 2), (0, 4), (1, 2)]


def test_skipped_record_is_left_out_of_records_and_columns() -> None:
    work = PolledSlices([slice_of(0, 4), slice_of(4, 1)], Deserializers(None, number_except(0, 2, 4)))
    while (error := work.run()) is not None:
        work.skip(error)
    assert made(work) == [(0, 1), (0, 3)]
    assert [error.offset for errors in work.skipped.values() for error in errors] == [0, 2, 4]
    assert work.unread == []
    columns, first, last = work.done[0].rows()
    assert memoryview(columns.offsets).cast("B").cast("q")[first:last].tolist() == [1]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=6), st.sets(st.integers(0, 12)), st.data())
def test_every_record_is_deserialized_skipped_or_given_back(
    shape: list[tuple[int, int]], poison: set[int], data: st.DataObject
) -> None:
    ends = {0: 0, 1: 0, 2: 0}
    slices = []
    for partition, count in shape:
        slices.append(slice_of(ends[partition], count, partition))
        ends[partition] += count
    work = PolledSlices(slices, Deserializers(None, number_except(*poison)))
    while (error := work.run()) is not None:
        if data.draw(st.booleans()):
            work.skip(error)
        else:
            work.stop()
    returned = made(work)
    skipped = [(error.partition, error.offset) for errors in work.skipped.values() for error in errors]
    back = [
        (piece.topic_partition.partition, record.offset)
        for piece, offset in work.unread
        for record in piece.records()
        if record.offset >= offset
    ]
    assert sorted(returned + skipped + back) == [(p, n) for p, end in ends.items() for n in range(end)]
    for partition in ends:
        places = [[offset for where, offset in some if where == partition] for some in (returned + skipped, back)]
        assert max(places[0], default=-1) < min(places[1], default=99)
