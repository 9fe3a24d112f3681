"""Consumer groups: checks of OffsetCommit and OffsetFetch by member epoch (KIP-848, KIP-1251), and expiration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient.errors import BrokerError, IllegalGeneration, StaleMemberEpoch, UnknownMemberId, UnsupportedVersion

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from uuid import UUID

    from pyclient.broker_embedded.groups.consumer.model import Member
    from pyclient.broker_embedded.groups.consumer.state import ConsumerGroup
    from pyclient.broker_embedded.groups.log_records import CommittedOffset
    from pyclient.types import TopicPartition

EPOCHS_SINCE: Final = 9
"""The first version of OffsetCommit and OffsetFetch with member epochs."""


def check_commit(
    group: ConsumerGroup,
    member_id: str,
    epoch: int,
    partitions: Iterable[tuple[UUID, int]],
    *,
    version: int,
    transactional: bool = False,
) -> None:
    """Raise the `BrokerError` of a commit that is refused.

    Epoch -1 is a consumer without a group, or an administrator: accepted while the group has no members. A member may
    commit with an older epoch for partitions that it has owned since that epoch.
    """
    if epoch < 0 and not group.members:
        return
    if transactional and epoch < 0 and not member_id:
        return
    member = _member(group, member_id)
    if not transactional and member.metadata.classic is None and version < EPOCHS_SINCE:
        raise UnsupportedVersion(
            f"OffsetCommit version {EPOCHS_SINCE} or above must be used by members using the consumer group protocol"
        )
    known = member.current.epoch
    if epoch == known or (epoch < known and all(_owned_since(member, partition, epoch) for partition in partitions)):
        return
    raise _wrong_epoch(member, epoch)


def _owned_since(member: Member, partition: tuple[UUID, int], epoch: int) -> bool:
    topic_id, number = partition
    for held in (member.current.assigned, member.current.revoking):
        since = held.get(topic_id, {}).get(number)
        if since is not None:
            return since <= epoch
    return False


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Raise the `BrokerError` of a fetch that is refused; a fetch without a member id is accepted."""
    if member_id is None and epoch < 0:
        return
    member = _member(group, member_id or "")
    if epoch != member.current.epoch:
        raise _wrong_epoch(member, epoch)


def _wrong_epoch(member: Member, epoch: int) -> BrokerError:
    difference = f"{epoch} of member {member.member_id} is not {member.current.epoch}"
    if member.metadata.classic is not None:
        return IllegalGeneration(f"generation {difference}")
    return StaleMemberEpoch(f"member epoch {difference}")


def _member(group: ConsumerGroup, member_id: str) -> Member:
    member = group.members.get(member_id)
    if member is None:
        raise UnknownMemberId(f"Member {member_id} is not a member of group {group.group_id}.")
    return member


def expired(
    group: ConsumerGroup, offsets: Mapping[TopicPartition, CommittedOffset], *, now_ms: int, retention_ms: int
) -> Iterator[TopicPartition]:
    """Yield the offsets of unsubscribed topics that are past offsets.retention.minutes, counted from the commit."""
    subscribed = group.subscribed_topics()
    for partition, committed in offsets.items():
        end = committed.expire_ms if committed.expire_ms >= 0 else committed.commit_ms + retention_ms
        if partition.topic not in subscribed and now_ms >= end:
            yield partition
