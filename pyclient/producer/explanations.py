"""Texts of a producer's errors: what failed, where, the last known cause, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from pyclient.errors import (
    BufferExhausted,
    ClosedError,
    DeliveryTimeout,
    KafkaTimeout,
    UnknownTopicOrPartition,
)
from pyclient.producer.partition_queue import NO_LEADER, PartitionQueue

if TYPE_CHECKING:
    from pyclient.producer.batch import ProducerBatch
    from pyclient.producer.core import ProducerCore
    from pyclient.producer.delivery import Delivery

_NAMED: Final = 3  # partitions that an error names; the others are counted


def buffer_exhausted(core: ProducerCore, size: int, topic: str, partition: int | None) -> BufferExhausted:
    """Return the error for a send that got no memory in time; it names the partitions that hold the memory."""
    where = f" for a record to topic {topic!r}"
    if partition is not None:
        where += f", partition {partition}"
    with core.lock:
        held = list(core.accumulator.incomplete)
    text = (
        f"no {size} of buffer_memory={core.config.buffer_memory} bytes became free within "
        f"max_block_ms={core.config.max_block_ms}{where}"
    )
    if held:
        text += f"; {_batches(len(held))} not confirmed yet, of {_places(core, held)}"
    reasons = core.cluster.describe_failures()
    why = f"last failures: {reasons}" if reasons else "the cluster confirms more slowly than records are sent"
    return BufferExhausted(f"{text}; {why}; check the brokers, or raise buffer_memory or max_block_ms")


def not_flushed(core: ProducerCore, deliveries: Iterable[Delivery], timeout: float) -> KafkaTimeout:
    """Return the error for a flush that timed out; it names the partitions not confirmed."""
    pending = {id(found) for delivery in deliveries if (found := delivery.pending()) is not None}
    with core.lock:
        late = list(filter(lambda batch: id(batch.delivery) in pending, core.accumulator.incomplete))
        why = why_unconfirmed(late[0]) if late else ""
    if not pending:
        return KafkaTimeout(f"all records have an outcome, but not all futures were completed within {timeout:g} s")
    text = f"{_batches(len(pending))} not confirmed within {timeout:g} s"
    if late:
        text += f", of {_places(core, late)}; {late[0].queue.name}: {why}"
    reasons = core.cluster.describe_failures()
    if reasons and reasons not in text:
        text += f"; last failures: {reasons}"
    return KafkaTimeout(f"{text}; they are still being sent: flush again with more time, or check the brokers")


def closed_before(core: ProducerCore) -> ClosedError:
    """Return the error of records that are not confirmed when the producer closes."""
    reasons = core.cluster.describe_failures()
    text = "the producer was closed before the record was confirmed"
    if reasons:
        text += f"; last failures: {reasons}"
    return ClosedError(f"{text}; flush() before close(), or give close() more time")


def no_partition(topic: str, partition: int, count: int, max_block_ms: int) -> UnknownTopicOrPartition:
    """Return the error for a partition that the topic did not have in time."""
    return UnknownTopicOrPartition(
        f"there is no partition {partition} in topic {topic!r}: it has {count}, numbered from 0, and got no more "
        f"within max_block_ms={max_block_ms}; send to one of them, or add partitions"
    )


def perhaps_no_partition(topic: str, partition: int, count: int, error: KafkaTimeout) -> KafkaTimeout:
    """Return the error for a partition that may not exist: no broker confirmed the partition count in time."""
    return KafkaTimeout(
        f"topic {topic!r} has no partition {partition} as far as is known: it had {count}, numbered from 0, and "
        f"the current number could not be fetched: {error}; send to one of them, add partitions, or raise max_block_ms"
    )


def too_late(batch: ProducerBatch, timeout_ms: int, reasons: str) -> DeliveryTimeout:
    """Return the error of records not confirmed in time; `reasons` are the last failures of broker addresses."""
    detail = why_unconfirmed(batch)
    if reasons and not batch.on_wire and reasons not in detail:
        detail = f"{detail}; last failures: {reasons}"
    advice = "it was not written, and can be sent again"
    if batch.doubtful or batch.on_wire:
        advice = "it may still have been written: check that before sending it again"
    text = f"{batch.queue.name}: the record was not confirmed within delivery_timeout_ms={timeout_ms}; {detail}"
    error = DeliveryTimeout(f"{text}; {advice}; look at the broker, or raise delivery_timeout_ms")
    error.__cause__ = batch.last_error
    return error


def why_unconfirmed(batch: ProducerBatch) -> str:
    """Return why a batch is not confirmed so far."""
    queue = batch.queue
    if batch.last_error is not None:
        return f"the last of {batch.attempts} attempts: {batch.last_error}"
    if batch.on_wire:
        return f"broker {queue.wire_node} has not answered"
    if queue.leader == NO_LEADER:
        return "the partition has no leader"
    return f"it could not be sent to broker {queue.leader}"


def _batches(count: int) -> str:
    return "1 batch was" if count == 1 else f"{count} batches were"


def _places(core: ProducerCore, batches: Iterable[ProducerBatch]) -> str:
    """Return the partitions of these batches with their leaders; if there are many, the first ones and a count."""
    queues = list(dict.fromkeys(batch.queue for batch in batches))
    named = ", ".join(_place(core, queue) for queue in queues[:_NAMED])
    others = len(queues) - _NAMED
    return f"{named} and {others} other partition{'s' if others > 1 else ''}" if others > 0 else named


def _place(core: ProducerCore, queue: PartitionQueue) -> str:
    if queue.leader == NO_LEADER:
        return f"{queue.name}, which has no leader"
    return f"{queue.name} at {core.cluster.name_of(queue.leader)}"
