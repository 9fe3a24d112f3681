"""Records: a lazily decoded sequence that converts to columns."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.consumer.records import Records
from pyclient.errors import CorruptBatch
from pyclient.types import OffsetAndMetadata, TopicPartition
from tests.consumer.consumer_samples import Compression, batch_of, compacted, fetched


def records_of(*pieces: tuple[bytes, str, int, int, int]) -> Records[Any, Any]:
    """Return the records of each (batch, topic, partition, from offset, limit)."""
    slices = []
    for data, topic, partition, start, limit in pieces:
        batch = fetched(data, topic, partition)
        slices.append(batch.take(start, batch.header.next_offset, limit))
    return Records(slices)


def two_partitions() -> Records[Any, Any]:
    return records_of((batch_of(0, 3), "t", 0, 1, 10), (batch_of(7, 2), "t", 1, 7, 1), (batch_of(3, 1), "t", 0, 3, 9))


def test_records_are_a_sequence() -> None:
    records = two_partitions()
    assert len(records) == 4
    assert records
    assert [(r.partition, r.offset) for r in records] == [(0, 1), (0, 2), (1, 7), (0, 3)]
    assert [records[i].offset for i in (0, 1, 2, 3, -1, -4)] == [1, 2, 7, 3, 3, 1]
    assert [r.offset for r in records[1:3]] == [2, 7]
    assert records[2] in records
    assert records == list(records)
    assert records != list(records)[:-1]
    for index in (4, -5):
        with pytest.raises(IndexError):
            records[index]


def test_slice_is_as_lazy_as_its_records() -> None:
    broken = bytearray(batch_of(0, 3))
    broken[-1] = 0x7F
    part = records_of((batch_of(7, 2), "t", 1, 7, 9), (bytes(broken), "t", 0, 0, 10))[1:4]
    assert isinstance(part, Records)
    assert len(part) == 3
    assert part[0].offset == 8
    with pytest.raises(CorruptBatch):
        part[1]


@given(st.slices(4))
def test_slices_equal_list_slices(index: slice) -> None:
    records = two_partitions()
    assert list(records[index]) == list(records)[index]
    assert len(records[index]) == len(list(records)[index])
    assert records[index].to_arrow().column("offset").to_pylist() == [r.offset for r in list(records)[index]]


@given(st.slices(5))
def test_slices_of_a_batch_with_gaps_equal_list_slices(index: slice) -> None:
    records = records_of((compacted(0, [0, 2, 5], 8), "t", 0, 0, 8), (batch_of(8, 2), "t", 0, 8, 10))
    assert list(records[index]) == list(records)[index]
    assert records[index].to_arrow().column("offset").to_pylist() == [r.offset for r in list(records)[index]]


def test_next_offsets_of_a_slice_are_after_its_last_record() -> None:
    offsets = two_partitions()[:3].next_offsets()
    assert {str(partition): at.offset for partition, at in offsets.items()} == {"t-0": 3, "t-1": 8}


def test_records_after_an_undecodable_batch_can_be_read() -> None:
    broken = bytearray(batch_of(3, 3))
    broken[-1] = 0x7F
    records = records_of((batch_of(0, 3), "t", 0, 0, 3), (bytes(broken), "t", 0, 3, 6), (batch_of(6, 2), "t", 0, 6, 8))
    offsets, poison, iterator = [], [], iter(records)
    while True:
        try:
            offsets.append(next(iterator).offset)
        except StopIteration:
            break
        except CorruptBatch as error:
            poison.append((error.topic, error.partition, error.offset, error.next_offset))
    assert offsets == [0, 1, 2, 6, 7]
    assert poison == [("t", 0, 3, 6)]


def test_part_of_a_batch_becomes_columns_without_reading_the_batch_again() -> None:
    records = records_of((batch_of(0, 100, compression=Compression.LZ4), "t", 0, 0, 100))
    tables = [records[start : start + 10].to_arrow() for start in range(0, 100, 10)]
    values = [table.column("value").chunk(0) for table in tables]
    assert {value.buffers()[2].address for value in values} == {values[0].buffers()[2].address}
    assert [row for value in values for row in value.to_pylist()] == [b"%d" % n for n in range(100)]


def test_parts_of_small_batches_share_a_chunk_with_whole_ones() -> None:
    batches = [(batch_of(first, 10), "t", 0, first, first + 10) for first in (0, 10, 20)]
    values = records_of(*batches)[5:25].to_arrow().column("value")
    assert values.num_chunks == 1
    assert values.to_pylist() == [b"%d" % number for number in range(5, 25)]


def test_no_records_are_falsy() -> None:
    empty: Records[Any, Any] = Records()
    assert not empty
    assert list(empty) == []
    assert empty.by_partition() == {}
    assert repr(empty) == "<Records 0>"


def test_counting_decodes_nothing() -> None:
    broken = bytearray(batch_of(0, 3))
    broken[-1] = 0x7F
    records = records_of((bytes(broken), "t", 0, 0, 10))
    assert len(records) == 3
    assert records.partitions() == (TopicPartition("t", 0),)
    with pytest.raises(CorruptBatch):
        records[0]


def test_records_are_split_by_partition_in_order() -> None:
    parts = two_partitions().by_partition()
    assert {str(p): [r.offset for r in records] for p, records in parts.items()} == {"t-0": [1, 2, 3], "t-1": [7]}


def test_next_offsets_are_after_the_last_record_of_each_partition() -> None:
    assert two_partitions().next_offsets() == {
        TopicPartition("t", 0): OffsetAndMetadata(4, "", 0),
        TopicPartition("t", 1): OffsetAndMetadata(8, "", 0),
    }
    assert records_of((compacted(0, [0], 5), "t", 0, 0, 9)).next_offsets() == {
        TopicPartition("t", 0): OffsetAndMetadata(5, "", 0)
    }


def test_to_arrow_has_the_rows_as_columns() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    table = two_partitions().to_arrow()
    assert table.column_names == ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
    assert table["offset"].to_pylist() == [1, 2, 7, 3]
    assert table["partition"].to_pylist() == [0, 0, 1, 0]
    assert table["value"].to_pylist() == [b"1", b"2", b"7", b"3"]
    assert table.schema.field("timestamp").type == pyarrow.timestamp("ms", tz="UTC")
    assert Records().to_arrow().num_rows == 0


def test_to_pandas_has_the_rows() -> None:
    pytest.importorskip("pandas")
    frame = two_partitions().to_pandas()
    assert list(frame["offset"]) == [1, 2, 7, 3]
    assert list(frame["topic"]) == ["t"] * 4


def test_columns_of_a_batch_that_cannot_be_read_name_it() -> None:
    pytest.importorskip("pyarrow")
    broken = bytearray(batch_of(4, 3))
    broken[57:61] = (9).to_bytes(4, "big")
    with pytest.raises(CorruptBatch) as caught:
        records_of((bytes(broken), "t", 0, 4, 9)).to_arrow()
    assert (caught.value.offset, caught.value.next_offset) == (4, 7)


def test_records_are_not_pickled_by_accident() -> None:
    with pytest.raises(TypeError, match="list"):
        pickle.dumps(two_partitions())
    assert pickle.loads(pickle.dumps(list(two_partitions()))) == list(two_partitions())


def test_repr_says_how_many_and_from_where() -> None:
    assert repr(two_partitions()) == "<Records 4 from t-0, t-1>"
