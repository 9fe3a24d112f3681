"""`topic_to_dataframe`: a topic of a broker on this machine as a DataFrame, read by tasks from its segment files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.log import checkpoints
from pyclient.broker_embedded.log.indexes import AbortedTransaction, read_aborted
from pyclient.broker_embedded.log.partition_directories import partition_of
from pyclient.broker_embedded.log.producer_state_manager import parse_snapshot
from pyclient.consumer.completed_fetch import BatchSlice, parse_records
from pyclient.consumer.records import Records
from pyclient.errors import ClientError, ConfigError, CorruptBatch, KafkaTimeout, UnknownTopicOrPartition
from pyclient.records.batch import iter_batches
from pyclient.spark.options import COLUMNS, schema_of
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

_CHUNK: Final = 4 << 20
_ROWS: Final = 20_000  # as `reading.ROWS`
_KNOWN: Final = 1.0  # seconds: a topic that was just created may not be known to all brokers
_LARGEST: Final = 2**31  # of a batch, and more records than one can have

IsolationLevel = Literal["read_uncommitted", "read_committed"]


class SegmentGone(ClientError):
    """A segment was deleted, by retention or compaction, after the DataFrame was made: make it again."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The log of a partition in `directory`, and the offsets from `start` up to `stop` that are to be read."""

    partition: TopicPartition
    directory: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """The offsets of one segment that a task reads, and the (producer id, first offset) of aborted transactions."""

    partition: TopicPartition
    path: str
    start: int
    stop: int
    aborted: tuple[AbortedTransaction, ...] = ()


@dataclass(frozen=True, slots=True)
class SegmentReader:
    """Reads segments for `mapInArrow`; each input row holds the number of a segment."""

    segments: tuple[SegmentRange, ...]
    columns: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.read(self.segments[number])

    def read(self, segment: SegmentRange) -> Iterator[pa.RecordBatch]:
        """Yield the records of a segment as Arrow batches; raise `CorruptBatch` for a damaged one."""
        from pyclient.spark.columns import to_spark

        slices: list[BatchSlice] = []
        count = 0
        for each in _slices(segment):
            slices.append(each)
            count += each.count
            if count >= _ROWS:
                yield to_spark(Records(slices), self.columns, segment.stop)
                slices, count = [], 0
        if count:
            yield to_spark(Records(slices), self.columns, segment.stop)


def topic_to_dataframe(
    spark: Any,
    cluster: EmbeddedCluster | str | os.PathLike[str],
    topic: str,
    *,
    columns: Iterable[str] | None = None,
    isolation_level: IsolationLevel = "read_uncommitted",
) -> Any:
    """Return a topic of an `EmbeddedCluster`, or of a broker's data directory, as a DataFrame, without a consumer.

    Tasks read the segment files, one task for each segment, so they have to be where driver and executors see them: on
    the same machine. The columns are those of `format("pyclient")`, with headers if `columns` names them. It ends at
    the high watermark of now, or of the last checkpoint if a directory is given, or with
    `isolation_level="read_committed"` in front of the first undecided transaction; records of aborted ones are left
    out then. For pyspark 3.5 and later.
    Raise `UnknownTopicOrPartition` if the topic is not there, `ConfigError` for other arguments that are not possible.
    A task raises `SegmentGone` for a segment that was deleted meanwhile.

    Example:
        with EmbeddedCluster(data_dir="data") as cluster:
            topic_to_dataframe(spark, cluster, "orders").groupBy("partition").count().show()
    """
    names = _columns(columns)
    segments = segments_of(cluster, topic, isolation_level)
    numbers = spark.range(0, len(segments), 1, max(1, len(segments)))
    return numbers.mapInArrow(SegmentReader(segments, names), schema_of(names))


def segments_of(
    cluster: EmbeddedCluster | str | os.PathLike[str], topic: str, isolation_level: IsolationLevel
) -> tuple[SegmentRange, ...]:
    """Return what the tasks of `topic_to_dataframe` read, for the same arguments and with the same errors."""
    if isolation_level not in ("read_uncommitted", "read_committed"):
        raise ConfigError(f"isolation_level={isolation_level!r} is not possible: read_uncommitted or read_committed")
    extents = _of_cluster(cluster, topic) if isinstance(cluster, EmbeddedCluster) else _of_directory(cluster, topic)
    return tuple(part for extent in extents for part in _parts(extent, committed=isolation_level == "read_committed"))


def _parts(extent: Extent, *, committed: bool) -> list[SegmentRange]:
    paths = _segment_files(extent.directory)
    if not paths:
        return []
    stop, aborted = extent.stop, []
    if committed:
        stop = min(stop, _first_undecided(paths, extent))
        indexes = Path(extent.directory).glob("*.txnindex")
        aborted = [each for path in sorted(indexes) for each in read_aborted(path.read_bytes())]
    found = []
    for (base, path), (following, _) in pairwise([*paths, (stop, "")]):
        first, last = max(base, extent.start), min(following, stop)
        if first < last:
            mine = tuple(each for each in aborted if each.last_offset >= first and each.first_offset < last)
            found.append(SegmentRange(extent.partition, path, first, last, mine))
    return found


def _of_cluster(cluster: EmbeddedCluster, topic: str) -> list[Extent]:
    nodes = {node.id: node for node in cluster.nodes}
    try:
        view = cluster.wait_topic(topic, partitions=1, timeout=_KNOWN)
    except KafkaTimeout as error:
        raise UnknownTopicOrPartition(f"the cluster has no topic {topic}") from error
    extents = []
    for each in view["partitions"]:
        partition, leader = TopicPartition(topic, each["partition"]), nodes.get(each["leader"])
        if leader is None:
            raise ClientError(f"{partition} has no leader among the nodes of the embedded cluster: {each['leader']}")
        homes = [home for home in leader.config.log_dirs if os.path.isdir(os.path.join(home, str(partition)))]
        if homes:  # a log without a record has no directory
            directory = os.path.join(homes[0], str(partition))
            extents.append(Extent(partition, directory, each["start_offset"], each["high_watermark"]))
    return extents


def _of_directory(place: str | os.PathLike[str], topic: str) -> list[Extent]:
    home = os.fspath(place)
    if not os.path.isfile(os.path.join(home, checkpoints.META_PROPERTIES)):
        raise ConfigError(f"{home} is not a broker's data directory: it has no {checkpoints.META_PROPERTIES}")
    starts, watermarks = _offsets(home, checkpoints.LOG_STARTS), _offsets(home, checkpoints.HIGH_WATERMARKS)
    found = sorted(
        partition
        for name in os.listdir(home)
        if (partition := partition_of(name)) is not None and partition.topic == topic
    )
    if not found:
        raise UnknownTopicOrPartition(f"there is no log of topic {topic} in {home}")
    return [
        Extent(partition, os.path.join(home, str(partition)), starts.get(partition, 0), watermarks[partition])
        for partition in found
        if partition in watermarks
    ]


def _offsets(home: str, name: str) -> dict[TopicPartition, int]:
    path = Path(home, name)
    return checkpoints.parse_offsets(path.read_bytes(), str(path)) if path.exists() else {}


def _columns(given: Iterable[str] | None) -> tuple[str, ...]:
    if given is None:
        return tuple(name for name in COLUMNS if name != "headers")
    names = tuple(given)
    unknown = [name for name in names if name not in COLUMNS]
    if unknown or not names or len(set(names)) < len(names):
        raise ConfigError(f"columns={list(names)} is not possible: it takes some of {', '.join(COLUMNS)}, each once")
    return names


def _segment_files(directory: str) -> list[tuple[int, str]]:
    """Return the base offsets and paths of a log's segments, in order."""
    names = sorted(name for name in os.listdir(directory) if name.endswith(".log") and name[:-4].isdigit())
    return [(int(name[:-4]), os.path.join(directory, name)) for name in names]


def _first_undecided(paths: list[tuple[int, str]], extent: Extent) -> int:
    """Return the last stable offset: the first offset of an open transaction below the end, or the end.

    A producer snapshot has the transactions that were open at its offset; the batches after it do the rest.
    """
    opened: dict[int, int] = {}
    after = 0
    snapshots = sorted((int(path.stem), path) for path in Path(extent.directory).glob("*.snapshot"))
    known = [(offset, path) for offset, path in snapshots if offset <= extent.stop]
    if known:
        after, path = known[-1]
        opened = {
            each.producer_id: each.transaction_start
            for each in parse_snapshot(path.read_bytes())
            if each.transaction_start >= 0
        }
    for (_, path_of_segment), (following, _) in pairwise([*paths, (extent.stop + 1, "")]):
        if following <= after:
            continue
        for chunk in _chunks(path_of_segment, after):
            for _, header in iter_batches(chunk):
                if not after <= header.base_offset < extent.stop:
                    continue
                if header.is_control:
                    opened.pop(header.producer_id, None)
                elif header.is_transactional:
                    opened.setdefault(header.producer_id, header.base_offset)
    return min(opened.values(), default=extent.stop)


def _slices(segment: SegmentRange) -> Iterator[BatchSlice]:
    position, partition = segment.start, segment.partition
    for chunk in _chunks(segment.path, segment.start, segment):
        aborted = [(each.producer_id, each.first_offset) for each in segment.aborted if each.last_offset >= position]
        parsed = parse_records(chunk, *partition, position, aborted)
        for batch in parsed.batches:
            batch.check(crcs=True)
            taken = batch.take(position, segment.stop, _LARGEST)
            if taken.count > 0:
                yield taken
        if parsed.error is not None:
            raise parsed.error
        position = parsed.next_offset
        if position >= segment.stop:
            return


def _chunks(path: str, start: int, wanted: SegmentRange | None = None) -> Iterator[memoryview]:
    """Yield the whole batches of a segment, some at a time; leave out chunks that end before offset `start`.

    Raise `CorruptBatch` for bytes that are no batch where `wanted` offsets should be. Behind these a batch may be
    incomplete, as a broker is writing it.
    """
    if not os.path.exists(path):
        raise SegmentGone(f"{path} was deleted, by retention or compaction: make the DataFrame again")
    with open(path, "rb", buffering=0) as file:
        position, size, offset = 0, _CHUNK, 0
        while True:
            chunk = memoryview(os.pread(file.fileno(), size, position))
            last = end = 0
            for batch_position, header in iter_batches(chunk):
                end, last = batch_position + header.size, header.last_offset
            if not end:
                if len(chunk) < size or size >= _LARGEST:
                    if len(chunk) and wanted is not None and offset < wanted.stop:
                        text = f"{path}: the bytes from position {position} on are no batch of records"
                        raise CorruptBatch(text, *wanted.partition, offset, wanted.stop)
                    return
                size *= 4  # a batch that is larger
                continue
            if last >= start:
                yield chunk[:end]
            position, size, offset = position + end, _CHUNK, last + 1
