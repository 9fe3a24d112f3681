"""Hostile Fetch responses: records, or poison with an offset; never a hang, a crash or a position moved back."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.config import resolve
from pyclient.consumer.completed_fetch import Frame, Target
from pyclient.consumer.config import ConsumerConfig
from pyclient.consumer.fetch_buffer import FetchBuffer, FetchCollector, FetchOutcome
from pyclient.consumer.records import Records
from pyclient.errors import PoisonRecord
from pyclient.protocol.messages.fetch import AbortedTransaction, PartitionData
from pyclient.records import Compression
from pyclient.types import TopicPartition
from tests.consumer.consumer_samples import ABORT, assigned, batch_of, marker

FIRST, COUNT = 10, 3
LENGTH, MAGIC, CRC, ATTRIBUTES, LAST_DELTA, MAX_TIMESTAMP, PRODUCER, RECORDS = 8, 16, 17, 21, 23, 35, 43, 57
BODY = 61

Change = Callable[[bytearray], None]


class Reader:
    """A partition at offset 10, and the user's view of one response."""

    def __init__(self, *, read_committed: bool = False) -> None:
        level = "read_committed" if read_committed else "read_uncommitted"
        config = resolve(ConsumerConfig, {"bootstrap_servers": "h:1", "isolation_level": level})
        self.subscription, (self.state,) = assigned(TopicPartition("t", 0), position=FIRST)
        self.buffer = FetchBuffer(self.subscription, low_bytes=1, high_bytes=10**9, check_crcs=True)
        self.reader = FetchCollector(self.subscription, self.buffer, config, 0.1)
        self.poison: list[PoisonRecord] = []
        self.offsets: list[int] = []

    def answer(self, records: bytes, **fields: Any) -> None:
        """Process the response, read all records, and skip poison."""
        target = Target(self.state, self.state.version, self.state.fetch_offset, from_replica=False)
        data = PartitionData(
            partition_index=0, **{"error_code": 0, "high_watermark": 100, "records": records, **fields}
        )
        self.reader.take(target, data, Frame(1, len(records)), 0.0, FetchOutcome())
        for _ in range(50):
            before = self.state.position
            try:
                slices = self.buffer.take(10)
            except PoisonRecord as error:
                self._skip(error, before)
                return
            assert self.state.position >= before
            if not slices:
                return
            self._check(Records(slices))
        raise AssertionError("it never ends")

    def _check(self, records: Records[Any, Any]) -> None:
        iterator = iter(records)
        while True:
            try:
                self.offsets.append(next(iterator).offset)
            except StopIteration:
                return
            except PoisonRecord as error:
                self.poison.append(error)

    def _skip(self, error: PoisonRecord, before: int) -> None:
        assert (error.topic, error.partition) == ("t", 0)
        assert error.next_offset > before
        self.poison.append(error)


def changed(change: Change, *, sealed: bool = True, **options: Any) -> bytes:
    """Return a batch of offsets 10, 11 and 12 with something changed; `sealed` makes its checksum right again."""
    batch = bytearray(batch_of(FIRST, COUNT, **options))
    change(batch)
    if sealed:
        batch[CRC:ATTRIBUTES] = crc32c.crc32c(bytes(batch[ATTRIBUTES:])).to_bytes(4, "big")
    return bytes(batch)


def put(at: int, kind: str, value: int) -> Change:
    return lambda batch: struct.pack_into(f">{kind}", batch, at, value)


POISON: dict[str, bytes] = {
    "a negative batch length": changed(put(LENGTH, "i", -1)),
    "a batch length that is too small": changed(put(LENGTH, "i", 48)),
    "magic 3": changed(put(MAGIC, "b", 3)),
    "magic -1": changed(put(MAGIC, "b", -1)),
    "a wrong checksum": changed(put(CRC, "i", 0), sealed=False),
    "a negative number of records": changed(put(RECORDS, "i", -5)),
    "a huge number of records": changed(put(RECORDS, "i", 2**31 - 1)),
    "fewer records than there are": changed(put(RECORDS, "i", COUNT - 1)),
    "a last offset before its records": changed(put(LAST_DELTA, "i", 1)),
    "a compression that does not exist": changed(put(ATTRIBUTES, "h", 7)),
    "plain records said to be lz4": changed(put(ATTRIBUTES, "h", 3)),
    "a record of negative length": changed(put(BODY, "b", 0x01)),
    "a record longer than the batch": changed(put(BODY, "b", 0x7E)),
    "an offset that goes back": changed(lambda batch: batch.__setitem__(BODY + 3 + (batch[BODY] >> 1) + 1, 0)),
    "a key of length -2": changed(put(BODY + 4, "b", 0x03)),
    "a key longer than its record": changed(put(BODY + 4, "b", 0x7E)),
    "headers that cannot be there": changed(lambda batch: batch.__setitem__(BODY + (batch[BODY] >> 1), 0x7E)),
    "cut lz4": changed(put(RECORDS, "i", 2**20), compression=Compression.LZ4),
}


@pytest.mark.parametrize("data", POISON.values(), ids=POISON.keys())
def test_garbage_is_poison_with_an_offset_and_earlier_records_are_read(data: bytes) -> None:
    reader = Reader()
    reader.answer(data)
    assert len(reader.poison) == 1
    assert reader.poison[0].offset == FIRST
    assert reader.offsets == []
    shifted = Reader()
    shifted.state.start_at(FIRST - 2)
    shifted.answer(batch_of(FIRST - 2, 2) + data)
    assert shifted.offsets == [FIRST - 2, FIRST - 1]


HARMLESS: dict[str, tuple[bytes, dict[str, Any], list[int]]] = {
    "a last batch that is cut": (batch_of(10, 2) + batch_of(12, 5)[:-1], {}, [10, 11]),
    "only the beginning of a batch": (batch_of(10, 3)[:40], {}, []),
    "a length beyond the buffer": (changed(put(LENGTH, "i", 2**31 - 1)), {}, []),
    "a batch before the one asked for": (batch_of(4, 3) + batch_of(10, 2), {}, [10, 11]),
    "a base offset below the one asked for": (batch_of(8, 4), {}, [10, 11]),
    "a high watermark below the stable offset": (
        batch_of(10, 1), {"high_watermark": 3, "last_stable_offset": 90}, [10],
    ),
    "watermarks that are no offsets": (batch_of(10, 1), {"high_watermark": -7, "log_start_offset": 2**63 - 1}, [10]),
    "a timestamp of 2^63-1": (changed(put(MAX_TIMESTAMP, "q", 2**63 - 1)), {}, [10, 11, 12]),
    "a timestamp of -1": (changed(put(MAX_TIMESTAMP, "q", -1)), {}, [10, 11, 12]),
    "an unknown preferred replica": (batch_of(10, 1), {"preferred_read_replica": 4711}, [10]),
    "no bytes": (b"", {}, []),
    "two abort markers for one transaction": (marker(10, 1, ABORT) + marker(11, 1, ABORT) + batch_of(12, 1), {}, [12]),
}  # fmt: skip


@pytest.mark.parametrize(("data", "fields", "offsets"), HARMLESS.values(), ids=HARMLESS.keys())
def test_odd_but_readable_batches_are_read(data: bytes, fields: dict[str, Any], offsets: list[int]) -> None:
    reader = Reader()
    reader.answer(data, **fields)
    assert (reader.offsets, reader.poison) == (offsets, [])


def test_invalid_aborted_transactions_are_tolerated() -> None:
    reader = Reader(read_committed=True)
    listed = [(-5, 2**63 - 1), (7, -1), (7, 11), (7, 3), (2**63 - 1, 0)]
    aborted = [AbortedTransaction(producer_id=producer, first_offset=first) for producer, first in listed]
    ours = batch_of(10, 2, producer_id=7, producer_epoch=0, transactional=True)
    reader.answer(ours + marker(12, 7, ABORT) + batch_of(13, 1), aborted_transactions=aborted)
    assert (reader.offsets, reader.poison) == ([13], [])


GOOD = [
    batch_of(10, 3),
    batch_of(10, 3, compression=Compression.LZ4),
    batch_of(10, 3, compression=Compression.GZIP),
    batch_of(10, 2, producer_id=7, producer_epoch=0, transactional=True) + marker(12, 7, ABORT) + batch_of(13, 1),
]


@given(
    data=st.sampled_from(GOOD),
    changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4),
    cut=st.integers(0, 400),
    sealed=st.booleans(),
    read_committed=st.booleans(),
)
def test_damaged_bytes_give_records_in_order_or_poison(
    data: bytes, changes: list[tuple[int, int]], cut: int, sealed: bool, read_committed: bool
) -> None:
    batch = bytearray(data)
    for at, value in changes:
        batch[at % len(batch)] = value
    if sealed:
        batch[CRC:ATTRIBUTES] = crc32c.crc32c(bytes(batch[ATTRIBUTES:])).to_bytes(4, "big")
    reader = Reader(read_committed=read_committed)
    reader.answer(bytes(batch[: len(batch) - cut % len(batch)] if cut else batch))
    assert reader.offsets == sorted(set(reader.offsets))
    assert all(offset >= FIRST for offset in reader.offsets)
