"""`find_batches` finds the ordinary batches at the start of a buffer in one call."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.errors import TruncatedMessage
from pyclient.records import HEADER_SIZE, Compression, build_batch, read_header, stamp_offsets
from pyclient.records.batch import CONTROL, TRANSACTIONAL

FIELDS = ("topic", "partition", "position", "base_offset", "next_offset", "count", "size", "leader_epoch", "dense")


def batch(base: int, count: int, compression: Compression = Compression.NONE) -> bytes:
    """`count` records from offset `base` on, in leader epoch 5."""
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


def find(twin: Any, data: Any, position: int = 0, next_offset: int = 0, until: int = 0) -> tuple[int, int, list[Any]]:
    found: list[Any] = []
    stopped = twin.module.find_batches(twin.module.PlacedBatch, "t", 3, data, position, next_offset, found, until)
    return *stopped, found


def numbers(found: list[Any]) -> list[tuple[Any, ...]]:
    return [tuple(getattr(each, name) for name in FIELDS) for each in found]


GOOD = [batch(0, 3), batch(3, 1, Compression.GZIP), batch(10, 2)]


def test_consecutive_batches_are_found_with_their_header_fields(twin: Any) -> None:
    data = memoryview(b"".join(GOOD))
    position, end_offset, found = find(twin, data)
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
    assert (stopped, found[0], numbers(found[1:])[0][2]) == ((len(data), 12), "before", len(GOOD[0]))


def test_find_batches_returns_requested_class(twin: Any) -> None:
    class Mine(twin.module.PlacedBatch):  # type: ignore[misc]
        __slots__ = ()

    found: list[Any] = []
    twin.module.find_batches(Mine, "t", 0, GOOD[0], 0, 0, found)
    assert type(found[0]) is Mine


def test_find_batches_stops_before_batch_truncated_anywhere(twin: Any) -> None:
    first, data = len(GOOD[0]), GOOD[0] + GOOD[2]
    for end in range(first, len(data)):
        position, end_offset, found = find(twin, memoryview(data[:end]))
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
    position, end_offset, found = find(twin, GOOD[0] + changed(GOOD[2], code, at, value) + GOOD[2])
    assert (position, end_offset, len(found)) == (len(GOOD[0]), 3, 1)


def test_transactional_batches_are_found_until_an_offset(twin: Any) -> None:
    parts = [
        GOOD[0], changed(GOOD[1], ">h", 21, TRANSACTIONAL | Compression.GZIP),
        changed(batch(4, 1), ">h", 21, TRANSACTIONAL | CONTROL), changed(GOOD[2], ">h", 21, TRANSACTIONAL),
    ]  # fmt: skip
    data = b"".join(parts)
    for until, whole, end_offset in ((3, 1, 3), (4, 2, 4), (5, 2, 4), (11, 2, 4), (12, 4, 12), (2**63 - 1, 4, 12)):
        position, stopped, found = find(twin, data, until=until)
        assert (position, stopped) == (sum(map(len, parts[:whole])), end_offset)
        assert [each.base_offset for each in found] == [0, 3, 10][: whole - (whole > 2)]


@pytest.mark.parametrize("position", [-1, -(10**6), 10**6])
def test_position_outside_buffer_finds_nothing(twin: Any, position: int) -> None:
    assert find(twin, GOOD[0], position, 7) == (position, 7, [])


def test_batch_with_gaps_is_not_dense(twin: Any) -> None:
    assert not find(twin, changed(GOOD[2], ">i", 23, 5))[2][0].dense


@pytest.mark.parametrize("size", [0, 20, HEADER_SIZE, len(GOOD[0]) - 1])
def test_non_bytes_buffer_is_not_read_past_its_end(twin: Any, size: int) -> None:
    _, _, [found] = find(twin, memoryview(GOOD[0]))
    found.buffer = memoryview(GOOD[0])[:size]
    if size >= HEADER_SIZE:
        assert twin.ColumnsBuilder().add_many([(found, 0, 9)]) == 0
        assert twin.module.count_intact([found]) == 0
    else:
        with pytest.raises(TruncatedMessage):
            read_header(found.buffer)


@given(data=st.data())
def test_both_twins_find_the_same_batches_in_random_bytes(twins: tuple[Any, Any], data: st.DataObject) -> None:
    parts = data.draw(
        st.lists(
            st.sampled_from(
                [*GOOD, batch(20, 1), changed(batch(22, 2), ">h", 21, TRANSACTIONAL), b"\0" * 61, b"\xff" * 70]
            ),
            max_size=6,
        )
    )
    content = bytearray(b"".join(parts))
    for _ in range(data.draw(st.integers(0, 4))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(content[: data.draw(st.integers(0, len(content)))])
    start, until = data.draw(st.integers(0, 70)), data.draw(st.sampled_from([0, 4, 2**63 - 1]))
    compiled, pure = (find(twin, cut, start, until=until) for twin in twins)
    assert compiled[:2] == pure[:2]
    assert numbers(compiled[2]) == numbers(pure[2])
