"""Commit, fetch, delete and expire the offsets of groups, in memory and in `__consumer_offsets`."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pyclient.broker_embedded.groups.consumer import commits as consumer_commits
from pyclient.broker_embedded.groups.consumer.state import ConsumerGroup
from pyclient.broker_embedded.groups.events import NONE
from pyclient.broker_embedded.groups.log_records import CommittedOffset, OffsetRecord, encode_offset
from pyclient.broker_embedded.groups.offsets import check_commit, expired, is_subscribed, subscribed_topics
from pyclient.broker_embedded.groups.registry import GroupEntry, is_unused
from pyclient.broker_embedded.groups.state import CONSUMER_PROTOCOL_TYPE, DEAD, EMPTY
from pyclient.errors import (
    BrokerError,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InvalidCommitOffsetSize,
    InvalidGroupId,
    NonEmptyGroup,
    OffsetMetadataTooLarge,
    StaleMemberEpoch,
    UnknownServerError,
    from_code,
)
from pyclient.protocol.fields import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyclient.broker_embedded.groups.log_records import KeyValue
    from pyclient.broker_embedded.groups.registry import GroupRegistry
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.types import TopicPartition

_log = logging.getLogger(__name__)

_MAX_EXPIRE_MS: Final = 2**63 - 1  # the field is an int64


class Position(NamedTuple):
    """A committed position of one partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """An OffsetCommit request. `retention_ms` -1 is the broker's retention; `version` selects the error codes.

    With a producer id it is a TxnOffsetCommit: the positions are visible when the producer's transaction commits.
    """

    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    positions: Mapping[TopicPartition, Position]
    retention_ms: int = -1
    version: int = 9
    producer_id: int = -1
    producer_epoch: int = -1

    @property
    def is_transactional(self) -> bool:
        """Return True for a commit in a transaction."""
        return self.producer_id >= 0


class OffsetMetadataManager:
    """The committed offsets of the groups in a registry."""

    def __init__(self, groups: GroupRegistry) -> None:
        self._groups = groups
        self._runtime = groups.runtime

    def commit(self, group_id: str, commit: Commit) -> IncrementalTask[dict[TopicPartition, int]]:
        """Store the positions atomically and return an error code for each.

        They are in the log when the last step is done.
        """
        try:
            self._check_group(group_id, commit)
        except BrokerError as error:
            return dict.fromkeys(commit.positions, error.code)
        max_metadata = self._runtime.group_config.offset_metadata_max_bytes
        codes: dict[TopicPartition, int] = {}
        accepted: dict[TopicPartition, CommittedOffset] = {}
        records: list[KeyValue] = []
        stamp = self._stamper(commit)
        for partition, position in commit.positions.items():
            if len(position.metadata) > max_metadata:
                codes[partition] = OffsetMetadataTooLarge.code
            else:
                codes[partition] = NONE
                committed = accepted[partition] = stamp(partition, position)
                records.append(encode_offset(OffsetRecord(group_id, partition, committed)))
            yield None
        failure = self._append(group_id, commit, accepted, records)
        if failure:
            codes.update(dict.fromkeys(accepted, failure))
        return codes

    def _check_group(self, group_id: str, commit: Commit) -> GroupEntry:
        entry = self._groups.find(group_id)
        if entry is None:
            if commit.generation < 0:
                return self._groups.find_or_create(group_id)
            missing = GroupIdNotFound if commit.version >= 9 and not commit.is_transactional else IllegalGeneration
            raise missing(f"group {group_id!r} does not exist")
        if entry.consumer is not None:
            self._check_consumer_group(entry.consumer, commit)
            return entry
        group = entry.classic
        assert group is not None
        code = check_commit(
            group,
            commit.member_id,
            commit.instance_id,
            commit.generation,
            transactional=commit.is_transactional,
        )
        if code:
            raise from_code(code, f"commit to group {group_id!r}")
        member = group.members.get(commit.member_id)
        if member is not None:
            group.refresh(member, self._runtime.clock.monotonic())
        return entry

    def _check_consumer_group(self, group: ConsumerGroup, commit: Commit) -> None:
        topics = self._runtime.topics
        found = ((topics.find(name.topic), name.partition) for name in commit.positions)
        partitions = [(info.topic_id, number) for info, number in found if info is not None]
        try:
            consumer_commits.check_commit(
                group,
                commit.member_id,
                commit.generation,
                partitions,
                version=commit.version,
                transactional=commit.is_transactional,
            )
        except StaleMemberEpoch as error:
            if commit.is_transactional:  # TxnOffsetCommit has no other error for it
                raise IllegalGeneration(str(error)) from error
            raise

    def _stamper(self, commit: Commit) -> Callable[[TopicPartition, Position], CommittedOffset]:
        now = self._runtime.clock.time_ms()
        expire_ms = min(now + commit.retention_ms, _MAX_EXPIRE_MS) if commit.retention_ms >= 0 else -1
        topics = self._runtime.topics

        def stamp(partition: TopicPartition, position: Position) -> CommittedOffset:
            topic = topics.find(partition.topic)
            topic_id = ZERO_UUID if topic is None else topic.topic_id
            return CommittedOffset(position.offset, position.leader_epoch, position.metadata, now, expire_ms, topic_id)

        return stamp

    def _append(
        self,
        group_id: str,
        commit: Commit,
        offsets: Mapping[TopicPartition, CommittedOffset],
        records: Sequence[KeyValue],
    ) -> int:
        if not offsets:
            return NONE
        try:
            entry = self._check_group(group_id, commit)  # the group may have changed since the first step
            self._groups.write(
                entry.partition, records, producer_id=commit.producer_id, producer_epoch=commit.producer_epoch
            )
        except UnknownServerError:  # `GroupRegistry.write` maps a batch that is too large to it
            return InvalidCommitOffsetSize.code
        except BrokerError as error:
            return error.code
        if commit.is_transactional:
            self._groups.add_pending(entry, commit.producer_id, offsets)
        else:
            entry.offsets.update(offsets)
            entry.pending.overwritten(offsets)
        return NONE

    def unstable(self, group_id: str) -> frozenset[TopicPartition]:
        """Return the partitions whose offsets an open transaction is about to change; raise as `fetch` does."""
        entry = self._groups.find(group_id)
        return frozenset(entry.pending.partitions) if entry is not None and entry.pending else frozenset()

    def fetch(
        self, group_id: str, *, member_id: str | None = None, member_epoch: int = -1
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """Return a live view of the group's committed offsets; raise as `GroupRegistry.find` does.

        A `member_id` of a consumer group must be a current member with that epoch.
        """
        entry = self._groups.find(group_id)
        if entry is not None and entry.consumer is not None:
            consumer_commits.check_fetch(entry.consumer, member_id, member_epoch)
        return entry.offsets if entry is not None else {}

    def delete(self, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Delete offsets and return an error code for each; offsets of subscribed topics are kept.

        Raise `BrokerError` if the whole group is refused.
        """
        if not group_id:
            raise InvalidGroupId("the group id must not be empty")
        entry = self._groups.find(group_id)
        if entry is None:
            raise GroupIdNotFound(f"group {group_id!r} does not exist")
        subscribed = _subscription_check(entry)
        codes = {
            partition: GroupSubscribedToTopic.code if subscribed(partition.topic) else NONE for partition in partitions
        }
        deleted = [partition for partition, code in codes.items() if code == NONE and partition in entry.offsets]
        self._groups.write_tombstones(entry, deleted, group=False)
        return codes

    def expire(self) -> int:
        """Delete expired offsets, and groups without offsets and members; return the number of deleted offsets."""
        config = self._runtime.group_config
        retention_ms = config.offsets_retention_minutes * 60_000
        now_ms = self._runtime.clock.time_ms()

        def expired_offsets(entry: GroupEntry) -> list[TopicPartition]:
            group = entry.group
            if isinstance(group, ConsumerGroup):
                return list(consumer_commits.expired(group, entry.offsets, now_ms=now_ms, retention_ms=retention_ms))
            return list(
                expired(group, entry.offsets, now_ms=now_ms, retention_ms=retention_ms, state_ms=entry.state_ms)
            )

        return self._delete(expired_offsets, delete_groups=True)

    def topics_deleted(self, topics: Iterable[str]) -> int:
        """Delete the offsets of deleted topics; return the number of deleted offsets."""
        names = frozenset(topics)
        return self._delete(lambda entry: [name for name in entry.offsets if name.topic in names], delete_groups=False)

    def _delete(self, select: Callable[[GroupEntry], list[TopicPartition]], *, delete_groups: bool) -> int:
        count = 0
        for entry in self._groups:
            deleted = select(entry)
            delete_group = delete_groups and len(deleted) == len(entry.offsets) and is_unused(entry)
            try:
                self._groups.write_tombstones(entry, deleted, group=delete_group)
            except BrokerError as error:  # the next check retries
                _log.warning("group %.200r: could not delete old offsets: %s", entry.group_id, error)
                continue
            count += len(deleted)
        return count


def _subscription_check(entry: GroupEntry) -> Callable[[str], bool]:
    """Return a predicate: is the topic subscribed? Raise `BrokerError` if the group's subscriptions are unknown."""
    group = entry.group
    if isinstance(group, ConsumerGroup):
        subscribed = group.subscribed_topics()
        return lambda topic: topic in subscribed
    if group.state is DEAD:
        raise GroupIdNotFound(f"group {group.group_id!r} does not exist")
    if group.state is not EMPTY and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise NonEmptyGroup(f"group {group.group_id!r} has members")
    topics = subscribed_topics(group)
    return lambda topic: is_subscribed(group, topics, topic)
