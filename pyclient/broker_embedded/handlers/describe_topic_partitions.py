"""DescribeTopicPartitions v0: topics with their partitions, page by page (KIP-966).

Topics are sorted by name; an empty list requests all. A page has at most `response_partition_limit` and
`max.request.partition.size.limit` partitions, and a cursor to the next page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient import errors
from pyclient.acls import AclOperation, ResourceType
from pyclient.broker_embedded.controller.topics import check_name
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.handlers.metadata import TOPIC_OPERATIONS
from pyclient.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.controller.image import PartitionImage, TopicImage
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext


@handles(DescribeTopicPartitionsRequest, versions=(0, 0))
def handle(
    request: DescribeTopicPartitionsRequest, context: RequestContext
) -> IncrementalTask[DescribeTopicPartitionsResponse]:
    """Answer with one page; an invalid cursor is an error of every topic."""
    image, cursor = context.services.image, request.cursor
    named = {topic.name for topic in request.topics}
    first, first_partition = ("", 0) if cursor is None else (cursor.topic_name, cursor.partition_index)
    if first_partition < 0 or (named and cursor is not None and first not in named):
        return DescribeTopicPartitionsResponse(
            topics=[_failed(name, errors.InvalidRequest.code, known=False) for name in sorted(named)]
        )
    remaining = max(
        1,
        min(
            request.response_partition_limit,
            context.services.configs.current.integer("max.request.partition.size.limit"),
        ),
    )
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for name in sorted(name for name in named or image.topics if name >= first):
        yield None
        if remaining == 0:
            return _page(topics, name, 0)
        topic = image.topics.get(name)
        if topic is None:
            topics.append(_missing(name))
            continue
        if not named and not context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            continue
        start = first_partition if name == first else 0
        numbers = [index for index in sorted(topic.partitions) if index >= start]
        described = _describe(topic, numbers[:remaining])
        described.topic_authorized_operations = context.operations(TOPIC_OPERATIONS, ResourceType.TOPIC, name)
        topics.append(described)
        if len(numbers) > remaining:
            return _page(topics, name, numbers[remaining])
        remaining -= len(numbers)
    return DescribeTopicPartitionsResponse(topics=topics)


def _page(topics: list[DescribeTopicPartitionsResponseTopic], name: str, index: int) -> DescribeTopicPartitionsResponse:
    cursor = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=index)
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=cursor)


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    try:
        check_name(name)
    except errors.BrokerError as error:
        return _failed(name, error.code)
    return _failed(name, errors.UnknownTopicOrPartition.code)


def _failed(name: str, code: int, *, known: bool = True) -> DescribeTopicPartitionsResponseTopic:
    failed = DescribeTopicPartitionsResponseTopic(error_code=code, name=name, partitions=[])
    if known:
        failed.topic_authorized_operations = TOPIC_OPERATIONS
    return failed


def _describe(topic: TopicImage, numbers: list[int]) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[_partition(topic.partitions[index]) for index in numbers],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(partition: PartitionImage) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        error_code=0 if partition.leader >= 0 else errors.LeaderNotAvailable.code,
        partition_index=partition.partition,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
    )
