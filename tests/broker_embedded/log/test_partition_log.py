"""Appending and reading, against a model that is a list of records."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyclient import errors
from pyclient.records import Compression, iter_batches

_STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("append"),
            st.lists(st.binary(max_size=300), min_size=1, max_size=8),
            st.integers(-2000, 2000),
            st.sampled_from(list(Compression)),
        ),
        st.tuples(st.sampled_from(["roll", "reopen", "crash", "crash after a flush", "epoch"])),
        st.tuples(st.sampled_from(["truncate", "delete", "read", "time"]), st.floats(0, 1), st.integers(1, 3000)),
    ),
    max_size=40,
)


class Model:
    """The expected content of the log: (offset, timestamp, value), and the bounds of each batch."""

    def __init__(self) -> None:
        self.records: list[tuple[int, int, bytes]] = []
        self.batches: list[tuple[int, int]] = []
        self.start = 0
        self.end = 0

    def append(self, values: list[bytes], timestamp: int) -> None:
        self.records += [(self.end + index, timestamp + index, value) for index, value in enumerate(values)]
        self.batches.append((self.end, self.end + len(values)))
        self.end += len(values)

    def truncate(self, offset: int) -> None:
        if offset >= self.end:
            return
        gone = [first for first, end in self.batches if end > offset]
        self.batches = [(first, end) for first, end in self.batches if end <= offset]
        if gone:
            offset = max(min(gone), self.start)
            self.records = [record for record in self.records if record[0] < min(gone)]
        self.end = offset
        self.start = min(self.start, offset)

    @property
    def visible(self) -> list[tuple[int, int, bytes]]:
        return [record for record in self.records if record[0] >= self.start]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow])
@given(steps=_STEPS, interval=st.sampled_from([0, 100, 4096]))
def test_log_is_a_list_of_records(new_fixture: Any, steps: list[Any], interval: int) -> None:
    fixture = new_fixture()
    fixture.configure(segment_bytes=2600, index_interval_bytes=interval)
    log, model, epoch = fixture.open(), Model(), 0
    for kind, *arguments in steps:
        if kind == "append":
            values, shift, codec = arguments
            times = [fixture.now + shift + index for index in range(len(values))]
            batch = fixture.batch(*values, timestamp_ms=times, compression=codec)
            if len(batch) <= 2600:
                info = log.append(batch, leader_epoch=epoch, now_ms=fixture.now)
                assert (info.base_offset, info.last_offset) == (model.end, model.end + len(values) - 1)
                model.append(values, fixture.now + shift)
        elif kind == "roll":
            log.roll()
        elif kind == "reopen":
            log.close()
            log = fixture.open(start_offset=log.start_offset)
        elif kind.startswith("crash"):
            if kind != "crash":
                log.flush()
            log.close(clean=False)
            log = fixture.open(clean=False, recovery_point=log.recovery_point, start_offset=log.start_offset)
        elif kind == "epoch":
            epoch += 1
        else:
            _check(kind, *arguments, fixture=fixture, log=log, model=model)
        assert (log.start_offset, log.end_offset) == (model.start, model.end)
    found = [(record.offset, record.timestamp_ms, record.value) for record in fixture.records(log)]
    assert found == model.visible
    fixture.close()


def _check(kind: str, share: float, size: int, *, fixture: Any, log: Any, model: Model) -> None:
    offset = model.start + round(share * (model.end - model.start))
    if kind == "truncate":
        log.truncate_to(offset)
        model.truncate(offset)
    elif kind == "delete":
        log.delete_records_before(offset)
        model.start = offset
    elif kind == "read":
        data = log.read_bytes(offset, size)
        following = [batch for batch in model.batches if batch[1] > offset]
        got = [(header.base_offset, header.next_offset) for _, header in iter_batches(data)]
        assert got == following[: len(got)]
        assert len(got) >= min(1, len(following))
        assert len(data) <= size or len(got) == 1
        region = log.read(offset, size)
        sent = b"".join(part.read() for part in region.parts)
        assert sent.startswith(data)  # the whole batches, and what fits of the next one
        assert len(sent) in (size, len(data))
        for part in region.parts:
            part.release()
    else:
        wanted = fixture.now + round((share - 0.5) * 5000)
        late = [record for record in model.visible if record[1] >= wanted]
        found = log.offset_for_timestamp(wanted)
        assert (found and found[:2]) == (late[0][:2] if late else None)
        newest = log.latest_timestamp_offset()
        largest = max((record[1] for record in model.visible), default=None)
        first = next((record[:2] for record in model.visible if record[1] == largest), None)
        assert (newest and newest[:2]) == first


def test_an_empty_log_has_no_files(fixture: Any) -> None:
    log = fixture.open()
    assert (log.start_offset, log.end_offset, log.high_watermark, log.leader_epoch) == (0, 0, 0, -1)
    assert log.read(0, 100).parts == []
    assert log.offset_for_timestamp(0) is None
    log.close()
    assert not fixture.path("").exists()


def test_the_first_append_makes_the_files(fixture: Any) -> None:
    log = fixture.open()
    fixture.append(log, b"a")
    assert fixture.names() == [f"{0:020}.log", "partition.metadata"]
    assert fixture.path("partition.metadata").read_text() == "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABw\n"
    log.close()
    assert fixture.path("leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    assert fixture.names()[:4] == [f"{0:020}.index", f"{0:020}.log", f"{0:020}.timeindex", f"{1:020}.snapshot"]


def test_offsets_and_epochs_are_stamped_in_place(fixture: Any) -> None:
    log = fixture.open()
    fixture.append(log, b"a", b"b")
    batch = fixture.batch(b"c")
    log.append(memoryview(batch), leader_epoch=9, now_ms=fixture.now)
    [(_, header)] = iter_batches(batch)
    assert (header.base_offset, header.leader_epoch) == (2, 9)
    assert bytes(batch) == log.read_bytes(2, 1000)


def test_memory_that_cannot_be_written_is_copied(fixture: Any) -> None:
    log = fixture.open()
    fixture.append(log, b"a")
    batch = bytes(fixture.batch(b"b"))
    assert log.append(batch, leader_epoch=0, now_ms=fixture.now).base_offset == 1
    assert [header.base_offset for _, header in iter_batches(batch)] == [0]


@pytest.mark.parametrize("offset", [-1, 4, 100])
def test_an_offset_outside_is_out_of_range(fixture: Any, offset: int) -> None:
    log = fixture.open()
    fixture.append(log, b"a", b"b", b"c")
    with pytest.raises(errors.OffsetOutOfRange, match=r"0\.\.3"):
        log.read(offset, 100)
    assert log.read(3, 100).size == 0


def test_a_read_from_inside_a_batch_gives_the_whole_batch(fixture: Any) -> None:
    log = fixture.open()
    fixture.append(log, b"a", b"b", b"c")
    assert log.read_bytes(2, 1000) == log.read_bytes(0, 1000)


def test_the_first_batch_may_be_larger_than_the_limit_only_if_asked(fixture: Any) -> None:
    log = fixture.open()
    for value in (b"x" * 500, b"y"):
        fixture.append(log, value)
    whole = log.read(0, 100)
    assert whole.size == len(fixture.batch(b"x" * 500))
    assert log.read(0, 100, min_one_batch=False).size == 0
    assert log.read(0, whole.size + 10).size == whole.size + 10
    assert len(log.read_bytes(0, whole.size + 10)) == whole.size


def test_truncated_reads_report_aborted_transactions_up_to_their_end(fixture: Any) -> None:
    log = fixture.open()
    for producer in range(30):  # each a transaction of its own, an index entry every 4 KiB
        append = {"producer_id": producer, "epoch": 0, "sequence": 0, "transactional": True}
        fixture.append(log, b"x" * 900, **append)
        fixture.end(log, producer, 0, commit=False)
    first = log.read(0, 3000, isolation="committed")
    assert first.aborted is not None
    assert {0, 1, 2} <= {producer for producer, _ in first.aborted} < set(range(15))


def test_read_ends_with_its_segment_and_reports_that_there_is_more(fixture: Any) -> None:
    log = fixture.open()
    fixture.append(log, b"a")
    log.roll()
    fixture.append(log, b"b")
    first, second = log.read(0, 1000), log.read(1, 1000)
    assert (first.more, second.more) == (True, False)
    assert first.size == second.size


def test_region_keeps_its_file_when_the_log_is_deleted(fixture: Any) -> None:
    log = fixture.open()
    fixture.append(log, b"kept")
    read = log.read(0, 1000)
    log.close(clean=False)
    fixture.path(f"{0:020}.log").unlink()
    assert b"kept" in read.parts[0].read()
    file = log.segments.active.records.file
    assert file.busy
    read.parts[0].release()
    assert not file.busy


def test_a_segment_is_closed_by_size_by_age_and_by_its_index(fixture: Any) -> None:
    size = len(fixture.batch())
    for options, appends in (
        ({"segment_bytes": 3 * size}, 4),
        ({"segment_ms": 10}, 12),
        ({"index_interval_bytes": 0, "segment_index_bytes": 16}, 4),
    ):
        fixture.configure(**options)
        log = fixture.open()
        for index in range(appends):
            fixture.append(log, timestamp_ms=fixture.now + index)
        assert [segment.base_offset for segment in log.segments] == [0, appends - 1]
        log.truncate_fully_and_start_at(0)
        log.close(clean=False)


def test_a_batch_larger_than_a_segment_is_refused(fixture: Any) -> None:
    fixture.configure(segment_bytes=200)
    with pytest.raises(errors.RecordListTooLarge, match=r"segment\.bytes is 200"):
        fixture.append(fixture.open(), b"x" * 200)


def test_listeners_are_called_for_every_append(fixture: Any) -> None:
    log = fixture.open()
    heard: list[int] = []
    log.on_append.append(lambda: heard.append(log.high_watermark))
    fixture.append(log, b"a", b"b")
    fixture.append(log, b"c")
    assert heard == [2, 3]


def test_a_replicated_log_shows_only_what_is_committed(fixture: Any) -> None:
    log = fixture.open(high_watermark=0)
    heard: list[int] = []
    log.on_append.append(lambda: heard.append(log.high_watermark))
    for value in (b"a", b"b"):
        fixture.append(log, value)
    assert (log.end_offset, log.high_watermark, log.read(0, 1000).size) == (2, 0, 0)
    size = len(fixture.batch(b"a"))
    assert log.read(0, 1000, isolation="log_end").size == 2 * size
    log.advance_high_watermark(1)
    assert log.read(0, 1000).size == size
    log.advance_high_watermark(0)
    assert log.high_watermark == 1
    log.advance_high_watermark(99)
    assert log.high_watermark == 2
    assert heard == [0, 0, 1, 2]


def test_the_high_watermark_is_not_below_the_start(fixture: Any) -> None:
    log = fixture.open(high_watermark=0)
    for value in (b"a", b"b", b"c"):
        fixture.append(log, value)
    log.advance_start(1)
    assert log.high_watermark == 1
    log.truncate_fully_and_start_at(7)
    assert (log.start_offset, log.high_watermark, log.end_offset) == (7, 7, 7)


def test_copies_keep_the_leaders_offsets_and_epochs(fixture: Any, new_fixture: Any) -> None:
    other = new_fixture()
    leader, follower = other.open(), fixture.open(high_watermark=0)
    for epoch in (1, 1, 4):
        other.append(leader, b"a", b"b", leader_epoch=epoch)
    data = leader.read_bytes(0, 10_000)
    follower.append(data + b"cut", leader_epoch=-1, now_ms=0, origin="replica")
    assert follower.read_bytes(0, 10_000, isolation="log_end") == data
    assert [follower.epoch_at(offset) for offset in (0, 3, 4)] == [1, 1, 4]
    with pytest.raises(errors.OffsetOutOfRange):
        follower.append(data, leader_epoch=-1, now_ms=0, origin="replica")
    assert follower.end_offset == 6
    other.close()


def test_an_empty_follower_begins_where_its_leader_begins(fixture: Any, new_fixture: Any) -> None:
    other = new_fixture()
    leader, follower = other.open(), fixture.open(high_watermark=0)
    for _ in range(3):
        other.append(leader)
    follower.append(leader.read_bytes(2, 1000), leader_epoch=-1, now_ms=0, origin="replica")
    assert (follower.start_offset, follower.end_offset) == (2, 3)
    assert f"{2:020}.log" in fixture.names()
    other.close()


def test_a_changed_copy_is_refused(fixture: Any) -> None:
    batch = fixture.batch(b"abc")
    batch[-1] ^= 1
    with pytest.raises(errors.CorruptMessage):
        fixture.open().append(batch, leader_epoch=-1, now_ms=0, origin="replica")


def test_end_offset_of_an_epoch_is_found(fixture: Any) -> None:
    log = fixture.open()
    for epoch in (2, 2, 5):
        fixture.append(log, b"a", b"b", leader_epoch=epoch)
    log.begin_epoch(8)
    assert log.leader_epoch == 8
    answers = [log.end_offset_for_epoch(epoch) for epoch in (1, 2, 3, 5, 8, 9)]
    assert answers == [(1, 0), (2, 4), (2, 4), (5, 6), (8, 6), (-1, -1)]
    log = fixture.reopen(log)
    assert log.end_offset_for_epoch(3) == (2, 4)
    log.truncate_to(3)
    assert (log.leader_epoch, log.end_offset) == (2, 2)


def test_deleted_records_stay_deleted_after_a_restart(fixture: Any) -> None:
    log = fixture.open()
    for _ in range(4):
        fixture.append(log)
    with pytest.raises(errors.OffsetOutOfRange, match="high watermark 4"):
        log.delete_records_before(5)
    log.delete_records_before(3)
    log.delete_records_before(1)
    assert log.start_offset == 3
    log.close()
    assert fixture.open(start_offset=3).start_offset == 3


def test_another_topics_files_are_not_opened(fixture: Any) -> None:
    log = fixture.open()
    fixture.append(log)
    log.close()
    content = fixture.path("partition.metadata").read_text()
    fixture.path("partition.metadata").write_text(content.replace("Bw", "CA"))
    with pytest.raises(errors.KafkaStorageError, match="t-0 is offline and its files stay as they are"):
        fixture.open()


def test_flush_messages_brings_records_to_the_disk_as_they_come(fixture: Any) -> None:
    fixture.configure(flush_messages=3)
    log = fixture.open()
    points = []
    for _ in range(6):
        fixture.append(log)
        points.append(log.recovery_point)
    assert points == [0, 0, 3, 3, 3, 6]


def test_flush_ms_brings_the_rest_when_it_is_time(fixture: Any) -> None:
    fixture.configure(flush_ms=100)
    log = fixture.open()
    fixture.append(log)
    for now, expected in ((0, 0), (99, 0), (100, 1), (101, 1)):
        log.flush_if_due(fixture.now + now)
        assert log.recovery_point == expected


def test_repr_of_a_log_shows_its_state(fixture: Any) -> None:
    log = fixture.open()
    fixture.append(log, b"a", b"b")
    assert repr(log) == "<UnifiedLog t-0 0..2 segments=1>"
    log.fail("the disk is gone")
    assert repr(log) == "<UnifiedLog t-0 0..2 segments=1 offline: the disk is gone>"


@pytest.mark.parametrize("content", [None, b"", b"version: 0\ntopic_id: ?\n", b"\xff"])
def test_lost_partition_metadata_is_written_again(fixture: Any, content: bytes | None) -> None:
    log = fixture.open()
    fixture.append(log, b"a")
    log.close()
    path = fixture.path("partition.metadata")
    before = path.read_bytes()
    path.unlink() if content is None else path.write_bytes(content)
    assert fixture.values(fixture.open()) == [b"a"]
    assert path.read_bytes() == before
