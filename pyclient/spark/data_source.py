"""`format("pyclient")`: a Spark data source with the options, columns and semantics of Spark's own Kafka connector."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource

from pyclient.config import resolve
from pyclient.errors import ConfigError
from pyclient.spark.clients import freeze_loaded_objects
from pyclient.spark.options import (
    COLUMNS,
    Query,
    SourceOptions,
    schema_of,
    sink_options,
    source_columns,
    source_options,
    source_schema,
)
from pyclient.spark.reading import consumer_options
from pyclient.spark.writing import BatchWriter, check_cluster, with_defaults

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from pyclient.spark.exactly_once import ExactlyOnceWriter


_SAIL: Final = "pysail"
"""The package of Sail, an engine that takes Spark's Python data sources; it is loaded where Sail serves."""


class KafkaDataSource(DataSource):
    """Reads from and writes to Kafka, in batches and streams.

        reader = spark.read.format("pyclient").option("kafka.bootstrap.servers", "host:9092")
        df = reader.option("subscribe", "orders").load()

    Spark finds it by the module `pyspark_pyclient`. docs/spark.md has every option.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for `format()`."""
        return "pyclient"

    def schema(self) -> Any:
        """Return the source's columns, as the options choose them: as DDL, for Sail as a schema of Arrow."""
        schema = source_schema(self.options)
        if _SAIL not in sys.modules or any(name in self.options for name in ("keyFormat", "valueFormat")):
            return schema
        from pyclient.spark.columns import schema_of as arrow_schema_of

        return arrow_schema_of(source_columns(self.options))  # Sail takes the type timestamp of DDL for timestamp_ntz

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query."""
        from pyclient.spark.source import BatchReader, FilteringBatchReader, range_reader

        options, schema = self._source("batch"), _struct(schema)
        _check_schema(schema, options)
        made = FilteringBatchReader if options.push_filters else BatchReader
        return made(options, range_reader(options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802, here and below Spark's names
        """Return the reader of a streaming query."""
        from pyclient.spark.source import range_reader
        from pyclient.spark.stream import ADMISSION_CONTROL, stream_reader

        options, schema = self._source("stream"), _struct(schema)
        _check_schema(schema, options)
        if not ADMISSION_CONTROL and (options.max_offsets is not None or options.min_offsets is not None):
            raise ConfigError(
                "maxOffsetsPerTrigger and minOffsetsPerTrigger need pyspark 4.2 or later: earlier ones do not pass "
                "the start of a micro-batch to a Python source"
            )
        return stream_reader(options, range_reader(options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch query."""
        from pyclient.spark.sink import BatchSink

        if overwrite:
            raise ConfigError("mode overwrite is not possible: records in Kafka cannot be replaced; use append")
        return BatchSink(*self._batch_writer(schema, "batch"))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return the writer of a streaming query."""
        from pyclient.spark import sink

        if overwrite:
            raise ConfigError("output mode complete is not possible: records in Kafka cannot be replaced")
        if not sink.ARROW_STREAMS:
            raise ConfigError("streams are written with pyspark 4.1 or later; before, use foreachBatch with write()")
        return sink.StreamSink(*self._batch_writer(schema, "stream"))

    def _batch_writer(self, schema: StructType, query: Query) -> tuple[BatchWriter | ExactlyOnceWriter, str | None]:
        from pyclient.producer.config import ProducerConfig
        from pyclient.spark.columns import check_sink
        from pyclient.spark.exactly_once import ExactlyOnceWriter

        options = sink_options(self.options, query)
        resolve(ProducerConfig, {}, with_defaults(options.client))
        check_sink({field.name: field.dataType.simpleString() for field in _struct(schema).fields}, options.topic)
        check_cluster(options.client, options.topic, once=query == "stream")
        freeze_loaded_objects()
        made = ExactlyOnceWriter if options.exactly_once else BatchWriter
        return made(options.topic, options.flush_timeout, options.client), options.write_id

    def _source(self, query: Query) -> SourceOptions:
        from pyclient.consumer.config import ConsumerConfig

        options = source_options(self.options, query)
        resolve(ConsumerConfig, {}, consumer_options(options.client))
        return options


def _struct(schema: Any) -> StructType:
    """Return a schema as Spark's type; Sail gives it as Arrow's."""
    from pyspark.sql.types import StructType

    if isinstance(schema, StructType):
        return schema
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def _check_schema(given: Any, options: SourceOptions) -> None:
    decoded = {each.column for each in options.formats}  # only Spark can compare their types with the option's text
    named = [(field.name, None if field.name in decoded else field.dataType.simpleString()) for field in given.fields]
    wanted = [(name, None if name in decoded else COLUMNS[name]) for name in options.columns]
    if named != wanted:
        raise ConfigError(
            f"the source has the schema {schema_of(options.columns, options.formats)}: leave schema() out, and choose "
            "columns by the option columns"
        )
