"""Write Arrow batches to Kafka, in the tasks of a query, with the worker's producer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyclient.errors import ClientError, ConfigError, DeliveryFailed, KafkaTimeout, UnknownTopicOrPartition
from pyclient.spark.clients import PRODUCERS, admin_options, freeze_loaded_objects, key_of

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


_answered: Final[set[tuple[int, str]]] = set()


def check_cluster(client: Mapping[str, Any], topic: str | None, *, once: bool = False) -> None:
    """Ask the cluster for a topic, in the driver, before tasks write to it; None asks for no topic.

    Raise `KafkaTimeout` if no broker answers within max.block.ms, and the broker's error if it refuses the topic. A
    missing topic passes, as the broker may create it, and so do secrets that only the executors have. With `once` a
    process asks only until it has got an answer: later micro-batches need none.
    """
    from pyclient.admin import Admin
    from pyclient.config import resolve
    from pyclient.producer.config import ProducerConfig

    key = key_of({**client, "topic": topic})
    if once and key in _answered:
        return
    try:
        options = admin_options(client)
    except ConfigError:
        return
    config = resolve(ProducerConfig, {}, client)
    seconds = config.max_block_ms / 1000
    try:
        with Admin(config=options) as admin:
            admin.describe_topics([] if topic is None else [topic], timeout=seconds)
    except UnknownTopicOrPartition:
        pass
    except KafkaTimeout as error:
        raise KafkaTimeout(
            f"no row was written: the cluster at {','.join(config.bootstrap_servers)} did not answer within "
            f"{seconds:g} s (max.block.ms) when the write was planned; check kafka.bootstrap.servers and the brokers: "
            f"{error}"
        ) from error
    _answered.add(key)


def flush(producer: Producer, rows: int, delivered_before: int, timeout: float) -> None:
    """Deliver the rows that a task has handed to its producer.

    Raise `WriteFailed`, which counts those that were refused, or were not confirmed within `timeout` seconds.
    `delivered_before` is the producer's number of delivered records before the task.
    """
    try:
        producer.flush(timeout)
    except DeliveryFailed as error:
        raise WriteFailed(
            f"{error.count} of {rows} rows were not delivered; the first error: {error.first_error}"
        ) from error
    except KafkaTimeout as error:
        missing = rows - (delivered(producer) - delivered_before)
        raise WriteFailed(
            f"{missing} of {rows} rows were not delivered within {timeout:g} s (flush_timeout, flushTimeoutMs): {error}"
        ) from error


def delivered(producer: Producer) -> int:
    """Return the number of records that a producer has delivered."""
    return int(producer.metrics()["records_delivered"])


def deliver(options: Mapping[str, Any], flush_timeout: float, send: Callable[[Producer], int]) -> int:
    """Let `send` hand a task's rows to the worker's producer, flush once, and return their number.

    Raise `WriteFailed`, which counts them, if rows were not delivered. After any failure the producer is closed: what
    it still holds belongs to this task, whose retry sends it again.
    """
    producer = PRODUCERS.take(options)
    try:
        before = delivered(producer)
        count = send(producer)
        flush(producer, count, before, flush_timeout)
    except BaseException:
        with suppress(DeliveryFailed):  # what is not delivered yet belongs to the error
            producer.close(timeout=0)
        raise
    PRODUCERS.give_back(options, producer)
    freeze_loaded_objects()
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
