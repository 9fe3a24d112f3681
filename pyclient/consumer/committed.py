"""Committed offsets as OffsetFetch carries them, in each of its versions."""

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
"""After these the member is none any more."""

_BY_GROUP: Final = 8  # from this version on OffsetFetch takes several groups
_STABLE: Final = 7  # from this version on it can be told to wait for transactions


def question(
    group: str, partitions: Sequence[TopicPartition], version: int, epoch: int, member_id: str
) -> OffsetFetchRequest:
    """The request in this version; a member of the consumer protocol says who it is (KIP-848)."""
    by_topic = split_by_topic(partitions).items()
    if version >= _BY_GROUP:
        topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=numbers) for topic, numbers in by_topic]
        asked = OffsetFetchRequestGroup(group_id=group, member_id=member_id or None, member_epoch=epoch, topics=topics)
        return OffsetFetchRequest(groups=[asked], require_stable=True)
    return OffsetFetchRequest(
        group_id=group,
        topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=numbers) for topic, numbers in by_topic],
        require_stable=version >= _STABLE,
    )


def answers(
    group: str, response: OffsetFetchResponse, version: int
) -> Iterable[tuple[TopicPartition, OffsetFetchResponsePartition | OffsetFetchResponsePartitions]]:
    """The partitions that a response speaks of; raises the error of the whole group."""
    if version < _BY_GROUP:
        _check(response.error_code, group)
        for topic in response.topics:
            for old in topic.partitions:
                yield TopicPartition(topic.name, old.partition_index), old
        return
    for answer in response.groups:
        if answer.group_id == group:
            _check(answer.error_code, group)
            for each in answer.topics:
                for new in each.partitions:
                    yield TopicPartition(each.name, new.partition_index), new


def _check(error_code: int, group: str) -> None:
    if error_code:
        error = from_code(error_code, f"reading committed offsets of group {group!r}")
        # a member that is not one any more finds out by its heartbeat, and asks again in its new role
        raise StaleMemberEpoch(str(error)) if isinstance(error, MEMBER_GONE) else error
