"""The internal topic in which a coordinator keeps its state: its number of partitions, appends, and reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from pyclient.errors import KafkaStorageError, NotCoordinator
from pyclient.records import check_crc, iter_batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyclient.broker_embedded.controller.image import MetadataImage
    from pyclient.broker_embedded.log.log_reader import LogAppendInfo
    from pyclient.broker_embedded.log.unified_log import UnifiedLog
    from pyclient.broker_embedded.replication.partitions import Partitions
    from pyclient.clock import Clock
    from pyclient.records import BatchHeader

_READ_BYTES: Final = 4 << 20


class CoordinatorServices(Protocol):
    """The services of a node that an internal topic takes."""

    @property
    def image(self) -> MetadataImage:
        """The committed metadata."""

    @property
    def partitions(self) -> Partitions:
        """The partitions on the node."""

    @property
    def clock(self) -> Clock:
        """The node's clock."""


class CoordinatorTopic:
    """`__consumer_offsets` or `__transaction_state` on a broker."""

    def __init__(self, name: str, services: CoordinatorServices) -> None:
        self._name = name
        self._services = services
        topic = services.image.topics.get(name)
        self._topic_id = None if topic is None else topic.topic_id
        self._partitions = 0 if topic is None else len(topic.partitions)

    def __repr__(self) -> str:
        return f"<CoordinatorTopic {self._name} partitions={self._partitions}>"

    def partition_count(self) -> int:
        """Return the number of partitions that groups or transactional ids are spread over; 0 without the topic.

        It is the number that the topic had when it was created or the node started: nothing moves to partitions
        that are added later, as in Kafka. (Kafka also keeps the number in its options until its next start if the
        topic is created with another one, and most groups have no coordinator until then.)
        """
        topic = self._services.image.topics.get(self._name)
        if topic is None:
            return 0
        if topic.topic_id != self._topic_id:
            self._topic_id, self._partitions = topic.topic_id, len(topic.partitions)
        return self._partitions

    def append(self, partition: int, batch: bytes, epoch: int | None = None) -> tuple[UnifiedLog, LogAppendInfo]:
        """Append a batch to the log of a partition. Return the log, and what was appended.

        Raise `NotCoordinator` if the leader epoch is not `epoch`, `NotEnoughReplicas`, and as `Partitions.leader`.
        """
        services = self._services
        log, leader_epoch = services.partitions.leader(self._name, partition)
        if epoch is not None and leader_epoch != epoch:
            raise NotCoordinator(f"{self._name}-{partition} is led in epoch {leader_epoch}, not {epoch}")
        hosted = services.partitions.hosted(self._name, partition)
        if hosted is not None:
            hosted.partition.check_min_isr()
        now_ms = services.clock.time_ms()
        return log, log.append(batch, leader_epoch=leader_epoch, now_ms=now_ms, origin="coordinator")

    def batches(self, partition: int) -> Iterator[tuple[bytes, int, BatchHeader]]:
        """Yield every batch of a partition as (buffer, position, header); nothing if it was never written.

        Raise `KafkaStorageError` if the file is shorter than the log, and `CorruptRecord` for a damaged batch.
        """
        log = self._services.partitions.existing(self._name, partition)
        offset = 0 if log is None else log.start_offset
        while log is not None and offset < log.end_offset:
            buffer = log.read_bytes(offset, _READ_BYTES)
            if not buffer:
                raise KafkaStorageError(f"{log!r} cannot be read at offset {offset}")
            for position, header in iter_batches(buffer):
                check_crc(buffer, position, header)
                offset = header.next_offset
                yield buffer, position, header
