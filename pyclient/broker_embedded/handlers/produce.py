"""Produce v3-13 (advertised from 0): append record batches.

Every partition has its own result. acks=0 has no response; a failure closes the connection, as in Kafka. Produce never
creates a topic. From v13 on topics have ids. Transactional batches are refused, as there is no transaction coordinator.
Not done: the current leader of a moved partition (v10), which a single-broker cluster never has.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from pyclient import errors
from pyclient.broker_embedded.dispatch import CloseConnection, handles
from pyclient.broker_embedded.failures import code_of, message_of
from pyclient.broker_embedded.log.incremental_task import finished
from pyclient.broker_embedded.log.log_validator import RefusedRecords, TooLongForLoop, check_client_batch, writable
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from pyclient.records import Compression
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Coroutine, Iterator
    from uuid import UUID

    from pyclient.broker_embedded.broker import BrokerNode
    from pyclient.broker_embedded.dispatch import RequestContext
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask

T = TypeVar("T")

_ATTRIBUTES: Final = 21  # position of the 16-bit attributes of a batch
_BY_ID: Final = 13
_FEW: Final = 16  # a request of so many partitions is served in one step
_MAGIC: Final = 16
_ZSTD_SINCE: Final = 7
_TRANSACTIONAL: Final = 0x10


def _logs(request: ProduceRequest, node: BrokerNode) -> Iterator[TopicPartition]:
    for topic in request.topic_data:
        name = topic.name or node.topic_name(topic.topic_id)
        for partition in topic.partition_data:
            yield TopicPartition(name or "", partition.index)


@handles(ProduceRequest, versions=(3, 13), durable=Durable.BATCHES, logs=_logs)
def handle(request: ProduceRequest, context: RequestContext) -> Any:
    """Append the batches of the request, partition by partition; batches that take long to check come last.

    Many partitions take several steps.
    """
    topics = request.topic_data
    if len(topics) <= _FEW and sum(len(topic.partition_data) for topic in topics) <= _FEW:
        return finished(_append_all(request, context))
    return _append_all(request, context)


def _append_all(
    request: ProduceRequest, context: RequestContext
) -> IncrementalTask[ProduceResponse | Coroutine[None, None, ProduceResponse | None] | None]:
    node = context.node
    responses = []
    slow: list[_SlowAppend] = []
    for topic in _merged(request.topic_data):
        name = topic.name if context.version < _BY_ID else node.topic_name(topic.topic_id)
        answers: list[PartitionProduceResponse] = []
        for partition in topic.partition_data:
            try:
                answers.append(_append(node, name, partition, request, context.version))
            except TooLongForLoop:
                slow.append(_SlowAppend(name or "", partition, answers, len(answers)))
                answers.append(written(partition.index, -1, -1, -1))  # a placeholder
            yield None
        responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
    if slow:
        return _append_slowly(slow, responses, request, context)
    return _response(responses, request, context)


def _response(
    responses: list[TopicProduceResponse], request: ProduceRequest, context: RequestContext
) -> ProduceResponse | None:
    throttle = _throttle(request, context)
    if request.acks != 0:
        return ProduceResponse(responses=responses, throttle_time_ms=throttle)
    failures = sum(answer.error_code != 0 for topic in responses for answer in topic.partition_responses)
    if failures:
        raise CloseConnection(f"Produce with acks=0 failed for {failures} partitions")
    return None


class _SlowAppend(NamedTuple):
    """A batch that another thread checks; its answer goes to `answers[position]`."""

    topic: str
    partition: PartitionProduceData
    answers: list[PartitionProduceResponse]
    position: int


async def _append_slowly(
    slow: list[_SlowAppend], responses: list[TopicProduceResponse], request: ProduceRequest, context: RequestContext
) -> ProduceResponse | None:
    """Check batches on the log's I/O thread, and append each one as soon as it is checked."""
    for topic, partition, answers, position in slow:
        answers[position] = await _append_checked(context.node, topic, partition)
    return _response(responses, request, context)


async def _append_checked(node: BrokerNode, topic: str, partition: PartitionProduceData) -> PartitionProduceResponse:
    try:
        log, _epoch = node.partitions.leader(topic, partition.index)
        batch = writable(partition.records or b"")
        name = f"{topic}-{partition.index}"
        checked = await _on_io_thread(node, partial(check_client_batch, batch, log.config, node.clock.time_ms(), name))
        log, epoch = node.partitions.leader(topic, partition.index)  # the topic may have been recreated
        info = log.append(batch, leader_epoch=epoch, now_ms=node.clock.time_ms(), checked=checked)
    except Exception as error:  # every failure is answered with its error code
        return refusal(error, topic, partition.index)
    return written(partition.index, info.base_offset, info.append_time_ms, info.log_start_offset)


def _on_io_thread(node: BrokerNode, work: Callable[[], T]) -> Future[T]:
    future: Future[T] = node.loop.create_future()

    def complete(answer: T, failure: Exception | None) -> None:
        if future.done():
            return
        if failure is None:
            future.set_result(answer)
        else:
            future.set_exception(failure)

    node.logs.disk_thread.submit(work, complete)
    return future


def _merged(topics: list[TopicProduceData]) -> list[TopicProduceData]:
    """Return each topic and partition once: the last of duplicates counts; topics without partitions are dropped."""
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        return topics
    found: dict[tuple[str, UUID], dict[int, PartitionProduceData]] = {}
    for topic in topics:
        for partition in topic.partition_data:
            found.setdefault((topic.name, topic.topic_id), {})[partition.index] = partition
    return [
        TopicProduceData(name=name, topic_id=topic_id, partition_data=list(partitions.values()))
        for (name, topic_id), partitions in found.items()
    ]


def _throttle(request: ProduceRequest, context: RequestContext) -> int:
    """Charge the client's quota; if exceeded, mute the connection (KIP-219). Return the throttle time in ms."""
    node = context.node
    if not node.image.client_quotas:
        return 0
    size = sum(len(each.records or b"") for topic in request.topic_data for each in topic.partition_data)
    seconds = node.produce_quotas.charge(context.client_id, size, node.clock.monotonic())
    if seconds > 0:
        context.connection.mute(seconds)
    return round(seconds * 1000)


def _append(
    node: BrokerNode, topic: str | None, partition: PartitionProduceData, request: ProduceRequest, version: int
) -> PartitionProduceResponse:
    try:
        if topic is None:
            raise errors.UnknownTopicId(f"topic id of partition {partition.index} does not exist")
        log, epoch = node.partitions.leader(topic, partition.index)
        records = _checked(topic, partition.records, request, version)
        info = log.append(records, leader_epoch=epoch, now_ms=node.clock.time_ms(), on_loop=True)
    except TooLongForLoop:
        raise
    except Exception as error:  # every failure is answered with its error code
        return refusal(error, topic, partition.index)
    return written(partition.index, info.base_offset, info.append_time_ms, info.log_start_offset)


def written(index: int, base_offset: int, append_time_ms: int, log_start_offset: int) -> PartitionProduceResponse:
    """Return the answer of a partition whose batch was appended."""
    return PartitionProduceResponse(
        index=index,
        error_code=0,
        base_offset=base_offset,
        log_append_time_ms=append_time_ms,
        log_start_offset=log_start_offset,
    )


def refusal(error: Exception, topic: str | None, index: int) -> PartitionProduceResponse:
    """Return the answer of a partition whose batch was refused; invalid records are named (KIP-467)."""
    records = error.records if isinstance(error, RefusedRecords) else {}
    return PartitionProduceResponse(
        index=index,
        error_code=code_of(error, f"Produce to {topic}-{index}"),
        base_offset=-1,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=text)
            for number, text in records.items()
        ],
        error_message=message_of(error),
    )


def _checked(topic: str, records: memoryview | None, request: ProduceRequest, version: int) -> memoryview:
    """Return the partition's batches. Raise `BrokerError` for a request that is refused."""
    if request.acks not in (-1, 0, 1):
        raise errors.InvalidRequiredAcks(f"acks is {request.acks}: must be -1 (all), 0 or 1")
    if is_closed(topic):
        raise errors.InvalidTopic(f"{topic} is an internal topic: clients cannot write to it")
    if records is None or len(records) == 0:
        raise errors.InvalidRecord("a partition of a Produce request has no records")
    if is_transactional(records):
        raise errors.TransactionalIdAuthorizationFailed("this broker does not serve transactions yet")
    if version < _ZSTD_SINCE and len(records) > _ATTRIBUTES + 1 and records[_ATTRIBUTES + 1] & 7 == Compression.ZSTD:
        raise errors.UnsupportedCompressionType(
            f"{topic}: Produce version {version} may not carry zstd, version {_ZSTD_SINCE} and later may (KIP-110)"
        )
    return records


def is_transactional(records: memoryview) -> bool:
    """Return True if the first batch is transactional."""
    return len(records) > _ATTRIBUTES + 1 and records[_MAGIC] == 2 and records[_ATTRIBUTES + 1] & _TRANSACTIONAL != 0


def is_closed(topic: str) -> bool:
    """Return True if clients may not write to the topic."""
    return topic in _CLOSED_TOPICS


_CLOSED_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__cluster_metadata"})
