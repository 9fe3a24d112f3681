"""Checkpoints, epochs and index files: what is written is read, and nonsense is noticed."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.broker_embedded.log import checkpoints
from pyclient.broker_embedded.log.checkpoints import CorruptCheckpoint
from pyclient.broker_embedded.log.filesystem import RealFileSystem
from pyclient.broker_embedded.log.indexes import AbortedTransaction, OffsetIndex, TimeIndex, TransactionIndex
from pyclient.broker_embedded.log.leader_epoch_cache import LeaderEpochFileCache
from pyclient.errors import ConfigError
from pyclient.types import TopicPartition

_OFFSETS = st.dictionaries(
    st.builds(TopicPartition, st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True), st.integers(0, 999)),
    st.integers(0, 2**62),
)


@given(_OFFSETS)
def test_offset_checkpoints_are_read_back(offsets: dict[TopicPartition, int]) -> None:
    assert checkpoints.parse_offsets(checkpoints.render_offsets(offsets), "f") == offsets


def test_an_offset_checkpoint_looks_like_kafkas() -> None:
    offsets = {TopicPartition("a.b-c", 3): 42, TopicPartition("x", 0): 0}
    assert checkpoints.render_offsets(offsets) == b"0\n2\na.b-c 3 42\nx 0 0\n"


@pytest.mark.parametrize(
    "content",
    [b"0\n", b"1\n0\n", b"0\nx\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na 0 -1\n", b"0\n1\na b 1\n", b"\xff"],
)
def test_broken_offset_checkpoints_are_refused_by_name(content: bytes) -> None:
    with pytest.raises(CorruptCheckpoint, match="the-file: "):
        checkpoints.parse_offsets(content, "the-file")


def test_offset_checkpoint_that_kafka_created_and_not_wrote_yet_is_empty() -> None:
    assert checkpoints.parse_offsets(b"", "f") == {}


def test_an_epoch_checkpoint_that_goes_back_is_refused() -> None:
    for content in (b"0\n2\n1 5\n1 6\n", b"0\n2\n1 5\n2 5\n", b"0\n2\n2 5\n1 6\n"):
        with pytest.raises(CorruptCheckpoint, match="follows"):
            checkpoints.parse_epochs(content, "f")


@given(st.uuids())
def test_topic_ids_are_read_back(topic_id: uuid.UUID) -> None:
    assert checkpoints.parse_topic_id(checkpoints.render_topic_id(topic_id), "f") == topic_id
    assert len(checkpoints.uuid_text(topic_id)) == 22


@pytest.mark.parametrize("content", [b"", b"version: 0\n", b"topic_id: short\n", b"\xff\xff"])
def test_partition_metadata_without_an_id_is_refused(content: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        checkpoints.parse_topic_id(content, "f")


def test_a_directorys_identity_is_read_back_comments_and_all() -> None:
    content = b"#\n#Sat Nov 21\n" + checkpoints.render_identity(
        cluster_id="abc", node_id=4, directory_id=uuid.UUID(int=1)
    )
    expected = {"version": "1", "cluster.id": "abc", "node.id": "4", "directory.id": "AAAAAAAAAAAAAAAAAAAAAQ"}
    assert checkpoints.parse_identity(content, "f") == expected
    for broken in (b"version=7\n", b"", b"\xff"):
        with pytest.raises(ConfigError):
            checkpoints.parse_identity(broken, "f")


def test_the_mark_of_a_clean_stop_is_kafkas_json() -> None:
    assert checkpoints.render_clean_shutdown(7) == b'{"version":0,"brokerEpoch":7}'


# Leader epochs, against the batches of a log


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=12), st.data())
def test_epoch_cache_agrees_with_the_batches(steps: list[tuple[int, int]], data: Any) -> None:
    cache, epochs, epoch = LeaderEpochFileCache(), [], 0
    for jump, count in steps:
        epoch += jump
        cache.assign(epoch, len(epochs))
        epochs += [epoch] * count
    end, start = len(epochs), 0
    if data.draw(st.booleans()):
        end = data.draw(st.integers(0, end))
        cache.truncate_from_end(end)
    if data.draw(st.booleans()):
        start = data.draw(st.integers(0, end))
        cache.truncate_from_start(start)
    kept = epochs[start:end]
    assert [cache.epoch_at(offset) for offset in range(start, end)] == kept
    assert not kept or cache.latest == kept[-1]
    for asked in {*kept}:
        behind = [index for index, written in enumerate(kept) if written > asked]
        assert cache.end_offset(asked, end) == (asked, start + behind[0] if behind else end)
    assert cache.end_offset(10_000, end) == cache.end_offset(-1, end) == (-1, -1)


@pytest.mark.parametrize(
    ("entries", "end", "leader", "answers"),
    [
        ([], 0, 0, {-1: (-1, -1), 0: (0, 0), 1: (-1, -1)}),
        ([], 7, 4, {0: (0, 7), 3: (3, 7), 4: (4, 7), 5: (-1, -1)}),
        ([(2, 0)], 9, 4, {0: (0, 0), 2: (2, 9), 3: (2, 9), 4: (4, 9)}),
        ([(2, 0), (3, 9)], 9, 4, {2: (2, 9), 3: (2, 9), 4: (4, 9)}),
        ([(2, 0), (4, 5)], 9, 4, {2: (2, 5), 3: (2, 5), 4: (4, 9)}),
    ],
)
def test_leader_epoch_without_records_begins_at_the_end(
    entries: Any, end: int, leader: int, answers: dict[int, tuple[int, int]]
) -> None:
    cache = LeaderEpochFileCache(entries)
    assert {epoch: cache.end_offset(epoch, end, leader) for epoch in answers} == answers
    assert list(cache) == entries


def test_an_epoch_that_contradicts_later_ones_wins() -> None:
    cache = LeaderEpochFileCache([(1, 0), (2, 10), (3, 20)])
    assert cache.assign(4, 15)
    assert list(cache) == [(1, 0), (2, 10), (4, 15)]
    assert not cache.assign(4, 18)
    assert cache.assign(2, 12)
    assert repr(cache) == "<LeaderEpochFileCache [(1, 0), (2, 12)]>"


# Indexes


def test_an_offset_index_is_what_kafka_writes(tmp_path: Any) -> None:
    index = OffsetIndex(RealFileSystem().file(str(tmp_path / "i")))
    for entry in ((5, 100), (5, 200), (9, 100), (9, 300)):
        index.append(*entry)
    index.flush()
    index.append(12, 400)
    assert (tmp_path / "i").read_bytes().hex() == "0000000500000064" + "000000090000012c"
    index.flush()
    assert [index.lookup(offset) for offset in (0, 4, 5, 8, 9, 50)] == [0, 0, 100, 100, 300, 400]
    assert [index.boundary(position) for position in (0, 99, 100, 399, 400, 999)] == [0, 0, 100, 300, 400, 400]
    assert [index.upper_bound(position) for position in (0, 100, 101, 400, 401)] == [5, 5, 9, 12, None]
    index.truncate(300)
    assert (index.last(), (tmp_path / "i").stat().st_size) == ((5, 100), 8)
    index.truncate_offsets(5)
    assert (len(index), (tmp_path / "i").stat().st_size) == (0, 0)
    index.file.close()


@given(st.binary(max_size=100))
def test_entries_of_an_arbitrary_index_file_increase(content: bytes) -> None:
    fs = RealFileSystem()
    offsets, times, aborted = OffsetIndex(fs.file("o")), TimeIndex(fs.file("t")), TransactionIndex(fs.file("x"))
    whole = offsets.load(content, 1000), times.load(content), aborted.load(content)
    assert whole[0] == (len(offsets) * 8 == len(content))
    assert whole[1] == (len(times) * 12 == len(content))
    assert whole[2] == (len(aborted) * 34 == len(content))
    assert offsets.last()[1] < 1000
    positions = [offsets.lookup(offset) for offset in range(0, 2**31, 2**27)]
    assert positions == sorted(positions)


def test_a_time_index_keeps_growing_times_only(tmp_path: Any) -> None:
    index = TimeIndex(RealFileSystem().file(str(tmp_path / "t")))
    for entry in ((-1, 0), (50, 3), (50, 4), (40, 5), (60, 8)):
        index.append(*entry)
    index.flush()
    expected = "0000000000000032" + "00000003" + "000000000000003c" + "00000008"
    assert (tmp_path / "t").read_bytes().hex() == expected
    assert [index.lookup(time) for time in (0, 50, 51, 60, 61)] == [0, 0, 3, 3, 8]
    index.truncate(8)
    assert (index.last(), (tmp_path / "t").stat().st_size) == ((50, 3), 12)
    index.file.close()


def test_next_write_truncates_bytes_after_the_entries_of_an_index(tmp_path: Any) -> None:
    path = tmp_path / "i"
    index = OffsetIndex(RealFileSystem().file(str(path)))
    content = bytes.fromhex("0000000500000064") + bytes(80)
    path.write_bytes(content)
    assert not index.load(content, 1000)
    index.append(9, 200)
    index.flush()
    assert path.read_bytes().hex() == "0000000500000064" + "00000009000000c8"
    index.file.close()


def test_a_transaction_index_is_what_kafka_writes(tmp_path: Any) -> None:
    index = TransactionIndex(RealFileSystem().file(str(tmp_path / "x")))
    index.append(AbortedTransaction(7, 1, 5, 2))
    index.append(AbortedTransaction(7, 1, 5, 2))
    index.append(AbortedTransaction(8, 2, 9, 10))
    content = (tmp_path / "x").read_bytes()
    assert content[:34] == struct.pack(">hqqqq", 0, 7, 1, 5, 2)
    assert index.collect(0, 3) == ([(7, 1, 5, 2), (8, 2, 9, 10)], True)
    assert index.collect(0, 2) == ([(7, 1, 5, 2)], True)
    assert index.collect(6, 100) == ([(8, 2, 9, 10)], False)
    again = TransactionIndex(index.file)
    assert again.load(content)
    assert not again.load(content[:-1])
    assert len(again) == 1
    index.truncate(9)
    assert (len(index), len((tmp_path / "x").read_bytes())) == (1, 34)
    index.file.close()
