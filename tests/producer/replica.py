"""A model of one partition at its leader: it writes, refuses and detects duplicates like Kafka."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyclient import errors
from pyclient.producer.produce_response import PartitionAnswer
from pyclient.records import check_crc, decode_batch, read_header


@dataclass
class Replica:
    """A broker's state of one partition: its records, and the producer's epochs and last five batches."""

    log: list[bytes] = field(default_factory=list)
    epochs: dict[int, int] = field(default_factory=dict)
    recent: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    max_bytes: int = 10**9

    def append(self, data: bytes) -> PartitionAnswer:
        header = read_header(data)
        check_crc(data, 0, header)
        records = decode_batch(data, 0, header, "t", 0)
        if any(record.value.startswith(b"bad") for record in records):
            bad = {index: "bad" for index, record in enumerate(records) if record.value.startswith(b"bad")}
            return PartitionAnswer(errors.InvalidRecord.code, record_errors=bad)
        if len(data) > self.max_bytes:
            return PartitionAnswer(errors.MessageTooLarge.code)
        if header.producer_id >= 0:
            code, offset = self._check(header)
            if code or offset >= 0:
                return PartitionAnswer(code, offset)
        offset = len(self.log)
        self.log += [record.value for record in records]
        if header.producer_id >= 0:
            last = (header.base_sequence + header.count - 1) & (2**31 - 1)
            self.recent[header.producer_id].append((header.base_sequence, last, offset))
            del self.recent[header.producer_id][:-5]
        return PartitionAnswer(0, offset)

    def restart(self) -> None:
        """Keep what a clean stop writes into the producer snapshot: the last batch of each producer, no other."""
        for recent in self.recent.values():
            del recent[:-1]

    def expire_producers(self) -> None:
        """Forget all producers, as `producer.id.expiration.ms` does: the next batch of each may have any sequence."""
        self.epochs.clear()
        self.recent.clear()

    def truncate(self, count: int) -> None:
        """Lose the last `count` batches, as an unclean leader election does; the snapshot is then at the new end."""
        for recent in self.recent.values():
            for _, _, offset in recent[-count:]:
                del self.log[offset:]
            del recent[-count:]

    def _check(self, header) -> tuple[int, int]:
        known = self.epochs.get(header.producer_id)
        recent = self.recent.setdefault(header.producer_id, [])
        if known is not None and header.producer_epoch < known:
            return errors.InvalidProducerEpoch.code, -1
        if known is not None and header.producer_epoch > known:
            if header.base_sequence != 0:
                return errors.OutOfOrderSequenceNumber.code, -1
            recent.clear()
        elif known is not None and recent:
            last_sequence = (header.base_sequence + header.count - 1) & (2**31 - 1)
            for first, last, offset in recent:
                if (first, last) == (header.base_sequence, last_sequence):
                    return 0, offset
            if header.base_sequence != (recent[-1][1] + 1) & (2**31 - 1):
                return errors.OutOfOrderSequenceNumber.code, -1
        self.epochs[header.producer_id] = header.producer_epoch
        return 0, -1
