"""`write_partition` for `df.foreachPartition`, and `write`, which is faster: rows to Kafka, or an error."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyclient.config import resolve
from pyclient.errors import ConfigError
from pyclient.producer.config import ProducerConfig
from pyclient.spark.clients import hidden
from pyclient.spark.rows import in_columns
from pyclient.spark.writing import BatchWriter, check_cluster, deliver, problems_of_transactions, with_defaults

if TYPE_CHECKING:
    import pyarrow as pa

    from pyclient.producer import Producer
    from pyclient.spark.exactly_once import ExactlyOnceWriter

_FLUSH_SECONDS: Final = 150.0  # above delivery_timeout_ms' default: by then every record has an outcome
_CONNECT: Final = "pyspark.sql.connect."  # the modules of Spark Connect
_COUNTS: Final = "spark_partition int, rows bigint"


class PartitionWriter:
    """The function that `write_partition` returns. Picklable: the producer is created in the worker."""

    def __init__(self, topic: str | None, flush_timeout: float, options: dict[str, Any]) -> None:
        self._topic = topic
        self._flush_timeout = flush_timeout
        self._options = options

    def __repr__(self) -> str:
        return f"write_partition(topic={self._topic!r}, {hidden(self._options)})"

    def __call__(self, rows: Iterable[Any]) -> None:
        """Send the rows, flush once, and raise if any of them was not delivered."""

        def send(producer: Producer) -> int:
            total = 0
            for count, columns in in_columns(rows, self._topic, _now_ms):
                for part in columns:
                    producer.send_many(
                        part.topic,
                        part.values,
                        keys=part.keys,
                        headers=part.headers,
                        timestamps_ms=part.timestamps_ms,
                        partition=part.partition,
                    )
                total += count
            return total

        deliver(self._options, self._flush_timeout, send)


def write_partition(
    *,
    topic: str | None = None,
    bootstrap_servers: str | None = None,
    flush_timeout: float = _FLUSH_SECONDS,
    **options: Any,
) -> PartitionWriter:
    """Return a function for `DataFrame.foreachPartition` that writes the partition's rows to Kafka.

    Columns are those of Spark's own sink: `value` (the only one required), `key`, `topic`, `partition`, `headers`,
    and `timestamp`; text is sent as UTF-8. `topic` here goes before the column. All other arguments are
    options of `Producer` by Kafka's name (`acks`, `linger_ms`, `compression_type`, ...); `config` is a Kafka-style
    dictionary. A secret can be given as `env:NAME` or `file:PATH`, which is read on the executor.
    The task fails with `WriteFailed`, which counts them, if rows are not delivered; Spark then retries it, so a row may
    be written again (at least once). `flush_timeout` is in seconds; `ValueError` for one that is no time.
    `write` does the same about ten times faster, since Spark hands over columns there.

    Example:
        df.select("key", "value").foreachPartition(write_partition(topic="t", bootstrap_servers="host:9092"))
    """
    return PartitionWriter(topic, flush_timeout, _options("write_partition", bootstrap_servers, flush_timeout, options))


def write(
    df: Any,
    *,
    topic: str | None = None,
    bootstrap_servers: str | None = None,
    flush_timeout: float = _FLUSH_SECONDS,
    **options: Any,
) -> dict[int, int]:
    """Write a DataFrame to Kafka; return the number of rows by Spark partition.

    Spark hands over columns (`mapInArrow`), which are sent without a Python object for each row. Columns, options,
    secrets and errors are those of `write_partition`; other columns are ignored. Raise before anything is sent:
    `SerializationError` if the columns cannot be records, `KafkaTimeout` if the cluster does not answer the driver
    within `max_block_ms`. At least once: a task that Spark retries writes its rows again.
    For pyspark 3.5 and later.

    Example:
        counts = write(df.select("key", "value"), topic="t", bootstrap_servers="host:9092")
    """
    checked = _options("write", bootstrap_servers, flush_timeout, options)
    _check_columns(df, topic)
    if not type(df).__module__.startswith(_CONNECT):  # there this is no driver, and need not reach the cluster
        check_cluster(checked, topic)
    return _write_frame(df, _CountingWriter(BatchWriter(topic, flush_timeout, checked)))


class BatchFunction:
    """The function that `foreach_batch` returns: writes a micro-batch."""

    def __init__(self, topic: str | None, flush_timeout: float, exactly_once: bool, options: dict[str, Any]) -> None:
        self._topic = topic
        self._flush_timeout = flush_timeout
        self._exactly_once = exactly_once
        self._options = options

    def __repr__(self) -> str:
        mode = ", exactly_once=True" if self._exactly_once else ""
        return f"foreach_batch(topic={self._topic!r}{mode}, {hidden(self._options)})"

    def __call__(self, df: Any, batch_id: int) -> None:
        """Write the rows of a micro-batch."""
        _check_columns(df, self._topic)
        check_cluster(self._options, self._topic, once=True)
        if not self._exactly_once:
            _write_frame(df, _CountingWriter(BatchWriter(self._topic, self._flush_timeout, self._options)))
            return
        from pyclient.spark.exactly_once import ExactlyOnceWriter

        writer = ExactlyOnceWriter(self._topic, self._flush_timeout, self._options)
        _write_frame(df, _OnceWriter(writer, batch_id))


def foreach_batch(
    *,
    topic: str | None = None,
    bootstrap_servers: str | None = None,
    flush_timeout: float = _FLUSH_SECONDS,
    exactly_once: bool = False,
    **options: Any,
) -> BatchFunction:
    """Return a function for `DataStreamWriter.foreachBatch` that writes each micro-batch as `write` does.

    It takes every output mode, `update` of aggregations too, which Spark allows to no Python sink. At least once, or
    with `exactly_once` each row once to consumers that read committed records, under the conditions that docs/spark.md
    gives for the sink: Spark must repeat a micro-batch with the same rows in the same partition. Raise `ConfigError` if
    transactions would end (`transaction_timeout_ms`, 15 minutes by default) before `flush_timeout` seconds.

    Example:
        counts.writeStream.outputMode("update").foreachBatch(foreach_batch(topic="t", bootstrap_servers="host:9092"))
    """
    given = _options("foreach_batch", bootstrap_servers, flush_timeout, options)
    problems = list(problems_of_transactions(given, flush_timeout)) if exactly_once else []
    if problems:
        raise ConfigError(*problems)
    return BatchFunction(topic, flush_timeout, exactly_once, given)


def _check_columns(df: Any, topic: str | None) -> None:
    from pyclient.spark.columns import check_sink

    check_sink({field.name: field.dataType.simpleString() for field in df.schema.fields}, topic)


def _write_frame(df: Any, task: _CountingWriter | _OnceWriter) -> dict[int, int]:
    """Let the tasks of a DataFrame write it; return the number of rows by Spark partition."""
    found: dict[int, int] = {}
    for row in df.mapInArrow(task, _COUNTS).collect():
        found[row[0]] = found.get(row[0], 0) + row[1]
    return found


class _CountingWriter:
    """Writes a task's batches and yields one row with the task's partition and the number of rows."""

    def __init__(self, writer: BatchWriter) -> None:
        self._writer = writer

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        yield _counted(-1 if context is None else context.partitionId(), self._writer.write(batches))


class _OnceWriter:
    """Writes a task's batches of a micro-batch once, and yields what `_CountingWriter` does."""

    def __init__(self, writer: ExactlyOnceWriter, batch_id: int) -> None:
        self._writer = writer
        self._batch_id = batch_id

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyclient.spark.tasks import QUERY_ID, local_property, task_context

        task = task_context()
        partition = task.partitionId()
        marker = self._writer.write(batches, local_property(task, QUERY_ID), partition, self._batch_id)
        yield _counted(partition, marker.rows)


def _counted(partition: int, rows: int) -> pa.RecordBatch:
    import pyarrow as pa

    columns = [pa.array([partition], pa.int32()), pa.array([rows], pa.int64())]
    return pa.RecordBatch.from_arrays(columns, names=["spark_partition", "rows"])


def _options(
    function: str, bootstrap_servers: str | None, flush_timeout: Any, options: dict[str, Any]
) -> dict[str, Any]:
    """Return the producer's options as one dictionary; refuse here what only the executors would refuse later."""
    number = isinstance(flush_timeout, (int, float)) and not isinstance(flush_timeout, bool)
    if not number or not flush_timeout >= 0:
        raise ValueError(f"flush_timeout={flush_timeout!r} is not possible: it takes seconds from 0, as a number")
    config = options.pop("config", None)
    if config is not None and not isinstance(config, Mapping):
        raise ConfigError(f"config={config!r} is not possible: it takes a dictionary, like {{'linger.ms': '5'}}")
    given = {**(config or {}), **{name: value for name, value in options.items() if value is not None}}
    if bootstrap_servers is not None:
        given["bootstrap_servers"] = bootstrap_servers
    if not {"bootstrap_servers", "bootstrap.servers", "metadata.broker.list"} & given.keys():
        raise ConfigError(f"{function} needs bootstrap_servers, for example bootstrap_servers='host:9092'")
    made = with_defaults(given)
    resolve(ProducerConfig, {}, made)
    return made


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
