"""Produce v3-13 (advertised from 0): append record batches.

Every partition has its own result. acks=0 has no response; a failure closes the connection, as in Kafka. Produce never
creates a topic. From v10 on the answer for a moved partition names its leader (KIP-951), from v13 on topics have ids.
A batch that begins a transaction in its partition is appended when the coordinator has verified that the partition
belongs to the transaction; from v12 on the write adds it (KIP-890).
"""

from __future__ import annotations

from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from pyclient import errors
from pyclient.acls import AclOperation, ResourceType
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import code_of, message_of
from pyclient.broker_embedded.log.incremental_task import finished, run_here
from pyclient.broker_embedded.log.log_validator import RefusedRecords, TooLongForLoop, check_client_batch, writable
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.broker_embedded.replication.produce_purgatory import AppendedBatch, when_replicated
from pyclient.broker_embedded.request_context import CloseConnection
from pyclient.broker_embedded.transactions.verification import verify_writes
from pyclient.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
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
    from asyncio import AbstractEventLoop, Future
    from collections.abc import Awaitable, Callable, Iterator
    from uuid import UUID

    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.log.log_reader import LogAppendInfo
    from pyclient.broker_embedded.log.manager import LogManager
    from pyclient.broker_embedded.log.unified_log import UnifiedLog
    from pyclient.broker_embedded.replication.hosted_partitions import HostedPartition
    from pyclient.broker_embedded.replication.replica_manager import ReplicaManager
    from pyclient.broker_embedded.request_context import RequestContext
    from pyclient.broker_embedded.services import BrokerServices
    from pyclient.broker_embedded.transactions.promise import Promise
    from pyclient.broker_embedded.transactions.verification import VerifiedWrites

T = TypeVar("T")

_ATTRIBUTES: Final = 21  # position of the 16-bit attributes of a batch
_ALL: Final = -1
_BY_ID: Final = 13
_FEW: Final = 16  # a request of so many partitions is served in one step
_MAGIC: Final = 16
_NAMES_LEADER: Final = 10
_ZSTD_SINCE: Final = 7
_TRANSACTIONAL: Final = 0x10


def _logs(request: ProduceRequest, services: BrokerServices) -> Iterator[TopicPartition]:
    for topic in request.topic_data:
        name = topic.name or services.image.topic_name(topic.topic_id)
        for partition in topic.partition_data:
            yield TopicPartition(name or "", partition.index)


@handles(ProduceRequest, versions=(3, 13), durable=Durable.BATCHES, logs=_logs)
def handle(request: ProduceRequest, context: RequestContext) -> Any:
    """Append the batches of the request, partition by partition; batches that take long to check come last.

    Many partitions take several steps.
    """
    if request.transactional_id is not None:
        batches = dict(_transactional_batches(request, context))
        if batches and not context.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
            error = errors.TransactionalIdAuthorizationFailed("WRITE on the transactional id is not allowed")
            return _response(_all_refused(request, error), request, context, [])
        if batches:
            return _append_verified(request, context, batches)
    topics = request.topic_data
    if len(topics) <= _FEW and sum(len(topic.partition_data) for topic in topics) <= _FEW:
        return finished(_append_all(request, context))
    return _append_all(request, context)


def _transactional_batches(
    request: ProduceRequest, context: RequestContext
) -> Iterator[tuple[TopicPartition, memoryview]]:
    batches = (partition.records for topic in request.topic_data for partition in topic.partition_data)
    for topic_partition, batch in zip(_logs(request, context.services), batches, strict=True):
        if batch is not None and is_transactional(batch):
            yield topic_partition, batch


def _append_verified(
    request: ProduceRequest, context: RequestContext, batches: dict[TopicPartition, memoryview]
) -> Any:
    """Append when the transaction's coordinator has verified the partitions."""
    try:
        verified = verify_writes(context.services, request.transactional_id or "", batches, context.version)
    except errors.BrokerError as error:
        return _response(_all_refused(request, error), request, context, [])
    writes = verified.value
    if writes is not None:
        return _append_all(request, context, writes)
    return _append_later(verified, request, context)


async def _append_later(
    verified: Promise[VerifiedWrites], request: ProduceRequest, context: RequestContext
) -> ProduceResponse | None:
    writes = await verified.future(context.services.loop)
    answer: Any = run_here(_append_all(request, context, writes))
    response: ProduceResponse | None = (await answer) if isawaitable(answer) else answer
    return response


def _all_refused(request: ProduceRequest, error: errors.BrokerError) -> list[TopicProduceResponse]:
    return [
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[refusal(error, topic.name, each.index) for each in topic.partition_data],
        )
        for topic in request.topic_data
    ]


def _append_all(
    request: ProduceRequest, context: RequestContext, writes: VerifiedWrites | None = None
) -> IncrementalTask[ProduceResponse | Awaitable[ProduceResponse | None] | None]:
    services = context.services
    responses = []
    slow: list[_SlowAppend] = []
    appended: list[AppendedBatch] = []
    for topic in _merged(request.topic_data):
        name = topic.name if context.version < _BY_ID else services.image.topic_name(topic.topic_id)
        answers: list[PartitionProduceResponse] = []
        for partition in topic.partition_data:
            try:
                answers.append(_append(services, name, partition, request, context.version, appended, writes))
            except TooLongForLoop:
                slow.append(_SlowAppend(name or "", partition, answers, len(answers)))
                answers.append(written(partition.index, -1, -1, -1))  # a placeholder
            yield None
        responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
    if slow:
        return _append_slowly(slow, responses, request, context, appended, writes)
    return _response(responses, request, context, appended)


def _response(
    responses: list[TopicProduceResponse],
    request: ProduceRequest,
    context: RequestContext,
    appended: list[AppendedBatch],
) -> ProduceResponse | Awaitable[ProduceResponse] | None:
    throttle = _throttle(request, context)
    if request.acks != 0:
        response = ProduceResponse(responses=responses, throttle_time_ms=throttle)
        if context.services.replicas is None:
            return response
        return _when_replicated(response, request.timeout_ms, context, appended)
    failures = sum(answer.error_code != 0 for topic in responses for answer in topic.partition_responses)
    if failures:
        raise CloseConnection(f"Produce with acks=0 failed for {failures} partitions")
    return None


def _when_replicated(
    response: ProduceResponse, timeout_ms: int, context: RequestContext, appended: list[AppendedBatch]
) -> ProduceResponse | Awaitable[ProduceResponse]:
    """Return the response, later if batches have to be replicated first. A future says that all others have failed."""
    services = context.services

    def decided(done: Future[ProduceResponse]) -> None:
        _with_leaders(response, context)
        context.connection.answer_now(done)

    timing = services.clock, services.timers
    held = when_replicated(response, appended, timeout_ms, services.loop, timing, decided)
    if isinstance(held, ProduceResponse):
        return _with_leaders(held, context)
    succeeded = sum(not answer.error_code for topic in response.responses for answer in topic.partition_responses)
    return held if succeeded <= len(appended) else _later(held)


async def _later(held: Future[ProduceResponse]) -> ProduceResponse:
    return await held


def _with_leaders(response: ProduceResponse, context: RequestContext) -> ProduceResponse:
    """Name the leaders of partitions that this node does not lead, with their addresses (KIP-951)."""
    if context.version < _NAMES_LEADER:
        return response
    services = context.services
    leaders = set()
    for topic in response.responses:
        name = topic.name or services.image.topic_name(topic.topic_id)
        for answer in topic.partition_responses:
            partition = None if name is None else services.image.partition(name, answer.index)
            if partition is not None and answer.error_code in _MOVED:
                answer.current_leader = LeaderIdAndEpoch(
                    leader_id=partition.leader, leader_epoch=partition.leader_epoch
                )
                leaders.add(partition.leader)
    if leaders:
        response.node_endpoints = [
            NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in services.listeners.advertised(context.connection)
            if node_id in leaders
        ]
    return response


_MOVED: Final = frozenset({errors.NotLeaderOrFollower.code, errors.FencedLeaderEpoch.code})


class _SlowAppend(NamedTuple):
    """A batch that another thread checks; its answer goes to `answers[position]`."""

    topic: str
    partition: PartitionProduceData
    answers: list[PartitionProduceResponse]
    position: int


async def _append_slowly(
    slow: list[_SlowAppend],
    responses: list[TopicProduceResponse],
    request: ProduceRequest,
    context: RequestContext,
    appended: list[AppendedBatch],
    writes: VerifiedWrites | None,
) -> ProduceResponse | None:
    """Check batches on the log's I/O thread, and append each one as soon as it is checked."""
    for topic, partition, answers, position in slow:
        answers[position] = await _append_checked(context.services, topic, partition, request.acks, appended, writes)
    response = _response(responses, request, context, appended)
    return await response if isawaitable(response) else response


async def _append_checked(
    services: BrokerServices,
    topic: str,
    partition: PartitionProduceData,
    acks: int,
    appended: list[AppendedBatch],
    writes: VerifiedWrites | None,
) -> PartitionProduceResponse:
    try:
        log, _epoch = services.partitions.leader(topic, partition.index)
        batch = writable(partition.records or b"")
        name = f"{topic}-{partition.index}"
        checked = await _on_io_thread(
            services.loop, services.logs, partial(check_client_batch, batch, log.config, services.clock.time_ms(), name)
        )
        log, epoch = services.partitions.leader(topic, partition.index)  # the topic may have been recreated
        hosted = _replicated(services.replicas, topic, partition.index, acks)
        version = _transaction_version(log, batch, writes)
        now_ms = services.clock.time_ms()
        info = log.append(batch, leader_epoch=epoch, now_ms=now_ms, checked=checked, transaction_version=version)
    except Exception as error:  # every failure is answered with its error code
        return _refusal(services.replicas, error, topic, partition.index)
    return _noted(partition.index, info, hosted, epoch, appended)


def _on_io_thread(loop: AbstractEventLoop, logs: LogManager, work: Callable[[], T]) -> Future[T]:
    future: Future[T] = loop.create_future()

    def complete(answer: T, failure: Exception | None) -> None:
        if future.done():
            return
        if failure is None:
            future.set_result(answer)
        else:
            future.set_exception(failure)

    logs.disk_thread.submit(work, complete)
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
    services = context.services
    if not services.image.client_quotas:
        return 0
    size = sum(len(each.records or b"") for topic in request.topic_data for each in topic.partition_data)
    seconds = services.quotas.produce.charge(context.quota_client, size, services.clock.monotonic())
    if seconds > 0:
        context.connection.mute(seconds)
    return round(seconds * 1000)


def _transaction_version(log: UnifiedLog, batch: memoryview, writes: VerifiedWrites | None) -> int:
    """Return the version of the batch's transaction, 0 without one. Raise the error of a batch that is not verified."""
    if not is_transactional(batch):
        return 0
    if writes is None:
        raise errors.TransactionalIdAuthorizationFailed("a transactional batch needs a transactional id")
    writes.check(log, batch)
    return writes.transaction_version


def _append(
    services: BrokerServices,
    topic: str | None,
    partition: PartitionProduceData,
    request: ProduceRequest,
    version: int,
    appended: list[AppendedBatch],
    writes: VerifiedWrites | None,
) -> PartitionProduceResponse:
    try:
        if topic is None:
            raise errors.UnknownTopicId(f"topic id of partition {partition.index} does not exist")
        log, epoch = services.partitions.leader(topic, partition.index)
        records = _checked(topic, partition.records, request, version)
        hosted = _replicated(services.replicas, topic, partition.index, request.acks)
        in_version = _transaction_version(log, records, writes)
        now_ms = services.clock.time_ms()
        info = log.append(records, leader_epoch=epoch, now_ms=now_ms, on_loop=True, transaction_version=in_version)
    except TooLongForLoop:
        raise
    except Exception as error:  # every failure is answered with its error code
        return _refusal(services.replicas, error, topic, partition.index)
    return _noted(partition.index, info, hosted, epoch, appended)


def _refusal(
    replicas: ReplicaManager | None, error: Exception, topic: str | None, index: int
) -> PartitionProduceResponse:
    """Return the answer to a failure. If the disk failed, another replica shall lead the partition."""
    if topic is not None and replicas is not None and isinstance(error.__cause__, OSError):
        replicas.report_damage(topic, index, error)
    return refusal(error, topic, index)


def _replicated(replicas: ReplicaManager | None, topic: str, index: int, acks: int) -> HostedPartition | None:
    """Return the partition if the answer has to wait for its replicas. Raise `NotEnoughReplicas`."""
    if replicas is None or acks != _ALL:
        return None
    hosted = replicas.find(topic, index)
    if hosted is not None:
        hosted.partition.check_min_isr()
    return hosted


def _noted(
    index: int, info: LogAppendInfo, hosted: HostedPartition | None, epoch: int, appended: list[AppendedBatch]
) -> PartitionProduceResponse:
    """Return the answer of a partition whose batch was appended, which may have to wait for its replicas."""
    answer = written(index, info.base_offset, info.append_time_ms, info.log_start_offset)
    if hosted is not None:
        appended.append(AppendedBatch(answer, hosted, info.last_offset, epoch))
    return answer


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
