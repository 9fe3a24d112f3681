"""Write Arrow batches to Kafka, in the tasks of a query, with the worker's producer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyclient.errors import ClientError, DeliveryFailed
from pyclient.spark.clients import PRODUCERS, settle

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from pyclient.producer import Producer

BULK: Final = {"batch.size": "262144", "linger.ms": "5", "client.id": "pyclient-spark"}
"""Defaults of the producers of tasks, which have many rows to send."""

IN_TRANSACTIONS: Final = {**BULK, "transaction.timeout.ms": "900000"}
"""Defaults where rows are written exactly once: transactions of 15 minutes, the most that brokers allow by default."""


class WriteFailed(ClientError):
    """Rows of a task were not delivered; the task fails, and Spark retries it."""


def with_defaults(options: Mapping[str, Any], defaults: Mapping[str, str] = BULK) -> dict[str, Any]:
    """Return the options of a producer with the defaults that are not given, by either form of their names."""
    given = {name.replace("_", ".") for name in options}
    return {**{name: value for name, value in defaults.items() if name not in given}, **options}


def problems_of_transactions(options: Mapping[str, Any], flush_timeout: float) -> Iterator[str]:
    """Yield what keeps a producer with these options from writing rows exactly once; `flush_timeout` is in seconds."""
    given = {name.replace("_", "."): str(value) for name, value in with_defaults(options, IN_TRANSACTIONS).items()}
    if "transactional.id" in given:
        yield "transactional.id is not accepted where rows are written exactly once: each task has an id of its own"
    timeout = given["transaction.timeout.ms"]
    if timeout.isascii() and timeout.isdigit() and int(timeout) <= flush_timeout * 1000:
        yield (
            f"transaction.timeout.ms={timeout} is too short for a task that may deliver for {flush_timeout * 1000:.0f} "
            "ms (flush_timeout, flushTimeoutMs): the coordinator would abort what is still being delivered"
        )


def deliver(options: Mapping[str, Any], flush_timeout: float, send: Callable[[Producer], int]) -> int:
    """Let `send` hand a task's rows to the worker's producer, flush once, and return their number.

    Raise `WriteFailed`, which counts them, if rows were not delivered. After any failure the producer is closed: what
    it still holds belongs to this task, whose retry sends it again.
    """
    producer, count = PRODUCERS.take(options), 0
    try:
        count = send(producer)
        producer.flush(flush_timeout)
    except BaseException as error:
        with suppress(DeliveryFailed):  # what is not delivered yet belongs to the error
            producer.close(timeout=0)
        if isinstance(error, DeliveryFailed):
            raise WriteFailed(
                f"{error.count} of {count} rows were not delivered; the first error: {error.first_error}"
            ) from error
        raise
    PRODUCERS.give_back(options, producer)
    settle()
    return count


@dataclass(frozen=True, slots=True)
class BatchWriter:
    """Writes Arrow batches; pickled to the executors, it holds options only. `topic` goes before a column topic."""

    topic: str | None
    flush_timeout: float
    client: Mapping[str, str] = field(repr=False)

    def write(self, batches: Iterable[pa.RecordBatch]) -> int:
        """Write a task's batches, wait until they are delivered, and return the number of rows."""
        from pyclient.spark.columns import groups

        def send(producer: Producer) -> int:
            count = 0
            for batch in batches:
                for topic, rows in groups(batch, self.topic):
                    producer.send_many(topic, rows)
                count += batch.num_rows
            return count

        return deliver(with_defaults(self.client), self.flush_timeout, send)
