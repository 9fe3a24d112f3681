"""Classic groups: checks of an OffsetCommit, and expiration of committed offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.groups.events import NONE
from pyclient.broker_embedded.groups.state import (
    COMPLETING,
    CONSUMER_PROTOCOL_TYPE,
    DEAD,
    EMPTY,
    STABLE,
    ClassicGroup,
)
from pyclient.errors import (
    CoordinatorNotAvailable,
    IllegalGeneration,
    ProtocolError,
    RebalanceInProgress,
    UnknownMemberId,
    UnsupportedVersion,
)
from pyclient.protocol import codec
from pyclient.protocol.messages.consumer_protocol import ConsumerProtocolSubscription

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyclient.broker_embedded.groups.log_records import CommittedOffset
    from pyclient.types import TopicPartition


def check_commit(
    group: ClassicGroup, member_id: str, instance_id: str | None, generation: int, *, transactional: bool = False
) -> int:
    """Return the error code for a commit, 0 if it is accepted. The caller extends the member's session.

    Generation -1 is a consumer without a group, or an administrator: accepted while the group has no members.
    """
    if group.state is DEAD:
        return CoordinatorNotAvailable.code
    if generation < 0 and group.state is EMPTY:
        return NONE
    if generation >= 0 or member_id or instance_id is not None:
        error = group.check(member_id, instance_id)
        if error:
            return error
        if generation != group.generation:
            return IllegalGeneration.code
    elif not transactional:
        return UnknownMemberId.code
    if group.state is COMPLETING and not transactional:
        return RebalanceInProgress.code
    return NONE


def subscribed_topics(group: ClassicGroup) -> frozenset[str] | None:
    """Return the topics that members subscribe to; None if unknown (other protocol type, unreadable metadata)."""
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE or group.protocol_name is None:
        return None
    topics: set[str] = set()
    for member in group.members.values():
        try:
            topics.update(_subscription(member.metadata(group.protocol_name)).topics)
        except (ProtocolError, UnsupportedVersion):
            return None
    return frozenset(topics)


def _subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    return codec.decode_versioned(ConsumerProtocolSubscription, metadata)


def is_subscribed(group: ClassicGroup, topics: frozenset[str] | None, topic: str) -> bool:
    """Return True if a member may be subscribed to the topic; `topics` is the result of `subscribed_topics`."""
    if not group.members:
        return False
    return topic in topics if topics is not None else group.protocol_type == CONSUMER_PROTOCOL_TYPE


def expired(
    group: ClassicGroup,
    offsets: Mapping[TopicPartition, CommittedOffset],
    *,
    now_ms: int,
    retention_ms: int,
    state_ms: int,
) -> Iterator[TopicPartition]:
    """Yield the offsets past offsets.retention.minutes (KIP-211) or past the retention that their commit set.

    The retention starts when the group becomes empty, or at the commit if it never had members. While the group has
    members, only offsets of topics that no member subscribes to expire.
    """
    topics: frozenset[str] | None = None
    if group.members:
        topics = subscribed_topics(group) if group.state is STABLE else None
        if topics is None:
            return
    for partition, committed in offsets.items():
        if topics is not None and partition.topic in topics:
            continue
        since = committed.commit_ms
        if group.state is EMPTY and group.protocol_type is not None and state_ms >= 0:
            since = state_ms
        if now_ms >= (committed.expire_ms if committed.expire_ms >= 0 else since + retention_ms):
            yield partition
