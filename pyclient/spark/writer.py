"""`df.foreachPartition(write_partition(...))`: each task's rows to Kafka, or an error that fails the task."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyclient.errors import ClientError, ConfigError, DeliveryFailed
from pyclient.spark.producers import discard, shared_producer
from pyclient.spark.rows import to_record

_FLUSH_SECONDS = 150.0  # above delivery_timeout_ms' default: by then every record has an outcome
_SECRET = ("password", "secret", "token", "jaas", "key")


class WriteFailed(ClientError):
    """Rows of a task were not delivered; the task fails, and Spark retries it."""


class PartitionWriter:
    """What `write_partition` returns: picklable, since it holds options only; the producer is made in the worker."""

    def __init__(self, topic: str | None, flush_timeout: float, options: dict[str, Any]) -> None:
        self._topic = topic
        self._flush_timeout = flush_timeout
        self._options = options

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name}='[hidden]'" if any(word in name for word in _SECRET) else f"{name}={value!r}"
            for name, value in self._options.items()
        )
        return f"write_partition(topic={self._topic!r}, {shown})"

    def __call__(self, rows: Iterable[Any]) -> None:
        """Send the rows, flush once, and raise if any of them was not delivered.

        No future is kept, so a task's memory does not grow with its rows: `flush` counts what failed.
        """
        producer = shared_producer(self._options)
        count = 0
        try:
            for row in rows:
                record = to_record(row, self._topic)
                producer.send(
                    record.topic,
                    record.value,
                    key=record.key,
                    headers=record.headers,
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                count += 1
            producer.flush(self._flush_timeout)
        except DeliveryFailed as error:
            discard(self._options)
            raise WriteFailed(
                f"{error.count} of {count} rows were not delivered; the first error: {error.first_error}"
            ) from error
        except BaseException:
            discard(self._options)  # what it still holds belongs to this task, whose retry sends it again
            raise


def write_partition(
    *,
    topic: str | None = None,
    bootstrap_servers: str | None = None,
    flush_timeout: float = _FLUSH_SECONDS,
    **options: Any,
) -> PartitionWriter:
    """A function for `DataFrame.foreachPartition` that writes the partition's rows to Kafka.

    Columns are those of Spark's own sink: `value` (the only one required), `key`, `topic`, `partition`, `headers`,
    and `timestamp` beside them; text is sent as UTF-8. `topic` here wins over the column. Everything else is an
    option of `Producer` by Kafka's name (`acks`, `linger_ms`, `compression_type`, ...); idempotence is on as there.
    The task fails with WriteFailed, which counts them, if rows are not delivered; Spark then retries it, so a row may
    be written again (at-least-once). `flush_timeout` is in seconds; `ValueError` for one that is no time.

    Example:
        df.select("key", "value").foreachPartition(write_partition(topic="t", bootstrap_servers="host:9092"))
    """
    if bootstrap_servers is None and "config" not in options:
        raise ConfigError("write_partition needs bootstrap_servers, for example bootstrap_servers='host:9092'")
    _check_seconds(flush_timeout)
    if bootstrap_servers is not None:
        options["bootstrap_servers"] = bootstrap_servers
    return PartitionWriter(topic, flush_timeout, options)


def _check_seconds(flush_timeout: Any) -> None:
    """Refuse here what the workers' `flush` could only refuse once the rows are sent."""
    number = isinstance(flush_timeout, (int, float)) and not isinstance(flush_timeout, bool)
    if not number or not flush_timeout >= 0:
        raise ValueError(f"flush_timeout={flush_timeout!r} is not possible: it takes seconds from 0, as a number")
