"""Who may commit and read the offsets of a consumer group, by member epochs (KIP-848, KIP-1251)."""

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

KNOWS_EPOCHS: Final = 9
"""The first version of OffsetCommit and OffsetFetch that has member epochs."""


def check_commit(
    group: ConsumerGroup,
    member_id: str,
    epoch: int,
    partitions: Iterable[tuple[UUID, int]],
    *,
    version: int,
    transactional: bool = False,
) -> None:
    """Raise why this commit is refused.

    Epoch -1 is a consumer without a group, or an administrator: welcome while the group has no members. A member that
    has moved on since may still commit, with the epoch it had, for partitions that it has had all the time.
    """
    if epoch < 0 and not group.members:
        return
    if transactional and epoch < 0 and not member_id:
        return
    member = _member(group, member_id)
    if not transactional and member.metadata.classic is None and version < KNOWS_EPOCHS:
        raise UnsupportedVersion(
            f"OffsetCommit version {KNOWS_EPOCHS} or above must be used by members using the consumer group protocol"
        )
    known = member.current.epoch
    if epoch == known or (epoch < known and all(_had_since(member, partition, epoch) for partition in partitions)):
        return
    raise _wrong_epoch(member, epoch)


def _had_since(member: Member, partition: tuple[UUID, int], epoch: int) -> bool:
    topic_id, number = partition
    for held in (member.current.assigned, member.current.revoking):
        since = held.get(topic_id, {}).get(number)
        if since is not None:
            return since <= epoch
    return False


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Raise why somebody may not read the offsets; one that names no member may."""
    if member_id is None and epoch < 0:
        return
    member = _member(group, member_id or "")
    if epoch != member.current.epoch:
        raise _wrong_epoch(member, epoch)


def _wrong_epoch(member: Member, epoch: int) -> BrokerError:
    said = f"{epoch} is not member {member.member_id}'s, which is {member.current.epoch}"
    if member.metadata.classic is not None:
        return IllegalGeneration(f"generation {said}")
    return StaleMemberEpoch(f"member epoch {said}")


def _member(group: ConsumerGroup, member_id: str) -> Member:
    member = group.members.get(member_id)
    if member is None:
        raise UnknownMemberId(f"Member {member_id} is not a member of group {group.group_id}.")
    return member


def expired(
    group: ConsumerGroup, offsets: Mapping[TopicPartition, CommittedOffset], *, now_ms: int, retention_ms: int
) -> Iterator[TopicPartition]:
    """The offsets whose offsets.retention.minutes are over, counted from the commit; never those of topics in use."""
    read = group.subscribed_topics()
    for partition, committed in offsets.items():
        end = committed.expire_ms if committed.expire_ms >= 0 else committed.commit_ms + retention_ms
        if partition.topic not in read and now_ms >= end:
            yield partition
