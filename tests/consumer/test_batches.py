"""Fetched batches: counted without decoding, sliced, checked; control and aborted batches are skipped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.consumer import completed_fetch
from pyclient.errors import CorruptBatch, CorruptRecord
from tests.consumer.consumer_samples import (
    ABORT,
    COMMIT,
    Compression,
    batch_of,
    compacted,
    fetched,
    marker,
    parse_records,
)


def offsets(data: bytes, fetch_offset: int = 0, aborted: tuple[tuple[int, int], ...] = ()) -> list[int]:
    parsed = parse_records(memoryview(data), "t", 0, fetch_offset, aborted)
    assert parsed.error is None
    return [record.offset for batch in parsed.batches for record in batch.records()]


def test_dense_batch_is_counted_without_decoding() -> None:
    batch = fetched(batch_of(10, 5)[:-1] + b"?")  # its records are invalid, and are not accessed
    piece = batch.take(12, 15, 100)
    assert (piece.start, piece.stop, piece.count) == (12, 15, 3)


def test_batch_with_gaps_is_counted_by_its_records() -> None:
    batch = fetched(compacted(10, [1, 4], 6))
    assert not batch.dense
    first = batch.take(10, 16, 1)
    assert ([r.offset for r in first.records()], first.stop) == ([11], 14)
    rest = batch.take(first.stop, 16, 10)
    assert ([r.offset for r in rest.records()], rest.stop) == ([14], 16)


@given(st.integers(1, 20), st.integers(0, 19), st.integers(1, 7), st.booleans())
def test_cutting_a_batch_in_any_way_gives_every_record_once(count: int, begin: int, limit: int, gaps: bool) -> None:
    kept = [delta for delta in range(count) if not gaps or delta % 3 != 1] or [0]
    batch = fetched(compacted(100, kept, count) if gaps else batch_of(100, count))
    position, seen = 100 + min(begin, count - 1), []
    expected = [100 + delta for delta in kept if 100 + delta >= position]
    while position < 100 + count:
        piece = batch.take(position, 100 + count, limit)
        assert len(piece.records()) == piece.count <= limit
        seen += [record.offset for record in piece.records()]
        assert piece.stop > position
        position = piece.stop
    assert seen == expected
    assert position == 100 + count


def test_wrong_crc_error_names_the_batch_and_next_offset() -> None:
    data = bytearray(batch_of(10, 3))
    data[-1] ^= 1
    with pytest.raises(CorruptBatch, match=r"t-0: batch at offset 10: its CRC is") as caught:
        fetched(bytes(data)).check(crcs=True)
    assert isinstance(caught.value, CorruptRecord)
    assert (caught.value.topic, caught.value.partition, caught.value.offset, caught.value.next_offset) == (
        "t",
        0,
        10,
        13,
    )


def test_undecodable_batch_raises_when_accessed() -> None:
    data = bytearray(batch_of(10, 3))
    data[57:61] = (7).to_bytes(4, "big")
    with pytest.raises(CorruptBatch):
        fetched(bytes(data)).records()


def test_parse_returns_whole_batches_from_the_fetch_offset() -> None:
    data = batch_of(0, 3) + batch_of(3, 3, compression=Compression.GZIP) + batch_of(6, 3)
    parsed = parse_records(memoryview(data[:-1]), "t", 0, 4)
    assert [batch.header.base_offset for batch in parsed.batches] == [3]
    assert parsed.next_offset == 6
    assert parse_records(memoryview(b""), "t", 0, 4).next_offset == 4


@given(st.integers(0, 400))
def test_truncated_response_gives_whole_batches_or_none(cut: int) -> None:
    data = batch_of(0, 2) + batch_of(2, 2) + batch_of(4, 2)
    parsed = parse_records(memoryview(data[:cut]), "t", 0, 0)
    assert parsed.error is None
    assert parsed.next_offset == 2 * len(parsed.batches)


def test_decreasing_offsets_raise_after_the_good_batches() -> None:
    parsed = parse_records(memoryview(batch_of(0, 3) + batch_of(1, 2)), "t", 0, 0)
    assert [batch.header.base_offset for batch in parsed.batches] == [0]
    assert parsed.error is not None
    assert (parsed.error.offset, parsed.next_offset) == (3, 3)


def test_garbage_after_good_batches_raises_at_its_offset() -> None:
    parsed = parse_records(memoryview(batch_of(0, 3) + b"\xff" * 80), "t", 0, 0)
    assert len(parsed.batches) == 1
    assert parsed.error is not None
    assert "t-0: fetched from offset 3" in str(parsed.error)


def test_control_batches_are_skipped_and_advance_the_offset() -> None:
    parsed = parse_records(memoryview(batch_of(0, 2) + marker(2, 7)), "t", 0, 0)
    assert [batch.header.base_offset for batch in parsed.batches] == [0]
    assert parsed.next_offset == 3


def transaction(base_offset: int, count: int, producer_id: int) -> bytes:
    return batch_of(base_offset, count, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)


def test_aborted_transactions_are_left_out_up_to_their_marker() -> None:
    data = (
        transaction(0, 2, 7)
        + transaction(2, 1, 8)
        + batch_of(3, 1)
        + marker(4, 7, ABORT)
        + marker(5, 8, COMMIT)
        + transaction(6, 1, 7)
    )
    assert offsets(data) == [0, 1, 2, 3, 6]
    assert offsets(data, aborted=((7, 0),)) == [2, 3, 6]


def test_aborted_transactions_may_be_listed_in_any_order() -> None:
    data = (
        transaction(0, 1, 7) + marker(1, 7) + transaction(2, 1, 8) + marker(3, 8) + transaction(4, 1, 7) + marker(5, 7)
    )
    for aborted in (((7, 0), (7, 4)), ((7, 4), (7, 0))):
        assert offsets(data, aborted=aborted) == [2]


def test_two_abort_markers_for_one_transaction_do_no_harm() -> None:
    data = transaction(0, 1, 7) + marker(1, 7) + marker(2, 7) + transaction(3, 1, 7)
    assert offsets(data, aborted=((7, 0),)) == [3]


def test_marker_of_an_unknown_kind_is_skipped_and_a_short_one_is_corrupt() -> None:
    data = transaction(0, 1, 7)
    assert offsets(data + marker(1, 7, b"\0\0\0\x63") + transaction(2, 1, 7), aborted=((7, 0),)) == []
    parsed = parse_records(memoryview(data + marker(1, 7, b"\0")), "t", 0, 0, ((7, 0),))
    assert parsed.error is not None


@given(st.binary(max_size=200))
def test_arbitrary_bytes_give_batches_or_one_error(data: bytes) -> None:
    parsed = parse_records(memoryview(data), "t", 0, 5)
    assert parsed.next_offset >= 5


def _find_none(
    kind: type, topic: str, partition: int, buffer: memoryview, position: int, next_offset: int, *_: object
) -> tuple[int, int, int]:
    return position, next_offset, -1


@given(data=st.data())
def test_bulk_parse_equals_batch_by_batch_parse(data: st.DataObject) -> None:
    parts, offset = [], data.draw(st.integers(0, 3))
    for _ in range(data.draw(st.integers(0, 7))):
        one = data.draw(
            st.sampled_from(("plain", "packed", "gaps", "transaction", "other transaction", "marker", "older"))
        )
        if one == "marker":
            parts.append(marker(offset, 7, data.draw(st.sampled_from((ABORT, COMMIT)))))
        elif one == "gaps":
            parts.append(compacted(offset, [0, 2], 3))
        elif one.endswith("transaction"):
            producer_id = 7 if one == "transaction" else 8
            parts.append(batch_of(offset, 3, producer_id=producer_id, producer_epoch=0, transactional=True))
        elif one == "packed":
            parts.append(batch_of(offset, 3, compression=Compression.GZIP))
        else:
            parts.append(batch_of(offset if one == "plain" else max(0, offset - 3), 3))
        offset += data.draw(st.integers(1, 5))
    answer = bytearray(b"".join(parts))
    if answer and data.draw(st.booleans()):
        answer[data.draw(st.integers(0, len(answer) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    cut = memoryview(bytes(answer[: data.draw(st.integers(0, len(answer)))]))
    fetch_offset = data.draw(st.integers(0, 5))
    aborted = data.draw(st.lists(st.tuples(st.sampled_from((7, 8)), st.integers(0, 12)), max_size=3))
    quick = parse_records(cut, "t", 0, fetch_offset, aborted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(completed_fetch, "find_batches", _find_none)
        slow = parse_records(cut, "t", 0, fetch_offset, aborted)
    assert [batch.header for batch in quick.batches] == [batch.header for batch in slow.batches]
    assert [batch.position for batch in quick.batches] == [batch.position for batch in slow.batches]
    assert (quick.next_offset, quick.last_epoch) == (slow.next_offset, slow.last_epoch)
    assert str(quick.error) == str(slow.error)
