"""The batches in the logs of brokers that have stopped."""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from pyclient.errors import CorruptRecord
from pyclient.records import BatchHeader, check_crc, decode_batch, iter_batches
from tests.chaos.history import Batch, History, Log, Place, StoredRecord


def batches_of(data_dir: Path, node: int, topics: Sequence[str]) -> Iterator[Batch]:
    """Yield the batches of some topics in the directory of a node, which was stopped in order."""
    for place, path in _segments(data_dir, topics):
        for content, position, header in _batches(path):
            yield Batch(
                node,
                place,
                header.base_offset,
                header.next_offset - 1,
                header.crc if _is_sound(content, position, header) else _damaged(node),
                leader_epoch=header.leader_epoch,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
            )


def records_of(data_dir: Path, node: int, topics: Sequence[str]) -> Iterator[StoredRecord]:
    """Yield the records of some compacted topics in the directory of a node, which was stopped in order."""
    for place, path in _segments(data_dir, topics):
        for content, position, header in _batches(path):
            if not _is_sound(content, position, header):
                yield StoredRecord(node, place, header.base_offset, header.leader_epoch, -1, _damaged(node))
                continue
            for record in decode_batch(content, position, header, *place):
                keyed = record.key is not None and not header.is_transactional
                parts = (record.key, record.value, record.timestamp_ms, record.headers)
                yield StoredRecord(
                    node,
                    place,
                    record.offset,
                    header.leader_epoch,
                    zlib.crc32(record.key or b"") if keyed else -1,
                    zlib.crc32(repr(parts).encode()),
                )


def logs_in(data_dir: Path, node: int, topics: Sequence[str]) -> Iterator[Log]:
    """Yield the ranges of the logs of some topics in the directory of a node, also of empty ones."""
    for place, directory in _directories(data_dir, topics):
        paths = sorted(directory.glob("*.log"))  # none before the first record
        bases = [int(path.stem) for path in paths] or [0]
        last = max((header.next_offset for path in paths for _, _, header in _batches(path)), default=0)
        yield Log(node, place, bases[0], max(last, bases[-1]))


def _segments(data_dir: Path, topics: Sequence[str]) -> Iterator[tuple[Place, Path]]:
    """Yield the segments of some topics in the order of their offsets."""
    for place, directory in _directories(data_dir, topics):
        for path in sorted(directory.glob("*.log")):
            yield place, path


def _directories(data_dir: Path, topics: Sequence[str]) -> Iterator[tuple[Place, Path]]:
    for directory in sorted(data_dir.iterdir()):
        topic, _, partition = directory.name.rpartition("-")
        if topic in topics:
            yield Place(topic, int(partition)), directory


def _batches(path: Path) -> Iterator[tuple[bytes, int, BatchHeader]]:
    content = path.read_bytes()
    for position, header in iter_batches(content):
        yield content, position, header


def _is_sound(content: bytes, position: int, header: BatchHeader) -> bool:
    try:
        check_crc(content, position, header)
    except CorruptRecord:
        return False
    return True


def _damaged(node: int) -> int:
    """Return a checksum that is unlike that of any other replica."""
    return -1 - node


class Logs:
    """The batches in the logs of all replicas, by partition; of an offset that of any replica."""

    def __init__(self, history: History) -> None:
        found: dict[Place, dict[int, Batch]] = defaultdict(dict)
        for batch in history.batches:
            found[batch.place].setdefault(batch.offset, batch)
        self._batches = found
        self._offsets: dict[Place, Sequence[int]] = {place: sorted(batches) for place, batches in found.items()}

    def batch_at(self, place: Place, offset: int) -> Batch | None:
        """Return the batch with an offset."""
        offsets = self._offsets.get(place, ())
        at = bisect_right(offsets, offset) - 1
        batch = self._batches[place][offsets[at]] if at >= 0 else None
        return batch if batch is not None and offset <= batch.last_offset else None

    def of_producer(self, place: Place, producer_id: int, epoch: int) -> Iterator[Batch]:
        """Yield the batches of an epoch of a producer."""
        for batch in self._batches.get(place, {}).values():
            if batch.producer_id == producer_id and batch.producer_epoch == epoch:
                yield batch
