"""Read and check the metadata log from its files; refuse damage that a crash cannot explain.

A crash leaves at most an incomplete last batch, which was never acknowledged and is dropped. Any other damage would
lose the topics after it, so nothing is changed until an administrator runs `truncate_metadata_log`.
"""

from __future__ import annotations

import json
import os
import re
import struct
from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from pyclient.broker_embedded.log.checkpoints import CLEAN_SHUTDOWN, META_PROPERTIES, uuid_from_text
from pyclient.broker_embedded.log.data_directory import LOCK
from pyclient.broker_embedded.log.file_records import DamagedSegment, FileRecords, whole_batches
from pyclient.broker_embedded.log.partition_directories import DATA_FILE
from pyclient.errors import ConfigError, CorruptRecord, ProtocolError
from pyclient.records import HEADER_SIZE, BatchHeader, check_crc, read_header

if TYPE_CHECKING:
    from pyclient.broker_embedded.log.filesystem import FileSystem

METADATA_DIRECTORY: Final = "__cluster_metadata-0"
QUORUM_STATE: Final = "quorum-state"
_INT_MAX: Final = 2**31 - 1
_SECTOR: Final = 512  # a disk writes sectors atomically
_LENGTH_AT: Final = 8
_LENGTH_END: Final = 12
_BATCH_CANDIDATE: Final = re.compile(rb"(?=\x00\x00.{14}\x02)", re.DOTALL)  # a small offset, magic 2


class DamagedMetadataLog(CorruptRecord):
    """The metadata log is damaged at byte `position` of the file `path`; nothing was changed."""

    def __init__(self, path: str, position: int, reason: object) -> None:
        super().__init__(
            f"the metadata log {path} is damaged at byte {position}: {reason}. Nothing was changed. "
            "Put an undamaged copy there, or run `pyclient recover-metadata DATA_DIR`, which keeps what is cut off"
        )
        self.path = path
        self.position = position


class MetadataEnd(NamedTuple):
    """The end of the complete batches: next offset, leader epoch (-1: no batch), and the size of a torn batch."""

    offset: int
    epoch: int
    torn_bytes: int


class QuorumState(NamedTuple):
    """The contents of `quorum-state`, which is written before the log: the newest epoch (0: none) and the voters.

    `leader_id` is the epoch's leader, `voted_id` the node that got this one's vote in it; -1 for none. Where the log
    has the voters (kraft.version 1), the file has none, and the vote has a directory id.
    """

    epoch: int
    voters: list[int]
    leader_id: int = -1
    voted_id: int = -1
    voted_directory: str = ""
    dynamic: bool = False


def read_quorum_state(fs: FileSystem, directory: str) -> QuorumState:
    """Read `quorum-state` if it exists. Raise `ConfigError` if it is damaged."""
    path = os.path.join(directory, QUORUM_STATE)
    content = fs.read(path)
    try:
        state = json.loads(content) if content else {}
        voters = [voter["voterId"] for voter in state.get("currentVoters", ())]
        epoch = int(state.get("leaderEpoch", 0))
        if not 0 <= epoch < _INT_MAX:
            raise ValueError(f"leaderEpoch {epoch} is impossible")
        leader_id, voted_id = int(state.get("leaderId", -1)), int(state.get("votedId", -1))
        voted_directory = str(state.get("votedDirectoryId", ""))
        if voted_directory:
            uuid_from_text(voted_directory)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(
            f"{path} cannot be read: {error!r}. Put an undamaged copy there, or remove it if this node is the only "
            "controller: the epoch is taken from the metadata log then"
        ) from error
    return QuorumState(epoch, voters, leader_id, voted_id, voted_directory, state.get("data_version") == 1)


def write_quorum_state(fs: FileSystem, directory: str, state: QuorumState) -> None:
    """Replace `quorum-state`, and sync it."""
    path = os.path.join(directory, QUORUM_STATE)
    if state.dynamic:
        voted = {"votedId": state.voted_id, "votedDirectoryId": state.voted_directory}
        known = {"leaderId": state.leader_id, "leaderEpoch": state.epoch, **voted, "data_version": 1}
        fs.replace(path, json.dumps(known, separators=(",", ":")).encode())
        return
    content = {
        "clusterId": "",
        "leaderId": state.leader_id,
        "leaderEpoch": state.epoch,
        "votedId": state.voted_id,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": voter} for voter in state.voters],
        "data_version": 0,
    }
    fs.replace(path, json.dumps(content, separators=(",", ":")).encode())


def read_metadata_log(
    fs: FileSystem,
    directory: str,
    take: Callable[[bytes, BatchHeader], object],
    *,
    clean: bool,
    newest_epoch: int,
    start: int = 0,
) -> MetadataEnd:
    """Check every batch of the log in `directory` and pass it to `take`, in order; change nothing.

    After a `clean` shutdown not even the last batch may be torn. `newest_epoch` is the epoch of `quorum-state`, the
    upper bound of the batches' epochs; 0 if unknown. Files before `start`, the end of a snapshot, are not read. Raise
    `DamagedMetadataLog`, also for a `CorruptRecord` that `take` raises.
    """
    newest = newest_epoch or _INT_MAX - 1
    files = fs.list_files(directory)
    bases = sorted(int(name[:20]) for name in files if DATA_FILE.fullmatch(name) and name.endswith(".log"))
    bases = bases[max(bisect_right(bases, start) - 1, 0) :]
    offset, epoch, torn = (bases[0] if bases else 0), -1, 0
    if offset > start:
        path = f"{directory}/{offset:020d}.log"
        raise DamagedMetadataLog(path, 0, f"it begins at offset {offset}, and no snapshot has the records before it")
    for base in bases:
        records = FileRecords(fs.file(f"{directory}/{base:020d}.log"), base, files[f"{base:020d}.log"])
        position = 0
        try:
            if base != offset:
                raise DamagedSegment(
                    records.file.path, 0, f"it begins at offset {base}, the one before ends at {offset}"
                )
            for position, header in whole_batches(records, 0):
                if header.base_offset != offset or not epoch <= header.leader_epoch <= newest:
                    found = f"offset {header.base_offset} of epoch {header.leader_epoch}"
                    raise CorruptRecord(f"{found}, offset {offset} of an epoch from {epoch} to {newest} would be next")
                take(records.read_batch(position, header), header)
                offset, epoch = header.next_offset, header.leader_epoch
        except DamagedSegment as error:
            if clean or base != bases[-1] or not _is_torn(records, error.position):
                raise DamagedMetadataLog(records.file.path, error.position, error.__cause__ or error) from error
            torn = records.size - error.position
        except ProtocolError as error:
            raise DamagedMetadataLog(records.file.path, position, error) from error
        finally:
            records.file.close()
    return MetadataEnd(offset, epoch, torn)


def _is_torn(records: FileRecords, position: int) -> bool:
    """Return True if a crash explains the bytes from `position` on: one incomplete batch."""
    tail = records.file.pread(records.size - position, position)
    length = len(tail)
    if any(_is_batch(tail, found.start()) for found in _BATCH_CANDIDATE.finditer(tail, 1)):
        return False
    if length < HEADER_SIZE:
        return True
    written = len(tail.rstrip(b"\0"))
    if not written or position + length > -(-(position + written) // _SECTOR) * _SECTOR:
        return True  # the file size was extended, but its last sectors were never written
    (announced,) = struct.unpack_from(">i", tail, _LENGTH_AT)
    if announced + _LENGTH_END <= length:
        return False
    whole = bytearray(tail)
    struct.pack_into(">i", whole, _LENGTH_AT, length - _LENGTH_END)
    return not _is_batch(whole, 0)  # a complete batch here means that its length field is damaged


def _is_batch(data: bytes | bytearray, position: int) -> bool:
    try:
        header = read_header(data, position)
        if position + header.size > len(data):
            return False
        check_crc(data, position, header)
    except ProtocolError:
        return False
    return True


class MetadataTruncation(NamedTuple):
    """The result of `truncate_metadata_log`; `kept` are the files with the removed bytes."""

    damage: DamagedMetadataLog
    removed_bytes: int
    kept: list[str]


def truncate_metadata_log(
    fs: FileSystem, data_dir: str, take: Callable[[bytes, BatchHeader], object], start: int = 0
) -> MetadataTruncation | None:
    """Truncate a damaged metadata log before the damage; return None if there is no damage that a crash cannot explain.

    The removed bytes are kept in files with the suffix `.cut-at-<byte>` in the same directory. The next start recovers
    all logs. Raise `ConfigError` if `data_dir` is no broker's data directory, or in use.
    """
    directory = os.path.join(data_dir, METADATA_DIRECTORY)
    if not fs.exists(os.path.join(data_dir, META_PROPERTIES)):
        raise ConfigError(f"{data_dir} has no {META_PROPERTIES}: it is no broker's data directory")
    try:
        lock = fs.lock(os.path.join(data_dir, LOCK))
    except BlockingIOError as error:
        raise ConfigError(f"{data_dir} is in use by a broker: stop it first") from error
    try:
        clean_mark = os.path.join(data_dir, CLEAN_SHUTDOWN)
        try:
            newest = read_quorum_state(fs, directory).epoch
            read_metadata_log(fs, directory, take, clean=fs.exists(clean_mark), newest_epoch=newest, start=start)
        except DamagedMetadataLog as damage:
            fs.remove(clean_mark)
            fs.sync_directory(data_dir)
            return _truncate(fs, directory, damage)
        return None
    finally:
        lock.release()


def _truncate(fs: FileSystem, directory: str, damage: DamagedMetadataLog) -> MetadataTruncation:
    file = fs.file(damage.path)
    rest = fs.read(damage.path)
    removed = b"" if rest is None else rest[damage.position :]
    kept = [f"{damage.path}.cut-at-{damage.position}"]
    fs.replace(kept[0], removed)
    lost = len(removed)
    first = int(os.path.basename(damage.path)[:20])
    for name, size in sorted(fs.list_files(directory).items(), reverse=True):
        if DATA_FILE.fullmatch(name) and name.endswith(".log") and int(name[:20]) > first:
            path = os.path.join(directory, name)
            fs.rename(path, f"{path}.cut-at-0")
            kept.append(f"{path}.cut-at-0")
            lost += size
    file.truncate(damage.position)
    file.sync()
    file.close()
    fs.sync_directory(directory)
    return MetadataTruncation(damage, lost, kept)
