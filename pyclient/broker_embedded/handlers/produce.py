"""Produce v3-13 (advertised from 0): append record batches.

Every partition gets its own answer. acks=0 has no response; where it fails the connection is closed, as Kafka does.
Produce never makes a topic. From v13 on topics have ids. A transactional batch is refused, for there is no transaction
coordinator. Not done: hints to another leader (v10), which a cluster of one never has to give.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient import errors
from pyclient.broker_embedded.dispatch import CloseConnection, handles
from pyclient.broker_embedded.failures import code_of, message_of
from pyclient.broker_embedded.log.validate import RefusedRecords
from pyclient.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from uuid import UUID

    from pyclient.broker_embedded.broker import BrokerNode
    from pyclient.broker_embedded.dispatch import RequestContext

_ATTRIBUTES: Final = 21  # where the low byte of a batch's attributes starts, less one: they are 16 bits
_BY_ID: Final = 13
_MAGIC: Final = 16
_TRANSACTIONAL: Final = 0x10


@handles(ProduceRequest, versions=(3, 13))
def handle(request: ProduceRequest, context: RequestContext) -> ProduceResponse | None:
    """Append what the request holds, partition by partition."""
    node = context.node
    responses = []
    failures = 0
    for topic in _merged(request.topic_data):
        name = topic.name if context.version < _BY_ID else node.topic_name(topic.topic_id)
        answers = [_append(node, name, partition, request) for partition in topic.partition_data]
        failures += sum(answer.error_code != 0 for answer in answers)
        responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
    throttle = _throttle(request, context)
    if request.acks != 0:
        return ProduceResponse(responses=responses, throttle_time_ms=throttle)
    if failures:
        raise CloseConnection(f"Produce with acks=0 failed for {failures} partitions")
    return None


def _merged(topics: list[TopicProduceData]) -> list[TopicProduceData]:
    """Each topic and each of its partitions once: what comes last counts, and a topic of nothing not at all."""
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
    """Charge the client for what it has sent; milliseconds that it is to be left alone for, and is (KIP-219)."""
    node = context.node
    if not node.image.client_quotas:
        return 0
    size = sum(len(each.records or b"") for topic in request.topic_data for each in topic.partition_data)
    seconds = node.produce_quotas.charge(context.client_id, size, node.clock.monotonic())
    if seconds > 0:
        context.connection.mute(seconds)
    return round(seconds * 1000)


def _append(
    node: BrokerNode, topic: str | None, partition: PartitionProduceData, request: ProduceRequest
) -> PartitionProduceResponse:
    try:
        if topic is None:
            raise errors.UnknownTopicId("there is no topic with that id")
        log, epoch = node.partitions.leader(topic, partition.index)
        records = _checked(topic, partition.records, request)
        info = log.append(records, leader_epoch=epoch, now_ms=node.clock.time_ms(), origin="client")
    except Exception as error:  # whatever it is, it becomes this answer
        return refusal(error, topic, partition.index)
    return written(partition.index, info.base_offset, info.append_time_ms, info.log_start_offset)


def written(index: int, base_offset: int, append_time_ms: int, log_start_offset: int) -> PartitionProduceResponse:
    """What is answered for a partition whose batch was appended."""
    return PartitionProduceResponse(
        index=index,
        error_code=0,
        base_offset=base_offset,
        log_append_time_ms=append_time_ms,
        log_start_offset=log_start_offset,
    )


def refusal(error: Exception, topic: str | None, index: int) -> PartitionProduceResponse:
    """What is answered for a partition that nothing was appended to; records that are at fault are named (KIP-467)."""
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


def _checked(topic: str, records: memoryview | None, request: ProduceRequest) -> memoryview:
    """The partition's batches, if the request may be served at all."""
    if request.acks not in (-1, 0, 1):
        raise errors.InvalidRequiredAcks(f"acks is {request.acks}: it must be -1 (all), 0 or 1")
    if is_closed(topic):
        raise errors.InvalidTopic(f"{topic} is written by the brokers only")
    if records is None or len(records) == 0:
        raise errors.InvalidRecord("a partition of a Produce request has no records")
    if is_transactional(records):
        raise errors.TransactionalIdAuthorizationFailed("this broker does not serve transactions yet")
    return records


def is_transactional(records: memoryview) -> bool:
    """Whether what begins there is a batch of a transaction."""
    return len(records) > _ATTRIBUTES + 1 and records[_MAGIC] == 2 and records[_ATTRIBUTES + 1] & _TRANSACTIONAL != 0


def is_closed(topic: str) -> bool:
    """Whether no client may write the topic."""
    return topic in _CLOSED_TOPICS


_CLOSED_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__cluster_metadata"})
