"""The fetch buffer: order, positions, limits, pauses, invalidated parts, memory."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.consumer.completed_fetch import BatchSlice, CompletedFetch, Frame
from pyclient.consumer.fetch_buffer import FetchBuffer
from pyclient.consumer.subscription import AssignedPartition, SubscriptionState
from pyclient.errors import CorruptBatch
from pyclient.records import build_batch, count_intact
from tests.consumer.consumer_samples import T0, T1, assigned, batch_of, compacted, marker, parse_records


def buffer_of(subscription: SubscriptionState, **options: int) -> FetchBuffer:
    return FetchBuffer(
        subscription,
        low_bytes=options.get("low_bytes", 1),
        high_bytes=options.get("high_bytes", 10**9),
        check_crcs=True,
    )


def answer(buffer: FetchBuffer, parts: Sequence[tuple[AssignedPartition, bytes]], node: int = 1) -> None:
    frame = Frame(node, sum(len(data) for _, data in parts))
    for state, data in parts:
        parsed = parse_records(memoryview(data), *state.topic_partition, max(state.fetch_offset, 0))
        state.fetch_offset = parsed.next_offset
        buffer.add(CompletedFetch(state, parsed, len(data), frame))


def offsets(slices: Sequence[BatchSlice]) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for piece in slices for record in piece.records()]


def test_parts_are_taken_in_order_and_positions_follow() -> None:
    subscription, (first, second) = assigned(T0, T1)
    buffer = buffer_of(subscription)
    answer(buffer, [(first, batch_of(0, 3)), (second, batch_of(0, 2))])
    assert offsets(buffer.take(4)) == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert (first.position, second.position) == (3, 1)
    assert offsets(buffer.take(4)) == [(1, 1)]
    assert buffer.take(4) == []


def test_position_moves_past_skipped_batches() -> None:
    subscription, (state,) = assigned(T0)
    buffer = buffer_of(subscription)
    answer(buffer, [(state, batch_of(0, 2) + marker(2, 7))])
    assert len(offsets(buffer.take(10))) == 2
    assert state.position == 3
    answer(buffer, [(state, marker(3, 7))])
    assert not buffer.has_records()
    assert buffer.take(10) == []
    assert state.position == 4


def test_fetch_offset_inside_a_batch_drops_earlier_records() -> None:
    subscription, (state,) = assigned(T0, position=2)
    buffer = buffer_of(subscription)
    answer(buffer, [(state, batch_of(0, 4))])
    assert offsets(buffer.take(10)) == [(0, 2), (0, 3)]


def test_seek_discards_fetched_data() -> None:
    subscription, (first, second) = assigned(T0, T1)
    buffer = buffer_of(subscription)
    answer(buffer, [(first, batch_of(0, 3)), (second, batch_of(0, 1))])
    first.start_at(1)
    assert offsets(buffer.take(10)) == [(1, 0)]
    assert first.position == 1
    assert (first.buffered, buffer.held(1), len(buffer)) == (0, 0, 0)


def test_revoked_partition_returns_nothing_even_if_reassigned() -> None:
    subscription, (state,) = assigned(T0)
    buffer = buffer_of(subscription)
    answer(buffer, [(state, batch_of(0, 3))])
    subscription.set_assignment([])
    subscription.set_assignment([T0])
    assert not buffer.has_records()
    buffer.drop_invalid()
    assert len(buffer) == 0
    assert buffer.held(1) == 0


def test_paused_partition_keeps_its_data_and_does_not_block_others() -> None:
    subscription, (first, second) = assigned(T0, T1)
    buffer = buffer_of(subscription)
    answer(buffer, [(first, batch_of(0, 2)), (second, batch_of(0, 2))])
    answer(buffer, [(first, batch_of(2, 1))])
    subscription.pause([T0])
    assert offsets(buffer.take(10)) == [(1, 0), (1, 1)]
    assert not buffer.has_records()
    assert buffer.take(10) == []
    subscription.resume([T0])
    assert offsets(buffer.take(10)) == [(0, 0), (0, 1), (0, 2)]


def test_paused_part_does_not_keep_a_large_response_in_memory() -> None:
    subscription, (first, second) = assigned(T0, T1)
    buffer = buffer_of(subscription)
    small, large = batch_of(0, 1), batch_of(0, 500)
    answer(buffer, [(first, small), (second, large)])
    subscription.pause([T0])
    buffer.take(1_000)
    assert buffer.held(1) == len(small)
    subscription.resume([T0])
    assert offsets(buffer.take(1)) == [(0, 0)]
    assert buffer.held(1) == 0


def test_memory_is_released_when_the_whole_response_is_taken() -> None:
    subscription, (first, second) = assigned(T0, T1)
    buffer = buffer_of(subscription)
    answer(buffer, [(first, batch_of(0, 3)), (second, batch_of(0, 3))])
    whole = buffer.held(1)
    buffer.take(3)
    assert (first.buffered, buffer.held(1)) == (0, whole)
    buffer.take(3)
    assert buffer.held(1) == 0


def test_wants_more_is_set_once_when_a_partition_runs_low() -> None:
    subscription, (state,) = assigned(T0)
    one = batch_of(0, 2)
    buffer = buffer_of(subscription, low_bytes=len(one) + 1)
    answer(buffer, [(state, one + batch_of(2, 2) + batch_of(4, 2))])
    for taken, wanted in ((2, False), (1, False), (1, True), (2, False)):
        buffer.wants_more = False
        buffer.take(taken)
        assert buffer.wants_more == wanted


def test_wants_more_is_set_when_memory_is_released() -> None:
    subscription, (first, second) = assigned(T0, T1)
    data = batch_of(0, 2)
    buffer = buffer_of(subscription, low_bytes=0, high_bytes=2 * len(data))
    answer(buffer, [(first, data)])
    answer(buffer, [(second, data)])
    assert not buffer.wants_more
    buffer.take(2)
    assert buffer.wants_more


def test_corrupt_batch_raises_at_its_position_until_a_seek() -> None:
    subscription, (state,) = assigned(T0)
    buffer = buffer_of(subscription)
    bad = bytearray(batch_of(2, 2))
    bad[-1] ^= 1
    answer(buffer, [(state, batch_of(0, 2) + bytes(bad) + batch_of(4, 1))])
    assert offsets(buffer.take(10)) == [(0, 0), (0, 1)]
    for _ in range(2):
        with pytest.raises(CorruptBatch) as caught:
            buffer.take(10)
        assert (caught.value.offset, caught.value.next_offset, state.position) == (2, 4, 2)
    state.start_at(caught.value.next_offset)
    assert buffer.take(10) == []
    answer(buffer, [(state, batch_of(4, 1))])
    assert offsets(buffer.take(10)) == [(0, 4)]


def test_garbage_after_good_batches_raises_once_they_are_taken() -> None:
    subscription, (state,) = assigned(T0)
    buffer = buffer_of(subscription)
    answer(buffer, [(state, batch_of(0, 2) + b"\xff" * 80)])
    assert buffer.has_records()
    assert len(offsets(buffer.take(10))) == 2
    assert buffer.has_records()
    with pytest.raises(CorruptBatch):
        buffer.take(10)


def test_unread_records_of_an_iteration_come_first() -> None:
    subscription, (first, second) = assigned(T0, T1)
    buffer = buffer_of(subscription)
    answer(buffer, [(first, batch_of(0, 6)), (second, batch_of(0, 1))])
    (piece,) = buffer.take(4)
    buffer.put_back(first, piece, 1)
    assert first.position == 1
    assert offsets(buffer.take(10)) == [(0, n) for n in range(1, 6)] + [(1, 0)]
    assert (first.position, first.buffered, buffer.held(1), buffer.held(-1)) == (6, 0, 0, 0)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 6), st.booleans()), max_size=8), st.data())
def test_any_sequence_of_polls_gives_every_record_once_and_in_order(
    script: list[tuple[int, int, bool]], data: st.DataObject
) -> None:
    subscription, states = assigned(T0, T1)
    buffer = buffer_of(subscription)
    expected: dict[int, list[int]] = {0: [], 1: []}
    for index, count, gaps in script:
        start = states[index].fetch_offset
        kept = [delta for delta in range(count) if delta % 2 == 0] if gaps else list(range(count))
        expected[index] += [start + delta for delta in kept]
        answer(buffer, [(states[index], compacted(start, kept, count) if gaps else batch_of(start, count))])
    seen: dict[int, list[int]] = {0: [], 1: []}
    while len(buffer):
        subscription.resume([T0, T1])
        subscription.pause(data.draw(st.sampled_from([[], [], [T0], [T1]])))
        limit = data.draw(st.integers(1, 5))
        slices = buffer.take(limit)
        taken = offsets(slices)
        if slices and data.draw(st.booleans()):  # an iteration stops inside its last slice
            rest = slices[-1].records()
            gone = data.draw(st.integers(0, len(rest) - 1))
            state = states[slices[-1].batch.partition]
            buffer.put_back(state, slices[-1], rest[gone].offset)
            taken = taken[: len(taken) - len(rest) + gone]
        for partition, offset in taken:
            seen[partition].append(offset)
    assert seen == expected
    assert [state.position for state in states] == [state.fetch_offset for state in states]
    assert [state.buffered for state in states] == [0, 0]
    assert (buffer.held(1), buffer.held(-1)) == (0, 0)


def large(first: int, count: int) -> bytes:
    return build_batch([(None, bytes(70_000))] * count, timestamp_ms=1, base_offset=first, leader_epoch=0)


def test_unchecked_batches_are_listed_in_the_order_of_taking() -> None:
    subscription, (first, second) = assigned(T0, T1)
    buffer = buffer_of(subscription)
    answer(buffer, [(first, large(0, 4) + large(4, 4)), (second, large(0, 4) + large(4, 4))])
    assert [batch.header.base_offset for batch in buffer.unchecked(12)] == [0, 4, 0]
    assert [batch.header.base_offset for batch in buffer.unchecked(4)] == [0]
    first.paused = True
    found = buffer.unchecked(100)
    assert [(batch.partition, batch.header.base_offset) for batch in found] == [(1, 0), (1, 4)]
    count_intact(found)
    assert all(batch.checked for batch in found)
    assert buffer.unchecked(100) == []
    assert len(buffer.take(100)) == 2


def test_batch_found_corrupt_ahead_is_raised_by_the_poll_that_reaches_it() -> None:
    subscription, (state,) = assigned(T0)
    buffer = buffer_of(subscription)
    data = bytearray(large(0, 4) + large(4, 4) + large(8, 4))
    data[len(data) // 2] ^= 1
    answer(buffer, [(state, bytes(data))])
    found = buffer.unchecked(100)
    count_intact(found)
    assert [batch.checked for batch in found] == [True, False, False]
    assert [piece.stop for piece in buffer.take(100)] == [4]
    with pytest.raises(CorruptBatch, match="offset 4"):
        buffer.take(100)
    assert state.position == 4
