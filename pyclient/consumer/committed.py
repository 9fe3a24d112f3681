"""The OffsetFetch request and response in each of their versions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pyclient.consumer.subscription import split_by_topic
from pyclient.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    IllegalGeneration,
    StaleMemberEpoch,
    UnknownMemberId,
    from_code,
)
from pyclient.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)
from pyclient.types import TopicPartition

MEMBER_GONE: Final = (UnknownMemberId, IllegalGeneration, FencedMemberEpoch, FencedInstanceId)
"""Errors after which the membership is over."""

_BY_GROUP: Final = 8  # the first version of OffsetFetch with several groups
_STABLE: Final = 7  # the first version with require_stable


def question(
    group: str, partitions: Sequence[TopicPartition], version: int, epoch: int, member_id: str
) -> OffsetFetchRequest:
    """Return the request in this version; members of the consumer protocol send their id and epoch (KIP-848)."""
    by_topic = split_by_topic(partitions).items()
    if version >= _BY_GROUP:
        topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=numbers) for topic, numbers in by_topic]
        request_group = OffsetFetchRequestGroup(
            group_id=group, member_id=member_id or None, member_epoch=epoch, topics=topics
        )
        return OffsetFetchRequest(groups=[request_group], require_stable=True)
    return OffsetFetchRequest(
        group_id=group,
        topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=numbers) for topic, numbers in by_topic],
        require_stable=version >= _STABLE,
    )


def answers(
    group: str, response: OffsetFetchResponse, version: int
) -> Iterable[tuple[TopicPartition, OffsetFetchResponsePartition | OffsetFetchResponsePartitions]]:
    """Yield the partitions of a response; raise the error of the whole group."""
    if version < _BY_GROUP:
        _check(response.error_code, group)
        for topic in response.topics:
            for old in topic.partitions:
                yield TopicPartition(topic.name, old.partition_index), old
        return
    for answer in response.groups:
        if answer.group_id == group:
            _check(answer.error_code, group)
            for topic_result in answer.topics:
                for new in topic_result.partitions:
                    yield TopicPartition(topic_result.name, new.partition_index), new


def _check(error_code: int, group: str) -> None:
    if error_code:
        error = from_code(error_code, f"reading committed offsets of group {group!r}")
        # retriable: a member that was removed learns it from its heartbeat, and the retry has its new identity
        raise StaleMemberEpoch(str(error)) if isinstance(error, MEMBER_GONE) else error
