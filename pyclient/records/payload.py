"""Extract the uncompressed records of a batch, and the error texts for invalid records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyclient.errors import CorruptRecord
from pyclient.records.batch import HEADER_SIZE, BatchHeader, where
from pyclient.records.columns import Buffer
from pyclient.records.compression import Compression, decompress
from pyclient.types import TIMESTAMP_LOG_APPEND

SMALLEST_RECORD: Final = 7
MOST_NAMED: Final = 1000
"""Most refused records that `validate_records` names."""
MAX_OFFSET: Final = 2**63 - 1

# Problems of a record, by the numbers that the compiled codec returns.
EARLY: Final = 1
VARINT: Final = 2
LENGTH: Final = 3
OFFSET: Final = 4
HEADERS: Final = 5
NAME: Final = 6
LEFTOVER: Final = 7

# Reasons why `validate_records` refuses a readable record.
KEYLESS: Final = 1
OUT_OF_RANGE: Final = 2

_PROBLEMS: Final = {
    EARLY: "ends early",
    VARINT: "has a varint with too many bits",
    LENGTH: "has a negative length",
    OFFSET: "has an offset delta out of order or beyond the batch's last",
    HEADERS: "has an impossible number of headers",
    NAME: "has a header name that is not UTF-8",
    LEFTOVER: "is longer than its content",
}


@dataclass(slots=True)
class Payload:
    """The records of one batch, uncompressed, in the layout of magic 2.

    `append_timestamp` is the timestamp of every record with LogAppendTime, else None.
    """

    header: BatchHeader
    topic: str
    partition: int
    data: Buffer
    count: int
    base_offset: int
    last_offset_delta: int
    base_timestamp: int
    append_timestamp: int | None

    def bad_record(self, number: int, problem: int) -> CorruptRecord:
        """Return the error for an invalid record."""
        place = where(self.header, self.topic, self.partition)
        return CorruptRecord(f"{place}: {bad_record_text(number, problem)}")

    def bytes_behind(self, size: int) -> CorruptRecord:
        """Return the error for a batch with bytes after its last record."""
        place = where(self.header, self.topic, self.partition)
        return CorruptRecord(f"{place}: {bytes_behind_text(size)}")


def bad_record_text(number: int, problem: int) -> str:
    """Return the error text for an invalid record."""
    return f"record {number} {_PROBLEMS[problem]}"


def bytes_behind_text(size: int) -> str:
    """Return the error text for a batch with bytes after its last record."""
    return f"{size} bytes are left after its last record"


def open_batch(
    buffer: Buffer, position: int, header: BatchHeader, topic: str, partition: int, max_size: int
) -> Payload:
    """Decompress the batch at `position` and check its counts against each other and its size.

    Raise `CorruptRecord`, also if it expands past `max_size` bytes.
    """
    end = position + header.size
    if position < 0 or end > len(buffer):
        raise CorruptRecord(f"{where(header, topic, partition)} ends early")
    batch = memoryview(buffer)[position:end]
    try:
        if header.magic < 2:
            from pyclient.records.legacy import open_messages

            return open_messages(batch, header, topic, partition, max_size)
        return _open_records(batch[HEADER_SIZE:], header, topic, partition, max_size)
    except CorruptRecord as error:
        raise CorruptRecord(f"{where(header, topic, partition)}: {error}") from error


def _open_records(data: Buffer, header: BatchHeader, topic: str, partition: int, max_size: int) -> Payload:
    codec = header.codec
    if codec != Compression.NONE and len(data):
        data = decompress(codec, data, max_size)
    count, last = header.count, header.last_offset_delta
    if not 0 <= count <= len(data) // SMALLEST_RECORD:
        raise CorruptRecord(f"{count} records cannot be in {len(data)} bytes")
    if count - 1 > last:
        raise CorruptRecord(f"{count} records cannot have {last} as their last offset delta")
    if not 0 <= header.base_offset <= MAX_OFFSET - max(last, 0):
        raise CorruptRecord("its offsets are out of range")
    append_timestamp = header.max_timestamp if header.timestamp_type == TIMESTAMP_LOG_APPEND else None
    return Payload(
        header, topic, partition, data, count, header.base_offset, last, header.base_timestamp, append_timestamp
    )
