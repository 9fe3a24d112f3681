"""Loads a partition's directory: interrupted operations are completed or undone, and the state is rebuilt.

After a clean stop that costs a few small reads. After a crash every batch after the recovery point is checked; the
first invalid one ends the log.
"""

from __future__ import annotations

import logging
import uuid
from typing import Final, NamedTuple

from pyclient import errors
from pyclient.broker_embedded.log.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    CorruptCheckpoint,
    parse_epochs,
    render_epochs,
    stored_topic_id,
    write_topic_id,
)
from pyclient.broker_embedded.log.config import LogConfig
from pyclient.broker_embedded.log.file_records import BatchChecker, DamagedSegment
from pyclient.broker_embedded.log.filesystem import FileSystem
from pyclient.broker_embedded.log.incremental_task import IncrementalTask
from pyclient.broker_embedded.log.leader_epoch_cache import LeaderEpochFileCache
from pyclient.broker_embedded.log.local_log import LoadedLog, LocalLog
from pyclient.broker_embedded.log.log_segment import SWAP, LogSegment
from pyclient.broker_embedded.log.partition_directories import DATA_FILE, foreign_entries, is_temporary
from pyclient.broker_embedded.log.partition_files import PartitionFiles
from pyclient.broker_embedded.log.producer_state_manager import (
    ProducerStateManager,
    remove_snapshots_after,
    replay_into,
    replay_steps,
    restore_producers,
)
from pyclient.broker_embedded.log.reconciliation import contradiction
from pyclient.broker_embedded.log.unified_log import UnifiedLog
from pyclient.clock import Clock
from pyclient.records import HEADER_SIZE, BatchHeader, read_header
from pyclient.types import TopicPartition

log = logging.getLogger("pyclient.broker_embedded")

_INT_MAX: Final = 2**31 - 1
_TORN_MOST: Final = 1 << 20
"""Bytes that a write interrupted by a crash leaves at most; more than that at the end of a log is damage."""


class LogCheckpoint(NamedTuple):
    """The checkpointed state of a log, as its opening uses it.

    `clean`: the log was closed cleanly and needs no check; otherwise batches from `recovery_point` on are checked, and
    a torn tail is truncated. Without a `high_watermark` the log is not replicated, and everything in it is committed.
    """

    clean: bool
    recovery_point: int = 0
    start_offset: int = 0
    high_watermark: int | None = None


def open_log(
    directory: str,
    partition: TopicPartition,
    topic_id: uuid.UUID | None,
    config: LogConfig,
    checkpoint: LogCheckpoint,
    *,
    fs: FileSystem,
    clock: Clock,
) -> IncrementalTask[UnifiedLog]:
    """Open the log in `directory`, or an empty one whose files are created by the first append; in steps.

    Raise `KafkaStorageError` if the directory cannot be read, is another topic's, or has foreign files and no
    `partition.metadata`; nothing is changed then. The caller has exclusive use of the directory; an abandoned opening
    can be repeated.
    """
    name = str(partition)
    try:
        stored = _checked_topic_id(fs, directory, partition, topic_id)
        loaded = yield from load(fs, directory, name, config, checkpoint)
        if loaded.exists and stored is None and topic_id is not None:
            write_topic_id(fs, directory, topic_id)
    except OSError as error:
        raise errors.KafkaStorageError(f"{name}: {directory} cannot be opened: {error}") from error
    topic_id = topic_id or stored
    files = PartitionFiles(fs, directory, topic_id, loaded.epochs, exist=loaded.exists, saved=loaded.epochs_saved)
    intact = checkpoint.clean and loaded.damage is None
    recovery_point = loaded.end_offset if intact else checkpoint.recovery_point
    local = LocalLog(name, files, clock, config, loaded, recovery_point=recovery_point)
    return UnifiedLog(partition, topic_id, local, loaded, high_watermark=checkpoint.high_watermark)


def _checked_topic_id(
    fs: FileSystem, directory: str, partition: TopicPartition, topic_id: uuid.UUID | None
) -> uuid.UUID | None:
    """Return the topic id in the directory. Raise `KafkaStorageError` if it is another one, or has foreign files."""
    stored = stored_topic_id(fs, directory)
    if stored is not None and topic_id is not None and stored != topic_id:
        raise errors.KafkaStorageError(contradiction(directory, partition, stored, topic_id))
    foreign = foreign_entries(fs, directory) if stored is None else []
    if foreign:
        raise errors.KafkaStorageError(
            f"{directory} has no {PARTITION_METADATA}, and {foreign[0]!r} in it is no file of a log: {partition} is "
            "offline and the directory stays as it is; move it away"
        )
    return stored


def load(
    fs: FileSystem, directory: str, name: str, config: LogConfig, checkpoint: LogCheckpoint
) -> IncrementalTask[LoadedLog]:
    """Load a partition's directory (which need not exist). Offsets below the recovery point are on the disk.

    Steps may be abandoned at any point: the directory can be loaded again from the beginning.
    """
    start_offset = checkpoint.start_offset
    files = yield from finish_interrupted(fs, directory, fs.list_files(directory))
    bases = sorted(int(name[:20]) for name in files if _is(name, "log"))
    segments = [
        LogSegment(fs, directory, base, size=files[f"{base:020d}.log"], index_interval=config.index_interval_bytes)
        for base in bases
    ]
    if not segments:
        empty = LogSegment(fs, directory, start_offset, size=0, index_interval=config.index_interval_bytes)
        return LoadedLog(
            [empty], start_offset, start_offset, LeaderEpochFileCache(), ProducerStateManager(name), bool(files)
        )
    loading = LogLoader(fs, directory, name, segments)
    try:
        yield from loading.load(files, clean=checkpoint.clean, recovery_point=checkpoint.recovery_point)
    except BaseException:  # abandoned, or the disk failed: the files are not used
        for segment in segments:
            segment.close()
        raise
    loaded = LoadedLog(
        loading.segments,
        max(start_offset, loading.segments[0].base_offset),
        loading.end_offset,
        loading.epochs,
        loading.producers,
        True,
        loading.damage,
        checkpoint.clean,
    )
    if loaded.end_offset < loaded.start_offset:
        return _restart_empty(fs, directory, name, config, loaded)
    loaded.epochs.truncate_from_start(loaded.start_offset)
    return loaded


def _is(name: str, kind: str) -> bool:
    found = DATA_FILE.fullmatch(name)
    return found is not None and found[2] == kind


class LogLoader:
    """Loads the files of one directory, in steps."""

    def __init__(self, fs: FileSystem, directory: str, name: str, segments: list[LogSegment]) -> None:
        self._fs = fs
        self._directory = directory
        self._name = name
        self.segments = segments
        self.end_offset = segments[0].base_offset
        self.epochs = LeaderEpochFileCache()
        self.producers = ProducerStateManager(name)
        self.damage: DamagedSegment | None = None
        self._last: tuple[int, BatchHeader] | None = None  # position and header of the last batch that was checked
        self._end_before_last = 0
        self._is_last_dropped = False

    def load(self, files: dict[str, int], *, clean: bool, recovery_point: int) -> IncrementalTask[None]:
        yield from self._make_missing_indexes(files)
        if clean:
            try:
                self.end_offset = yield from self._find_end(self.segments[-1])
            except DamagedSegment as error:  # the stop was not so clean after all
                log.warning("%s: %s; the last segment is checked", self._name, error)
                clean, recovery_point = False, self.segments[-1].base_offset
        if clean:
            yield from self._load_epochs(LEADER_EPOCHS in files)
            yield from self._replay(self._restore_producers(files, self.end_offset))
        else:
            yield from self._recover(files, recovery_point)
        if self.epochs.truncate_from_end(self.end_offset) or self.damage is not None:
            self._fs.replace(f"{self._directory}/{LEADER_EPOCHS}", render_epochs(self.epochs), sync=False)
        self._drop_stray_snapshots(files)

    def _make_missing_indexes(self, files: dict[str, int]) -> IncrementalTask[None]:
        """Build missing indexes of closed segments: in steps here, not at once by the first read."""
        for segment in self.segments[:-1]:
            stem = f"{segment.base_offset:020d}"
            if f"{stem}.index" not in files or f"{stem}.timeindex" not in files:
                try:
                    yield from segment.indexes.load_steps()
                except DamagedSegment as error:  # reads of it fail
                    log.error("%s: %s; the rest of this file cannot be read", self._name, error)

    def _find_end(self, last: LogSegment) -> IncrementalTask[int]:
        yield from last.indexes.load_steps()
        end = last.base_offset
        for _position, header in last.records.walk(last.indexes.offsets.last()[1]):
            end = header.next_offset
        return end

    # Epochs

    def _load_epochs(self, present: bool) -> IncrementalTask[None]:
        path = f"{self._directory}/{LEADER_EPOCHS}"
        content = self._fs.read(path) if present else None
        try:
            if content is not None:
                self.epochs = parse_epochs(content, path)
                return
            if not any(segment.size for segment in self.segments):
                return
            log.warning("%s: %s is missing; it is rebuilt from the batches", self._name, LEADER_EPOCHS)
        except CorruptCheckpoint as error:
            log.warning("%s: %s; it is rebuilt from the batches", self._name, error)
        yield from self._rebuild_epochs()
        self._fs.replace(path, render_epochs(self.epochs), sync=False)

    def _rebuild_epochs(self) -> IncrementalTask[None]:
        try:
            for segment in self.segments:
                for _position, header in segment.records.walk(0):
                    self._take_epoch(header)
                    yield None
        except DamagedSegment as error:
            log.warning("%s: %s; later leader epochs are unknown", self._name, error)

    def _take_epoch(self, header: BatchHeader) -> None:
        if header.leader_epoch > self.epochs.latest:
            self.epochs.assign(header.leader_epoch, header.base_offset)

    # Producers

    def _restore_producers(self, files: dict[str, int], at_most: int) -> int:
        """Load the newest usable snapshot up to offset `at_most`. Return its offset, or the log's start."""
        first = self.segments[0].base_offset
        self.producers, offset = restore_producers(
            self._fs, self._directory, self._name, files, first_offset=first, at_most=at_most
        )
        return offset

    def _replay(self, from_offset: int) -> IncrementalTask[None]:
        return replay_steps(self.segments, self.producers, from_offset, self.end_offset)

    def _drop_stray_snapshots(self, files: dict[str, int]) -> None:
        """Remove all snapshots except those at the segments' bases and the newest one."""
        offsets = {int(name[:20]) for name in files if _is(name, "snapshot")}
        usable = {offset for offset in offsets if offset <= self.end_offset}
        kept = {segment.base_offset for segment in self.segments} | {max(usable, default=-1)}
        for offset in offsets - (usable & kept):
            self._fs.remove(f"{self._directory}/{offset:020d}.snapshot")

    # After a crash

    def _recover(self, files: dict[str, int], recovery_point: int) -> IncrementalTask[None]:
        check_from = max(recovery_point, self.segments[0].base_offset)
        if LEADER_EPOCHS in files or check_from > self.segments[0].base_offset:
            yield from self._load_epochs(LEADER_EPOCHS in files)
        self.epochs.truncate_from_end(check_from)
        start = self._restore_producers(files, check_from)
        self.end_offset = start
        for index, segment in enumerate(self.segments):
            if index + 1 < len(self.segments) and self.segments[index + 1].base_offset <= start:
                continue
            self.end_offset = max(self.end_offset, segment.base_offset)
            yield from self._recover_segment(segment, start, check_from)
            if self.damage is not None:
                self._drop_segments(index + 1)
                break
        if self.end_offset < start or self._is_last_dropped:  # the producers' state covers batches that are lost
            yield from self._replay(self._restore_producers(files, self.end_offset))

    def _recover_segment(self, segment: LogSegment, start: int, check_from: int) -> IncrementalTask[None]:
        """Load a segment's batches from offset `start` on, and check those from `check_from` on."""
        try:
            position = yield from self._unchecked(segment, (yield from self._prepare(segment, start)), check_from)
            checking = BatchChecker(segment.records, position)
            while (found := (yield from checking.next_batch())) is not None:
                self._take(segment, *found)
                yield None
        except DamagedSegment as error:
            misplaced = self._misplaced(segment, error)
            yield from self._truncate(segment, misplaced or error)
            if misplaced is not None:
                segment.indexes.transactions.truncate(self._end_before_last)
                self._is_last_dropped = True
        if self.damage is not None:
            self.end_offset = yield from self._find_end(segment)

    def _unchecked(self, segment: LogSegment, position: int, check_from: int) -> IncrementalTask[int]:
        """Load the batches before offset `check_from` without checks. Return the position after them."""
        for at, header in segment.records.walk(position):
            if header.next_offset > check_from:
                return at
            self._take(segment, at, header)
            yield None
        return segment.size

    def _misplaced(self, segment: LogSegment, error: DamagedSegment) -> DamagedSegment | None:
        """Return the damage of the last good batch if its offset is wrong; None if it may be right.

        The offset of a batch is outside of its checksum. If the next batch has the offset that would follow if there
        was no gap before the last one, that is the wrong one.
        """
        if self._last is None:
            return None
        (position, last), end = self._last, self._end_before_last
        if position + last.size != error.position or last.base_offset == end:
            return None
        try:
            after = read_header(segment.records.file.pread(HEADER_SIZE, error.position), 0)
        except errors.ProtocolError:
            return None
        if after.base_offset != end + last.last_offset_delta + 1:
            return None
        found = f"a batch at offset {last.base_offset}, {end} would be next and {after.base_offset} follows"
        return DamagedSegment(segment.records.file.path, position, found)

    def _take(self, segment: LogSegment, position: int, header: BatchHeader) -> None:
        self._last = position, header
        self._end_before_last = self.end_offset if position else segment.base_offset
        self._take_epoch(header)
        segment.indexes.add_batch(position, header)
        replay_into(segment.indexes, self.producers, position, header)
        self.end_offset = header.next_offset

    def _prepare(self, segment: LogSegment, start: int) -> IncrementalTask[int]:
        """Restore the indexes to their state at offset `start`. Return the position of the next batch.

        A segment with an invalid header is truncated first; the rest of it is still to be checked.
        """
        while True:
            try:
                yield from segment.indexes.load_files(start)
                position = yield from segment.indexes.resume_before(start)
                segment.indexes.transactions.truncate(start)
                return position
            except DamagedSegment as error:
                yield from self._truncate(segment, error)

    def _truncate(self, segment: LogSegment, damage: DamagedSegment) -> IncrementalTask[None]:
        lost = segment.size - damage.position
        # A process that is killed while it writes leaves the first pages of that write, which it did not answer yet.
        torn = damage.unfinished and segment is self.segments[-1] and lost <= _TORN_MOST
        level = logging.WARNING if torn else logging.ERROR
        log.log(level, "%s: %s; the log ends there, %d bytes of this file are dropped", self._name, damage, lost)
        yield from segment.truncate_to_position_steps(damage.position)
        self.damage = damage

    def _drop_segments(self, index: int) -> None:
        for segment in reversed(self.segments[index:]):
            log.error("%s: %s is dropped: it follows the damage", self._name, segment.records.file.path)
            for path in segment.mark_deleted():
                self._fs.remove(path)
        del self.segments[index:]


def _restart_empty(fs: FileSystem, directory: str, name: str, config: LogConfig, loaded: LoadedLog) -> LoadedLog:
    """Restart the log empty at its start offset: a crash lost its end, up to before its deleted records."""
    log.warning(
        "%s ends at offset %d, before its start %d: it restarts empty", name, loaded.end_offset, loaded.start_offset
    )
    for segment in loaded.segments:
        for path in segment.mark_deleted():
            fs.remove(path)
    remove_snapshots_after(fs, directory, -1)
    start = loaded.start_offset
    empty = LogSegment(fs, directory, start, size=0, index_interval=config.index_interval_bytes)
    return LoadedLog([empty], start, start, LeaderEpochFileCache(), ProducerStateManager(name), True, loaded.damage)


def finish_interrupted(fs: FileSystem, directory: str, files: dict[str, int]) -> IncrementalTask[dict[str, int]]:
    """Complete or undo interrupted operations. Return the files that are left."""
    kept = {name: size for name, size in files.items() if not is_temporary(name)}
    if len(kept) != len(files):
        yield from _finish_swaps(fs, directory, files, kept)
        for name in sorted(files, key=lambda name: name.endswith(".log.cleaned")):  # last: it identifies the others
            if is_temporary(name):
                fs.remove(f"{directory}/{name}")
    for name in [name for name in kept if DATA_FILE.fullmatch(name) and not name.endswith(".snapshot")]:
        if f"{name[:20]}.log" not in kept:
            fs.remove(f"{directory}/{name}")
            del kept[name]
    return kept


def _finish_swaps(fs: FileSystem, directory: str, files: dict[str, int], kept: dict[str, int]) -> IncrementalTask[None]:
    cleaned = min((int(name[:20]) for name in files if name.endswith(".log.cleaned")), default=None)
    swaps = [name for name in files if name.endswith(SWAP) and (cleaned is None or int(name[:20]) < cleaned)]
    for base in sorted({name[:20] for name in swaps}):
        if f"{base}.log.swap" in files:
            end = yield from _end_of_swap(fs, directory, base, files, kept)
            if end is None:
                continue
            _drop_covered(fs, directory, range(int(base), end), kept)
        elif f"{base}.log" not in kept:
            continue
        for name in [name for name in swaps if name.startswith(base)]:
            final = name.removesuffix(SWAP)
            fs.rename(f"{directory}/{name}", f"{directory}/{final}")
            kept[final] = files[name]


def _end_of_swap(
    fs: FileSystem, directory: str, base: str, files: dict[str, int], kept: dict[str, int]
) -> IncrementalTask[int | None]:
    """Return the end of a finished segment of compaction; None if it is damaged and not needed.

    That is so while all segments that it replaces are there: they are renamed from the last to the first one.
    """
    swapped = LogSegment(fs, directory, int(base), size=files[f"{base}.log.swap"], index_interval=_INT_MAX, suffix=SWAP)
    end = int(base) + 1
    try:
        for _position, header in swapped.records.walk(0):
            end = header.next_offset
            yield None
    except DamagedSegment as error:
        are_some_gone = any(name.endswith(".log.deleted") and name[:20] > base for name in files)
        if f"{base}.log" in kept and not are_some_gone:
            log.error("%s; the segments that compaction was about to replace by it are kept", error)
            return None
        log.error("%s; the segments that compaction replaced by it are gone: reads of it fail there", error)
    finally:
        swapped.close()
    return end


def _drop_covered(fs: FileSystem, directory: str, offsets: range, kept: dict[str, int]) -> None:
    """Remove the segments that begin at one of `offsets`: a finished segment of compaction replaces them."""
    for name in [name for name in kept if DATA_FILE.fullmatch(name)]:
        if int(name[:20]) in offsets and not name.endswith(".snapshot"):
            fs.remove(f"{directory}/{name}")
            del kept[name]
