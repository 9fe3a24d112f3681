"""Read ranges of offsets as Arrow batches, in the tasks of a query, with the worker's consumer."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from pyclient.errors import (
    ClientError,
    KafkaTimeout,
    LogTruncation,
    NoOffsetForPartition,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
)
from pyclient.spark.clients import ADMINS, CONSUMERS, freeze_loaded_objects
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from pyclient.consumer import Consumer
    from pyclient.spark.decoding import Decoder
    from pyclient.spark.offsets import OffsetRange

log = logging.getLogger("pyclient.spark")

ROWS: Final = 20_000
"""Records per Arrow batch: Spark takes batches of 10,000 rows faster than those of 1,000 or 100,000."""

_LOST: Final = (NoOffsetForPartition, LogTruncation, OffsetOutOfRange)
CHECK_SECONDS: Final = 1.0
"""Seconds without a record after which the ends of the log are checked."""
ANSWER_SECONDS: Final = 5.0
"""Seconds for the answer to such a check."""
FETCHING: Final = {"max.partition.fetch.bytes": "4194304", "fetch.max.bytes": "16777216", "fetch.max.wait.ms": "10"}
"""A fetch need not wait for records, as those of a range are there; it would delay the worker's next task."""
_FEW: Final = ((1_000, "131072"), (20_000, "1048576"))
"""Offsets up to which a range is small, and the bytes of its fetches: more would be fetched for nothing."""


class DataLoss(ClientError):
    """Records that a query was to read are not in the log any more, and `failOnDataLoss` is true."""


@dataclass(frozen=True, slots=True)
class RangeReader:
    """Reads ranges of offsets; pickled to the executors, it holds options only."""

    client: Mapping[str, str] = field(repr=False)
    columns: tuple[str, ...]
    poll_timeout: float
    fail_on_data_loss: bool
    decoders: tuple[Decoder, ...] = ()

    def read(self, piece: OffsetRange | None) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range; None, which Spark passes if there are no ranges, has none.

        Raise `DataLoss` if records are gone, or the topic is; `KafkaTimeout` if no broker answers for the time of
        kafkaConsumer.pollTimeoutMs.
        """
        if piece is None:
            return
        options = consumer_options(self.client, piece.size)
        consumer = CONSUMERS.take(options)
        try:
            yield from self._batches(consumer, piece)
            consumer.assign([])
        except BaseException:
            consumer.close(timeout=0)
            raise
        CONSUMERS.give_back(options, consumer)
        freeze_loaded_objects()

    def _batches(self, consumer: Consumer[Any, Any], piece: OffsetRange) -> Iterator[pa.RecordBatch]:
        from pyclient.spark.columns import to_spark

        partition = TopicPartition(piece.topic, piece.partition)
        consumer.assign([partition])
        consumer.seek(partition, piece.start)
        position, since = piece.start, monotonic()
        while position < piece.stop:
            try:
                records = consumer.poll(timeout=CHECK_SECONDS, max_records=ROWS)
            except _LOST:
                position, since = self._after_loss(consumer, partition, position, piece), monotonic()
                continue
            if records:
                batch = to_spark(records, self.columns, piece.stop, self.decoders)
                if batch.num_rows:
                    yield batch
            try:
                after = consumer.position(partition)
            except _LOST:  # found since the poll: the next poll raises it again
                after = records.next_offsets()[partition].offset if records else position
            if after != position:
                position, since = after, monotonic()
                continue
            end = self._end_of(consumer, partition)
            if end is not None and end <= position:
                position = self._after_loss(consumer, partition, position, piece)
            elif monotonic() - since > self.poll_timeout:
                raise KafkaTimeout(
                    f"no record of {piece} came within {self.poll_timeout:g} s (kafkaConsumer.pollTimeoutMs); "
                    f"the next offset is {position}"
                )

    def _end_of(self, consumer: Consumer[Any, Any], partition: TopicPartition) -> int | None:
        """Return where a log ends: at 0 if its topic does not exist, None if no broker answers in time."""
        try:
            return consumer.end_offsets([partition], timeout=ANSWER_SECONDS)[partition]
        except KafkaTimeout:
            return None if self._exists(partition.topic) else 0

    def _exists(self, topic: str) -> bool:
        """Return False if a broker says that there is no such topic."""
        admin, found = ADMINS.take(self.client), True
        try:
            admin.describe_topics([topic], timeout=ANSWER_SECONDS)
        except UnknownTopicOrPartition:
            found = False
        except KafkaTimeout:
            pass
        except BaseException:
            admin.close()
            raise
        ADMINS.give_back(self.client, admin)
        return found

    def _bounds(self, consumer: Consumer[Any, Any], partition: TopicPartition) -> tuple[int, int] | None:
        """Return where a log begins and ends, None if its topic does not exist.

        Raise `KafkaTimeout` if no broker answers within the poll timeout.
        """
        since = monotonic()
        while self._exists(partition.topic):
            try:
                first = consumer.beginning_offsets([partition], timeout=ANSWER_SECONDS)[partition]
                return first, consumer.end_offsets([partition], timeout=ANSWER_SECONDS)[partition]
            except KafkaTimeout:  # the topic may be gone by now
                if monotonic() - since > self.poll_timeout:
                    raise
        return None

    def _after_loss(
        self, consumer: Consumer[Any, Any], partition: TopicPartition, position: int, piece: OffsetRange
    ) -> int:
        """Seek to the first record after the lost ones and return its offset; raise `DataLoss` with failOnDataLoss."""
        following = piece.stop
        bounds = self._bounds(consumer, partition)
        if bounds is not None:
            first, end = bounds
            following = min(first, piece.stop) if position < first else piece.stop
            found = f"its log has {first} to {end - 1}" if first < end else f"its log has no records, and ends at {end}"
            why = f"{found}, the rest was deleted by retention, or the topic was deleted and created again"
        else:
            why = "the topic does not exist any more"
        text = f"records of {partition} from offset {position} to {following - 1} are lost: {why}"
        if self.fail_on_data_loss:
            raise DataLoss(f"{text}; with failOnDataLoss=false a query goes on without them")
        log.warning("%s; the query goes on (failOnDataLoss=false)", text)
        if following < piece.stop:
            consumer.seek(partition, following)
        return following


def consumer_options(client: Mapping[str, str], offsets: int | None = None) -> dict[str, str]:
    """Return the options of the consumer that reads for a query, as it suits a range of so many offsets."""
    few = [size for limit, size in _FEW if offsets is not None and offsets <= limit]
    fetching = {**FETCHING, "max.partition.fetch.bytes": few[0]} if few else FETCHING
    return {**fetching, **client, "auto.offset.reset": "none", "enable.auto.commit": "false"}
