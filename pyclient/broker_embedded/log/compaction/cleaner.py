"""One cleaning round of one log: read the keys of the dirty part, rewrite everything before its end, swap the files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from pyclient import errors
from pyclient.broker_embedded.log.compaction.batch_filter import (
    BatchFilter,
    CleanedTransactionMetadata,
    KeptBatch,
    off_loop_if_large,
)
from pyclient.broker_embedded.log.compaction.log_to_clean import LogToClean, grouped
from pyclient.broker_embedded.log.compaction.offset_map import OffsetMap
from pyclient.broker_embedded.log.compaction.rewriting import ROWS_AT_ONCE, chunks
from pyclient.broker_embedded.log.end_transaction_marker import read_marker
from pyclient.broker_embedded.log.file_records import LARGE, DamagedSegment
from pyclient.broker_embedded.log.filesystem import FileSystem
from pyclient.broker_embedded.log.incremental_task import BlockingCall, IncrementalTask
from pyclient.broker_embedded.log.log_reader import aborted_between
from pyclient.broker_embedded.log.log_segment import CLEANED, LogSegment
from pyclient.broker_embedded.log.unified_log import UnifiedLog
from pyclient.records import BatchHeader, check_crc, read_header

log = logging.getLogger("pyclient.broker_embedded")

_READ_BYTES: Final = 1 << 20
_WRITE_BYTES: Final = 1 << 18
_BATCH_COST: Final = 16  # the cost of a batch without its records, in records
_BYTES_A_ROW: Final = 512  # bytes that are read, checked and copied in the time of one record


class Abandoned(Exception):
    """The log changed during the cleaning: it was truncated, deleted or closed. Cleaning has not changed it."""


class Cleaned(NamedTuple):
    """The result of a round: everything before `end` is clean; bytes before and after."""

    end: int
    bytes_before: int
    bytes_after: int


class Cleaner:
    """The work of one round, in steps. `most_keys` bounds its memory: a round ends where the map is full."""

    def __init__(self, owner: UnifiedLog, plan: LogToClean, *, fs: FileSystem, most_keys: int, now_ms: int) -> None:
        self._log = owner
        self._plan = plan
        self._fs = fs
        self._now_ms = now_ms
        self._offsets = OffsetMap(most_keys)
        self._cost = 0

    def steps(self) -> IncrementalTask[Cleaned]:
        """Run the round. Raise `Abandoned`, `DamagedSegment`, `OSError`; the log is unchanged then."""
        plan = self._plan
        sources = [segment for segment in self._log.segments if segment.base_offset < plan.end]
        for segment in sources:
            if segment.indexes.load():
                yield None
        end = yield from self._read_keys(sources)
        self._offsets.end = end
        sources = [segment for segment in sources if segment.base_offset < end]
        before = sum(segment.size for segment in sources)
        transactions = CleanedTransactionMetadata()
        after = 0
        config = self._log.config
        groups = grouped(
            sources,
            end=self._log.segments.end_of(sources[-1], self._log.end_offset),
            segment_bytes=config.segment_bytes,
            index_bytes=config.segment_index_bytes,
        )
        for group in groups:
            after += yield from self._clean_group(group, transactions)
        yield from self._offsets.give_back()
        return Cleaned(end, before, after)

    # The last offset of each key

    def _read_keys(self, sources: list[LogSegment]) -> IncrementalTask[int]:
        """Fill the map from the dirty part. Return the offset up to which it is complete."""
        first = self._plan.first_dirty
        transactions = CleanedTransactionMetadata()
        for position, segment in enumerate(sources):
            end = sources[position + 1].base_offset if position + 1 < len(sources) else self._plan.end
            if end <= first:
                continue
            transactions.expect(aborted_between(self._log.segments, segment.base_offset, end))
            if not (yield from self._each_batch(segment, partial(self._take_keys, transactions))):
                return self._offsets.end
        return self._plan.end

    def _take_keys(
        self, transactions: CleanedTransactionMetadata, data: memoryview, header: BatchHeader
    ) -> IncrementalTask[bool]:
        if header.is_control:
            marker = read_marker(data, header) if header.count else None
            if marker is not None:
                transactions.end(header, commit=marker.commit)
            return True
        if transactions.drops_data(header) or header.last_offset < self._plan.first_dirty:
            return True
        plain, opened = yield from off_loop_if_large(data, header)
        put, first = self._offsets.put, self._plan.first_dirty
        for rows in chunks(plain, opened):
            for record in rows:
                key, offset = record.key, record.offset
                if key is not None and offset >= first and not put(key, offset):
                    self._offsets.end = offset
                    return False
            if len(rows) == ROWS_AT_ONCE:
                yield None
        return True

    # Rewriting

    def _clean_group(self, group: list[LogSegment], transactions: CleanedTransactionMetadata) -> IncrementalTask[int]:
        """Rewrite a group of segments as one. Return its size."""
        owner = self._log
        rules = BatchFilter(
            self._offsets,
            transactions,
            list(owner.producers),
            end=self._plan.end,
            now_ms=self._now_ms,
            delete_retention_ms=owner.config.delete_retention_ms,
        )
        modified_ms = self._fs.modified_ms(group[-1].records.file.path)
        output = _Output(self._fs, owner, group[0].base_offset)
        try:
            for segment in group:
                end = owner.segments.end_of(segment, owner.end_offset)
                transactions.expect(aborted_between(owner.segments, segment.base_offset, end))
                yield from self._each_batch(segment, partial(self._filter, rules, output))
            yield from output.finish(modified_ms)
            if not (yield from _replace(owner, output.segment, group)):
                raise Abandoned(f"{owner!r} changed while it was compacted")
            return output.segment.size
        finally:
            output.close()

    def _filter(
        self, rules: BatchFilter, output: _Output, data: memoryview, header: BatchHeader
    ) -> IncrementalTask[bool]:
        kept = yield from rules.apply(data, header)
        if kept is not None:
            yield from output.add(kept)
        return True

    # Reading

    def _each_batch(
        self, segment: LogSegment, handle: Callable[[memoryview, BatchHeader], IncrementalTask[bool]]
    ) -> IncrementalTask[bool]:
        """Call `handle` with every batch, checked, until it returns False. Return True if it never did."""
        file = segment.records.file
        file.retain()
        try:
            position, length = 0, _READ_BYTES
            while position < segment.size:
                file.fileno()  # opened here: the disk thread must not
                wanted = min(length, segment.size - position)
                data = yield BlockingCall(partial(file.pread, wanted, position))
                if len(data) < wanted:
                    found = f"the file ends {wanted - len(data)} bytes early"
                    raise DamagedSegment(file.path, position + len(data), found)
                used = 0
                for at, header in _whole(segment, position, data):
                    batch = memoryview(data)[at : at + header.size]
                    try:
                        if header.size < LARGE:
                            check_crc(batch, 0, header)
                        else:
                            yield BlockingCall(partial(check_crc, batch, 0, header))
                        going_on = yield from handle(batch, header)
                    except errors.CorruptRecord as error:
                        raise DamagedSegment(file.path, position + at, error) from error
                    if not going_on:
                        return False
                    used = at + header.size
                    self._cost += header.count + _BATCH_COST + header.size // _BYTES_A_ROW
                    if self._cost > ROWS_AT_ONCE:
                        self._cost = 0
                        yield None
                length = max(_READ_BYTES, _needed(segment, position + used, data[used:]))
                position += used
        finally:
            file.release()
        return True


def _replace(owner: UnifiedLog, made: LogSegment, old: list[LogSegment]) -> IncrementalTask[bool]:
    """Replace closed segments by a synced one that was made of them. Return False if the log has changed since."""
    local = owner.local
    if not _may_change(owner):
        return False
    try:
        renames = local.segments.replace(made, old, local.deletion_time_ms())
        if renames is None:
            return False
        for _ in renames:
            yield None
            if not _may_change(owner):  # the directory may belong to another log now
                return False
    except OSError as error:
        owner.fail(f"compaction stopped between two names of a file: {error}")
        raise
    yield BlockingCall(partial(local.fs.sync_directory, local.directory))
    local.segment_flushed(made)
    return True


def _may_change(owner: UnifiedLog) -> bool:
    return not owner.closed and owner.failure is None


def _whole(segment: LogSegment, position: int, data: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the batches that are completely in `data`, which begins at `position` of the file."""
    at = 0
    while at < len(data):
        try:
            header = read_header(data, at)
        except errors.TruncatedMessage:
            return
        except errors.ProtocolError as error:
            raise DamagedSegment(segment.records.file.path, position + at, error) from error
        if at + header.size > len(data):
            return
        yield at, header
        at += header.size


def _needed(segment: LogSegment, position: int, rest: bytes) -> int:
    """Return the size of the batch at the beginning of `rest`, the bytes at `position`. Raise `DamagedSegment`."""
    if not rest:
        return 0
    try:
        size = read_header(rest).size
    except errors.TruncatedMessage:
        size = len(rest) + 1
    if position + size > segment.size:
        raise DamagedSegment(segment.records.file.path, position, f"a batch of {size} bytes does not fit")
    return size


class _Output:
    """The segment under construction (`.cleaned` files), written in large pieces."""

    def __init__(self, fs: FileSystem, owner: UnifiedLog, base_offset: int) -> None:
        self._fs = fs
        self._pending: list[KeptBatch] = []
        self._bytes = 0
        self.segment = LogSegment(
            fs,
            owner.directory,
            base_offset,
            size=0,
            index_interval=owner.config.index_interval_bytes,
            suffix=CLEANED,
        )
        self.segment.remove_files()  # of a round that failed
        self.segment.records.file.retain()
        self.segment.records.file.fileno()

    def add(self, kept: KeptBatch) -> IncrementalTask[None]:
        self._pending.append(kept)
        self._bytes += kept.header.size
        if self._bytes >= _WRITE_BYTES:
            yield from self._write()

    def _write(self) -> IncrementalTask[None]:
        segment, pending = self.segment, self._pending
        records = segment.records
        if not pending:
            return
        data = b"".join(kept.data for kept in pending)
        self._pending, self._bytes = [], 0
        records.file.fileno()
        yield BlockingCall(partial(records.file.pwrite, data, records.size))
        for kept in pending:
            segment.indexes.add_batch(records.size, kept.header)
            records.size += kept.header.size
            if kept.abort is not None:
                segment.indexes.transactions.append(kept.abort)

    def finish(self, modified_ms: int) -> IncrementalTask[None]:
        """Sync everything; the file gets the modification time of the newest one it was made from."""
        yield from self._write()
        segment = self.segment
        segment.finish()
        files = segment.files()
        for file in files:
            file.retain()
            file.fileno()
        try:
            for file in files:
                yield BlockingCall(file.sync)
        finally:
            for file in files:
                file.release()
        self._fs.set_modified_ms(segment.records.file.path, modified_ms)

    def close(self) -> None:
        """Release the files, and remove them if they were not swapped in."""
        self.segment.records.file.release()
        if self.segment.suffix == CLEANED:  # after the swap its files may be the only ones
            self.segment.close()
            self.segment.remove_files()
