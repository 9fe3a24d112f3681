"""The stream reader of `format("pyclient")`: what each micro-batch reads."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyclient.admin import Admin
from pyclient.errors import BrokerError, ConfigError, ConnectionFailed, KafkaError, KafkaTimeout
from pyclient.spark.clients import admin_options
from pyclient.spark.offset_reader import OffsetReader
from pyclient.spark.offsets import OffsetRange, Offsets, from_json, lag_of, limited, split, to_json
from pyclient.spark.reading import DataLoss, RangeReader
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from pyclient.spark.options import SourceOptions

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows, SupportsTriggerAvailableNow
except ImportError:  # pyspark 4.0 and 4.1 have no admission control
    ADMISSION_CONTROL = False
else:
    ADMISSION_CONTROL = True

log = logging.getLogger("pyclient.spark")

_FRESH: Final = 0.05  # seconds for which an idle query gets the same ends: Spark asks about 90 times a second
_TOPICS_FRESH: Final = 5.0  # seconds for which the partitions are taken to be the same
LOSS_SECONDS: Final = 5.0
"""Seconds for which a partition must be gone, or end too early, to count as lost."""


class Planner:
    """Decides what a micro-batch reads, from the offsets of the last one and the ends of the partitions."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._offsets = OffsetReader(options)
        self._partitions: list[TopicPartition] = []
        self._partitions_since = float("-inf")
        self._latest: Offsets = {}
        self._latest_since = float("-inf")
        self._target: Offsets | None = None
        self._batch_since = monotonic()

    def close(self) -> None:
        """Close the connections."""
        self._offsets.close()

    def initial(self) -> Offsets:
        """Return where a new query starts."""
        partitions = self._known_partitions()
        return self._offsets.at(self._options.starting, partitions, ending=False)

    def prepare_available_now(self) -> None:
        """Fix the end of a query that reads what is there now (Trigger.AvailableNow)."""
        self._target = self.latest()

    def latest(self) -> Offsets:
        """Return the ends of the partitions, which may be some milliseconds old."""
        if self._target is not None:
            return self._target
        now = monotonic()
        if now - self._latest_since > _FRESH:
            self._latest = self._ends()
            self._latest_since = now
        return self._latest

    def _ends(self) -> Offsets:
        """Return the ends of the partitions; if they are late, without those of topics that are gone by now."""
        for _attempt in range(self._options.retries + 1):
            try:
                return self._offsets.latest(self._known_partitions(), timeout=LOSS_SECONDS)
            except (ConnectionFailed, KafkaTimeout, BrokerError):
                self._partitions_since = float("-inf")
                sleep(self._options.retry_interval)
        return self._offsets.latest(self._known_partitions())

    def end(self, start: Offsets, *, limited_batch: bool) -> Offsets:
        """Return where the next micro-batch ends: `start` if it is to wait for more.

        Raise `DataLoss` for partitions that are gone or end before `start`, unless `failOnDataLoss` is false: then the
        former are left out, and the latter go on at their end.
        """
        latest, options = self._latest_after(start), self._options
        if options.fail_on_data_loss:  # now, as Spark writes what is returned to the checkpoint
            self._check_loss(start, latest)
        kept = {partition: min(offset, latest[partition]) for partition, offset in start.items() if partition in latest}
        starts = self._with_new(kept, latest)
        waiting = sum(lag_of(starts, latest).values())
        if waiting == 0:
            return starts
        now = monotonic()
        too_few = options.min_offsets is not None and waiting < options.min_offsets
        if limited_batch and self._target is None and too_few and now - self._batch_since < options.max_delay:
            return start
        self._batch_since = now
        if limited_batch and options.max_offsets is not None:
            return limited(starts, latest, options.max_offsets)
        return dict(latest)

    def ranges(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        """Return the ranges that tasks read for a micro-batch.

        Raise `DataLoss` for partitions that are gone or shorter than before, unless `failOnDataLoss` is false.
        """
        self._check_loss(start, end)
        starts = self._with_new(start, end)
        whole = [OffsetRange(*partition, min(starts[partition], stop), stop) for partition, stop in sorted(end.items())]
        return split(whole, self._options.min_partitions, self._options.max_records)

    def _latest_after(self, start: Offsets) -> Offsets:
        """Return the ends; for some seconds ask again for partitions that are missing or end before `start`.

        A broker may not have the newest metadata yet, and a new leader may not know its end (KIP-207). A query that
        reads committed records only waits at `start` for open transactions, if it has read of them before.
        """
        latest = self._not_before(start, self.latest())
        until = monotonic() + LOSS_SECONDS
        while self._target is None and any(latest.get(partition, -1) < offset for partition, offset in start.items()):
            if monotonic() >= until:
                break
            sleep(max(self._options.retry_interval, _FRESH))
            self._latest_since = self._partitions_since = float("-inf")
            latest = self._not_before(start, self.latest())
        return latest

    def _not_before(self, start: Offsets, latest: Offsets) -> Offsets:
        """Return the ends, but `start` for partitions whose logs do not end before it."""
        before = [partition for partition, offset in latest.items() if offset < start.get(partition, 0)]
        if not before:
            return latest
        ends = self._offsets.ends_of_logs(before)
        not_shorter = {partition: start[partition] for partition in before if start[partition] <= ends[partition]}
        return {**latest, **not_shorter}

    def _check_loss(self, start: Offsets, end: Offsets) -> None:
        """Report the partitions between whose start and end records are lost."""
        gone = sorted(start.keys() - end.keys())
        if gone:
            self._lost(
                f"the query has read {', '.join(map(str, gone))} before, which it does not find any more: the topic "
                "was deleted, the query reads other topics now, or its checkpointLocation is that of another query; "
                "what was not read yet is lost"
            )
        for partition, stop in sorted(end.items()):
            first = start.get(partition, stop)
            if stop < first:
                self._lost(
                    f"{partition} ends at offset {stop}, before the offset {first} at which the query goes on: the "
                    "topic was deleted and created again, records were lost by a leader election, or startingOffsets "
                    "is after the end"
                )

    def _with_new(self, start: Offsets, end: Mapping[TopicPartition, int]) -> Offsets:
        """Return the start with the first offsets of partitions that are new since then."""
        new = sorted(end.keys() - start.keys())
        if not new:
            return dict(start)
        first = self._offsets.earliest(new)
        for partition, offset in first.items():
            if offset > 0 and start:
                self._lost(f"the new partition {partition} begins at offset {offset}: earlier records are deleted")
        return {**start, **first}

    def _known_partitions(self) -> list[TopicPartition]:
        now = monotonic()
        if now - self._partitions_since > _TOPICS_FRESH:
            self._partitions = self._offsets.partitions()
            self._partitions_since = now
        return self._partitions

    def _lost(self, text: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss(f"{text}; with failOnDataLoss=false a query goes on")
        log.warning("%s; the query goes on (failOnDataLoss=false)", text)


def _of_checkpoint(given: Any) -> Offsets:
    """Return offsets that Spark has from the checkpoint; raise `ConfigError` if they are no offsets of Kafka."""
    try:
        return from_json(given)
    except ValueError as error:
        raise ConfigError(
            f"the offsets {given!r:.200} in the query's checkpoint are not those of a query that reads from Kafka "
            f"({error}): give the query a checkpointLocation of its own"
        ) from error


class StreamReader(DataSourceStreamReader):
    """Reads micro-batches; the offsets are in the query's checkpoint, in the form of Spark's own Kafka source."""

    def __init__(self, options: SourceOptions, reader: RangeReader) -> None:
        self._options = options
        self._reader = reader
        self._planner: Planner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_reader": self._reader, "_planner": None}  # tasks plan nothing

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802, here and below Spark's names
        """Return where a new query starts."""
        return to_json(self._plan.initial())

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """Return where the next micro-batch ends; Spark before 4.2 gives neither start nor limit."""
        if start is None:
            return to_json(self._plan.latest())
        limited_batch = ADMISSION_CONTROL and not isinstance(limit, ReadAllAvailable)
        return to_json(self._plan.end(_of_checkpoint(start), limited_batch=limited_batch))

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """Return Spark's form of maxOffsetsPerTrigger and minOffsetsPerTrigger, which are applied here."""
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the ends of the partitions for the query's progress."""
        return to_json(self._plan.latest())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return a range of offsets for each task."""
        return [InputPartition(piece) for piece in self._plan.ranges(_of_checkpoint(start), _of_checkpoint(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range as Arrow batches."""
        return self._reader.read(partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        """Show the query's progress in the group of `commitGroupId`; a failure is logged, the checkpoint counts."""
        group = self._options.commit_group
        if group is None:
            return
        try:
            with Admin(config=admin_options(self._options.client)) as admin:
                admin.alter_group_offsets(group, from_json(end))
        except KafkaError as error:
            log.warning("the query's progress could not be committed to group %s: %s", group, error)

    def stop(self) -> None:
        """Close the connections."""
        if self._planner is not None:
            self._planner.close()
            self._planner = None

    @property
    def _plan(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self._options)
        return self._planner


if ADMISSION_CONTROL:

    class AvailableNowStreamReader(StreamReader, SupportsTriggerAvailableNow):
        """A stream reader whose queries can end at what was there when they began (pyspark 4.2 and later)."""

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            """Fix the end of the query."""
            self._plan.prepare_available_now()


def stream_reader(options: SourceOptions, reader: RangeReader) -> StreamReader:
    """Return the reader that this release of pyspark can use."""
    return AvailableNowStreamReader(options, reader) if ADMISSION_CONTROL else StreamReader(options, reader)
