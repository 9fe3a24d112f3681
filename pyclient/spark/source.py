"""The batch reader of `format("pyclient")`: plans ranges of offsets in the driver, reads them in tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyclient.spark.filters import pruned
from pyclient.spark.offset_reader import OffsetReader, OffsetsUnknown
from pyclient.spark.offsets import Bound, OffsetRange, split
from pyclient.spark.reading import DataLoss, RangeReader
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyclient.spark.decoding import Decoder
    from pyclient.spark.options import SourceOptions

log = logging.getLogger("pyclient.spark")


def range_reader(options: SourceOptions, schema: StructType) -> RangeReader:
    """Return the reader for the tasks of a query; `schema` is the source's."""
    decoders: tuple[Decoder, ...] = ()
    if options.formats:
        from pyclient.spark.decoding import decoders_of

        decoders = decoders_of(options.formats, schema)
    return RangeReader(options.client, options.columns, options.poll_timeout, options.fail_on_data_loss, decoders)


class BatchReader(DataSourceReader):
    """Reads from the starting to the ending offsets, which are found when the query is planned."""

    def __init__(self, options: SourceOptions, reader: RangeReader) -> None:
        self._options = options
        self._reader = reader
        self._filters: list[Any] = []
        if options.max_offsets is not None or options.min_offsets is not None:
            log.warning("maxOffsetsPerTrigger and minOffsetsPerTrigger have no effect on a batch")

    def partitions(self) -> list[InputPartition]:
        """Return a range of offsets for each task."""
        offsets = OffsetReader(self._options)
        try:
            pieces = self._ranges(offsets)
        finally:
            offsets.close()
        return [InputPartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range as Arrow batches."""
        return self._reader.read(partition.value)

    def _ranges(self, offsets: OffsetReader) -> list[OffsetRange]:
        options = self._options
        partitions = offsets.partitions()
        starts = offsets.at(options.starting, partitions, ending=False)
        ends = offsets.at(options.ending, partitions, ending=True)
        whole = []
        for partition in partitions:
            if starts[partition] > ends[partition]:
                raise OffsetsUnknown(
                    f"{partition}: the query starts at offset {starts[partition]}, after its end {ends[partition]}"
                )
            whole.append(OffsetRange(*partition, starts[partition], ends[partition]))
        if options.starting.kind == "offsets" or options.ending.kind == "offsets":
            whole = self._inside_logs(whole, offsets)

        def first_at(times: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
            return offsets.at(Bound("times", times), list(times), ending=True)

        whole = pruned(whole, self._filters, first_at)
        return split(whole, options.min_partitions, options.max_records)

    def _inside_logs(self, whole: Iterable[OffsetRange], offsets: OffsetReader) -> list[OffsetRange]:
        """Check given offsets against the logs; without failOnDataLoss read what is there."""
        pieces = list(whole)
        partitions = [TopicPartition(piece.topic, piece.partition) for piece in pieces]
        first, end = offsets.earliest(partitions), offsets.latest(partitions)
        found = []
        for piece, partition in zip(pieces, partitions, strict=True):
            inside = first[partition] <= piece.start and piece.stop <= end[partition]
            if not inside and self._options.fail_on_data_loss:
                raise DataLoss(
                    f"{piece} is not in the log, which has offsets {first[partition]} to {end[partition]}; with "
                    "failOnDataLoss=false the query reads what is there"
                )
            start = min(max(piece.start, first[partition]), end[partition])
            stop = max(start, min(piece.stop, end[partition]))
            found.append(OffsetRange(piece.topic, piece.partition, start, stop))
        return found


class FilteringBatchReader(BatchReader):
    """A batch reader that takes filters; Spark needs `spark.sql.python.filterPushdown.enabled` for it."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802, Spark's name
        """Use the filters to prune offsets. Return all of them, which Spark then applies to the rows."""
        self._filters = list(filters)
        return filters
