"""The batches in the logs of brokers that have stopped."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from pyclient.errors import CorruptRecord
from pyclient.records import check_crc, iter_batches
from tests.chaos.history import Batch, History, Place


def batches_of(data_dir: Path, node: int, topics: Sequence[str]) -> Iterator[Batch]:
    """Yield the batches of some topics in the directory of a node, which was stopped in order."""
    for directory in sorted(data_dir.iterdir()):
        topic, _, partition = directory.name.rpartition("-")
        if topic not in topics:
            continue
        place = Place(topic, int(partition))
        for path in sorted(directory.glob("*.log")):
            content = path.read_bytes()
            for position, header in iter_batches(content):
                try:
                    check_crc(content, position, header)
                    crc = header.crc
                except CorruptRecord:
                    crc = -1 - node  # unlike that of any other replica
                yield Batch(
                    node,
                    place,
                    header.base_offset,
                    header.next_offset - 1,
                    crc,
                    leader_epoch=header.leader_epoch,
                    producer_id=header.producer_id,
                    producer_epoch=header.producer_epoch,
                    base_sequence=header.base_sequence,
                )


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
