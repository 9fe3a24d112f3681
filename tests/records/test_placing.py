"""`find_batches` finds the ordinary batches at the start of a buffer in one call."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.errors import TruncatedMessage
from pyclient.records import (
    HEADER_SIZE,
    Compression,
    ControlType,
    build_batch,
    control_key,
    read_header,
    stamp_offsets,
)
from pyclient.records.batch import CONTROL, TRANSACTIONAL

Aborts = tuple[list[tuple[int, int]], set[int]]
"""First offset and producer id of each aborted transaction, the nearest last; the producers inside of one."""

FIELDS = ("topic", "partition", "position", "base_offset", "next_offset", "count", "size", "leader_epoch", "dense")


def batch(base: int, count: int, compression: Compression = Compression.NONE) -> bytes:
    """Return a batch of `count` records from offset `base` on, in leader epoch 5."""
    made = bytearray(
        build_batch([(None, b"v" * number) for number in range(count)], compression=compression, timestamp_ms=1)
    )
    stamp_offsets(made, 0, base, 5)
    return bytes(made)


def changed(data: bytes, code: str, at: int, value: int) -> bytes:
    """Return the data with one number replaced."""
    copy = bytearray(data)
    struct.pack_into(code, copy, at, value)
    return bytes(copy)


def find(
    twin: Any, data: Any, position: int = 0, next_offset: int = 0, aborts: Aborts | None = None
) -> tuple[int, int, list[Any], int]:
    """Return position, next offset, batches, and the epoch of the last one that was left out."""
    found: list[Any] = []
    place = (twin.module.PlacedBatch, "t", 3, data, position, next_offset, found)
    position, end_offset, left_out = twin.module.find_batches(*place, *(aborts or ()))
    return position, end_offset, found, left_out


def numbers(found: list[Any]) -> list[tuple[Any, ...]]:
    return [tuple(getattr(each, name) for name in FIELDS) for each in found]


GOOD = [batch(0, 3), batch(3, 1, Compression.GZIP), batch(10, 2)]


def test_consecutive_batches_are_found_with_their_header_fields(twin: Any) -> None:
    data = memoryview(b"".join(GOOD))
    position, end_offset, found, _ = find(twin, data)
    assert (position, end_offset) == (len(data), 12)
    starts = [0, len(GOOD[0]), len(GOOD[0]) + len(GOOD[1])]
    placed = [twin.module.PlacedBatch("t", 3, data, start, read_header(data, start)) for start in starts]
    assert numbers(found) == numbers(placed)
    assert [each.header for each in found] == [each.header for each in placed]
    assert [(each.checked, each.kept, each.buffer is data) for each in found] == [(False, None, True)] * 3
    assert [each.dense for each in found] == [True, True, True]
    assert found[0].leader_epoch == 5


def test_find_batches_starts_at_any_position_and_keeps_earlier_results(twin: Any) -> None:
    data = b"".join(GOOD)
    found: list[Any] = ["before"]
    stopped = twin.module.find_batches(twin.module.PlacedBatch, "t", 0, data, len(GOOD[0]), 3, found)
    assert (stopped, found[0], numbers(found[1:])[0][2]) == ((len(data), 12, -1), "before", len(GOOD[0]))


def test_find_batches_returns_requested_class(twin: Any) -> None:
    class Mine(twin.module.PlacedBatch):  # type: ignore[misc]
        __slots__ = ()

    found: list[Any] = []
    twin.module.find_batches(Mine, "t", 0, GOOD[0], 0, 0, found)
    assert type(found[0]) is Mine


def test_find_batches_stops_before_batch_truncated_anywhere(twin: Any) -> None:
    first, data = len(GOOD[0]), GOOD[0] + GOOD[2]
    for end in range(first, len(data)):
        position, end_offset, found, _ = find(twin, memoryview(data[:end]))
        assert (position, end_offset, len(found)) == (first, 3, 1)
    for end in range(first):
        assert find(twin, data[:end])[0] == 0


@pytest.mark.parametrize(
    ("code", "at", "value"),
    [
        (">b", 16, 0), (">b", 16, 1), (">b", 16, 3), (">b", 16, -1),  # magic
        (">h", 21, TRANSACTIONAL), (">h", 21, CONTROL), (">h", 21, -1),
        (">i", 8, 0), (">i", 8, -1), (">i", 8, -(2**31)), (">i", 8, 2**31 - 1), (">i", 8, HEADER_SIZE - 13),
        (">i", 57, 0), (">i", 57, -1), (">i", 57, -(2**31)),  # record count
        (">q", 0, -1), (">q", 0, -(2**63)), (">q", 0, 2**63 - 1), (">q", 0, 2**63 - 2**32), (">q", 0, 1),
        (">i", 23, -(2**31)), (">i", 23, -8),  # the last offset delta
    ],
)  # fmt: skip
def test_find_batches_stops_before_special_or_earlier_batch(twin: Any, code: str, at: int, value: int) -> None:
    position, end_offset, found, _ = find(twin, GOOD[0] + changed(GOOD[2], code, at, value) + GOOD[2])
    assert (position, end_offset, len(found)) == (len(GOOD[0]), 3, 1)


def of_producer(data: bytes, producer_id: int, attributes: int = TRANSACTIONAL) -> bytes:
    """Return a batch as one of a producer's transaction."""
    return changed(changed(data, ">h", 21, attributes), ">q", 43, producer_id)


def marker(offset: int, producer_id: int, key: bytes | None, count: int = 1) -> bytes:
    """Return a control batch in leader epoch 6 whose records have that key."""
    made = bytearray(build_batch([(key, b"\0" * 6)] * count, compression=Compression.NONE, timestamp_ms=1))
    stamp_offsets(made, 0, offset, 6)
    return of_producer(bytes(made), producer_id, TRANSACTIONAL | CONTROL)


ABORT, COMMIT = control_key(ControlType.ABORT), control_key(ControlType.COMMIT)


def test_find_batches_leaves_out_markers_and_aborted_transactions(twin: Any) -> None:
    parts = [
        of_producer(batch(0, 2), 7), of_producer(batch(2, 1), 8), batch(3, 1), marker(4, 8, COMMIT),
        marker(5, 7, ABORT),
        of_producer(batch(6, 1), 7), marker(7, 7, COMMIT), of_producer(batch(8, 1), 8), marker(9, 8, ABORT),
    ]  # fmt: skip
    data = memoryview(b"".join(parts))
    everything: Aborts = ([], set())
    position, end_offset, found, left_out = find(twin, data, aborts=everything)
    assert (position, end_offset, left_out) == (len(data), 10, 6)
    assert [each.base_offset for each in found] == [0, 2, 3, 6, 8]
    aborts: Aborts = ([(8, 8), (0, 7)], set())
    position, end_offset, found, left_out = find(twin, data, aborts=aborts)
    assert (position, end_offset, left_out) == (len(data), 10, 6)
    assert [each.base_offset for each in found] == [2, 3, 6]
    assert aborts == ([], set())


def test_find_batches_goes_on_inside_of_an_aborted_transaction(twin: Any) -> None:
    parts = [of_producer(batch(0, 1), 7), of_producer(batch(1, 1), 7), marker(2, 7, ABORT), of_producer(batch(3, 1), 7)]
    aborts: Aborts = ([(0, 7)], set())
    assert find(twin, b"".join(parts[:1]), aborts=aborts)[1:] == (1, [], 5)
    assert aborts == ([], {7})
    rest = b"".join(parts[1:])
    position, end_offset, found, left_out = find(twin, rest, 0, 1, aborts)
    assert (position, end_offset, left_out, [each.base_offset for each in found]) == (len(rest), 4, 6, [3])
    assert aborts == ([], set())


@pytest.mark.parametrize(
    "control",
    [
        marker(1, 7, None), marker(1, 7, ABORT[:3]), marker(1, 7, b"\xff\xff\0\0"), marker(1, 7, ABORT, 2),
        of_producer(marker(1, 7, ABORT), 7, TRANSACTIONAL | CONTROL | Compression.GZIP),
        of_producer(marker(1, 7, ABORT), 7, TRANSACTIONAL | CONTROL | 7),
        changed(marker(1, 7, ABORT), ">b", HEADER_SIZE, 127), marker(1, 7, ABORT)[:-1] + b"\2",
    ],
)  # fmt: skip
def test_find_batches_stops_before_unreadable_marker_of_aborted_producer(twin: Any, control: bytes) -> None:
    data = of_producer(batch(0, 1), 7) + control
    aborts: Aborts = ([(0, 7)], set())
    assert find(twin, data, aborts=aborts) == (len(data) - len(control), 1, [], 5)
    assert aborts == ([], {7})
    assert find(twin, data, aborts=([], set()))[1] == 2 + (control[57:61] == b"\0\0\0\2")


@pytest.mark.parametrize("kind", [2, 99, -1, 2**15 - 1])
def test_marker_of_unknown_type_ends_no_transaction(twin: Any, kind: int) -> None:
    data = of_producer(batch(0, 1), 7) + marker(1, 7, struct.pack(">hh", 0, kind)) + of_producer(batch(2, 1), 7)
    aborts: Aborts = ([(0, 7)], set())
    assert find(twin, data, aborts=aborts) == (len(data), 3, [], 5)
    assert aborts == ([], {7})


@pytest.mark.parametrize("position", [-1, -(10**6), 10**6])
def test_position_outside_buffer_finds_nothing(twin: Any, position: int) -> None:
    assert find(twin, GOOD[0], position, 7) == (position, 7, [], -1)


def test_batch_with_gaps_is_not_dense(twin: Any) -> None:
    assert not find(twin, changed(GOOD[2], ">i", 23, 5))[2][0].dense


@pytest.mark.parametrize("size", [0, 20, HEADER_SIZE, len(GOOD[0]) - 1])
def test_non_bytes_buffer_is_not_read_past_its_end(twin: Any, size: int) -> None:
    _, _, [found], _ = find(twin, memoryview(GOOD[0]))
    found.buffer = memoryview(GOOD[0])[:size]
    if size >= HEADER_SIZE:
        assert twin.ColumnsBuilder().add_many([(found, 0, 9)]) == 0
        assert twin.module.count_intact([found]) == 0
    else:
        with pytest.raises(TruncatedMessage):
            read_header(found.buffer)


@given(data=st.data())
def test_both_twins_find_the_same_batches_in_random_bytes(twins: tuple[Any, Any], data: st.DataObject) -> None:
    pieces = [
        *GOOD, batch(20, 1), of_producer(batch(22, 2), 7), marker(24, 7, ABORT), marker(25, 8, ABORT),
        of_producer(batch(26, 2), 8), marker(28, 7, COMMIT), b"\0" * 61, b"\xff" * 70,
    ]  # fmt: skip
    parts = data.draw(st.lists(st.sampled_from(pieces), max_size=6))
    content = bytearray(b"".join(parts))
    for _ in range(data.draw(st.integers(0, 4))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(content[: data.draw(st.integers(0, len(content)))])
    start = data.draw(st.integers(0, 70))
    upcoming = data.draw(st.lists(st.tuples(st.integers(0, 30), st.sampled_from([7, 8])), max_size=3))
    outcomes = []
    for twin in twins:
        aborts: Aborts = (sorted(upcoming, reverse=True), set())
        position, end_offset, found, left_out = find(twin, cut, start, aborts=aborts)
        outcomes.append((position, end_offset, left_out, numbers(found), aborts))
    assert outcomes[0] == outcomes[1]
