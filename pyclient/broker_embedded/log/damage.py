"""Damage in the files of a log: batches are checked against their CRC; damaged ones are saved to a file and removed."""

from __future__ import annotations

import struct
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from pyclient import errors
from pyclient.broker_embedded.log.file_records import BatchChecker, DamagedSegment, FileRecords
from pyclient.broker_embedded.log.incremental_task import BlockingCall
from pyclient.broker_embedded.log.partition_directories import DAMAGED
from pyclient.records import HEADER_SIZE, BatchHeader, check_crc, read_header

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyclient.broker_embedded.log.filesystem import File, FileSystem
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.log.log_reader import SegmentSlice
    from pyclient.broker_embedded.log.log_segment import LogSegment
    from pyclient.broker_embedded.log.unified_log import UnifiedLog

_COPIED_BYTES: Final = 1 << 20
_BASE_OFFSET: Final = struct.Struct(">q")  # the first field of a batch


class Damage(NamedTuple):
    """The first damaged batch of a log: its segment's records, its position, and the end of the batches before it."""

    records: FileRecords
    position: int
    offset: int
    error: DamagedSegment


def check_slice(log: UnifiedLog, found: SegmentSlice) -> None:
    """Check the whole batches of a slice: their checksums, offsets and leader epochs. Raise `DamagedSegment`."""
    records = found.segment.records
    path, position = records.file.path, found.position
    most = min(found.length + HEADER_SIZE, records.size - position)  # with the header after it: its offset is higher
    data = records.file.pread(most, position)
    at, last, expected = 0, 0, records.base_offset
    try:
        while at < found.length and at + HEADER_SIZE <= len(data):
            header = read_header(data, at)
            if header.base_offset < expected or at + header.size > len(data):
                break
            check_crc(data, at, header)
            _check_epoch(log, header)
            last, at, expected = at, at + header.size, header.next_offset
        if len(data) < most:
            raise errors.TruncatedMessage(f"the file ends {most - len(data)} bytes early")
    except errors.ProtocolError as error:
        raise DamagedSegment(path, position + at, error, intact=at) from error
    end = log.segments.end_of(found.segment, log.end_offset)
    if at + HEADER_SIZE <= len(data):
        end = min(end, _BASE_OFFSET.unpack_from(data, at)[0])
    if expected > end:
        reason = f"a batch with offsets up to {expected - 1} is out of place"
        raise DamagedSegment(path, position + last, reason, intact=last)


def end_before_gap(log: UnifiedLog) -> int | None:
    """Return the end of the batches before the last one of a log if there is a gap between them, else None.

    Only compaction leaves gaps. In other logs the last batch has a wrong offset then, which is outside of its checksum.
    Of a segment not every batch is read; one without an entry in its index before the last batch counts as without gap.
    """
    segment = log.segments.active
    end: int | None = None
    gap: int | None = None
    for position, header in segment.records.walk(segment.indexes.offsets.last()[1]):
        expected = segment.base_offset if not position else end
        gap = expected if expected is not None and header.base_offset > expected else None
        end = header.next_offset
    return None if log.config.compacts else gap


def first_damage(log: UnifiedLog) -> IncrementalTask[Damage | None]:
    """Check every batch of a log, one per step, and return the first damaged one; None if there is none."""
    for segment in list(log.segments):
        found = yield from _damage_in(log, segment)
        if found is not None:
            return found
    return None


def _damage_in(log: UnifiedLog, segment: LogSegment) -> IncrementalTask[Damage | None]:
    """Check a segment. One that is deleted meanwhile has no damage.

    The offset of a batch is outside of its checksum, so that of two whose offsets do not fit either may be wrong: the
    batch before the one that is found counts as damaged, too.
    """
    records = segment.records
    checking = BatchChecker(records, 0)
    position, offset, end = 0, segment.base_offset, segment.base_offset  # of the last batch, and its end
    try:
        while (found := (yield from checking.next_batch())) is not None:
            at, header = found
            position, offset, end = at, end, header.next_offset
            if log.checks_reads:
                _check_epoch(log, header)
            yield None
        if segment in list(log.segments) and end > log.segments.end_of(segment, log.end_offset):
            raise errors.CorruptRecord(f"a batch with offsets up to {end - 1} is out of place")
    except DamagedSegment as error:
        return Damage(records, position, offset, error)
    except errors.CorruptRecord as error:
        return Damage(records, position, offset, DamagedSegment(records.file.path, position, error))
    except OSError:
        if segment in list(log.segments):
            raise
    return None


def verify(log: UnifiedLog) -> Iterator[DamagedSegment | None]:
    """Check every batch, one per step; a step that finds damage yields it. The rest of its segment is not checked."""
    for segment in list(log.segments):
        steps = _damage_in(log, segment)
        try:
            step = next(steps)
            while True:
                yield None
                step = steps.send(None if step is None else step.work())
        except StopIteration as end:
            if end.value is not None:
                yield end.value.error


def _check_epoch(log: UnifiedLog, header: BatchHeader) -> None:
    known = log.epoch_at(header.base_offset)
    if known >= 0 and header.leader_epoch != known:
        raise errors.CorruptRecord(f"a batch of leader epoch {header.leader_epoch}, it was written in epoch {known}")


def save_copy(damage: Damage, fs: FileSystem) -> IncrementalTask[str]:
    """Copy the bytes from the damage on to a file in the segment's folder, in steps. Return its path.

    It replaces the file that earlier damage of the same segment left.
    """
    records, path = damage.records, damage.records.file.path + DAMAGED
    fs.remove(path)
    kept = fs.file(path)
    for file in (records.file, kept):
        file.fileno()  # opened here: the disk thread must not
        file.retain()
    try:
        for position in range(damage.position, records.size, _COPIED_BYTES):
            length = min(_COPIED_BYTES, records.size - position)
            yield BlockingCall(partial(_copy, records.file, position, length, kept, position - damage.position))
    finally:
        for file in (records.file, kept):
            file.release()
        kept.close()
    return path


def _copy(source: File, position: int, length: int, target: File, at: int) -> None:
    target.pwrite(source.pread(length, position), at)
