"""Committing, reading, deleting and expiring a group's offsets, in memory and in the log."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pyclient.broker_embedded.groups.consumer import commits as consumer_commits
from pyclient.broker_embedded.groups.consumer.state import ConsumerGroup
from pyclient.broker_embedded.groups.events import NONE
from pyclient.broker_embedded.groups.log_records import CommittedOffset, OffsetRecord, encode_offset
from pyclient.broker_embedded.groups.offsets import check_commit, expired, is_subscribed, subscribed_topics
from pyclient.broker_embedded.groups.registry import GroupEntry, is_deserted
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
    UnknownServerError,
    from_code,
)
from pyclient.protocol.fields import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyclient.broker_embedded.groups.log_records import KeyValue
    from pyclient.broker_embedded.groups.registry import GroupRegistry
    from pyclient.broker_embedded.log.steps import Steps
    from pyclient.types import TopicPartition

_log = logging.getLogger(__name__)

_LATEST_MS: Final = 2**63 - 1  # of the field that keeps when an offset expires


class Position(NamedTuple):
    """What is committed for one partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """An OffsetCommit request. `retention_ms` is -1 for the broker's own; `version` decides about error codes."""

    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    positions: Mapping[TopicPartition, Position]
    retention_ms: int = -1
    version: int = 9


class OffsetMetadataManager:
    """The committed offsets of the groups in a registry."""

    def __init__(self, groups: GroupRegistry) -> None:
        self._groups = groups
        self._runtime = groups.runtime

    def commit(self, group_id: str, commit: Commit) -> Steps[dict[TopicPartition, int]]:
        """Store the positions, all at once; an error code for each. They are in the log when the steps are done."""
        try:
            self._committing(group_id, commit)
        except BrokerError as error:
            return dict.fromkeys(commit.positions, error.code)
        longest = self._runtime.group_config.offset_metadata_max_bytes
        codes: dict[TopicPartition, int] = {}
        accepted: dict[TopicPartition, CommittedOffset] = {}
        records: list[KeyValue] = []
        stamped = self._stamp(commit)
        for partition, position in commit.positions.items():
            if len(position.metadata) > longest:
                codes[partition] = OffsetMetadataTooLarge.code
            else:
                codes[partition] = NONE
                kept = accepted[partition] = stamped(partition, position)
                records.append(encode_offset(OffsetRecord(group_id, partition, kept)))
            yield None
        failure = self._write(group_id, commit, accepted, records)
        if failure:
            codes.update(dict.fromkeys(accepted, failure))
        return codes

    def _committing(self, group_id: str, commit: Commit) -> GroupEntry:
        entry = self._groups.find(group_id)
        if entry is None:
            if commit.generation < 0:
                return self._groups.find_or_create(group_id)
            missing = GroupIdNotFound if commit.version >= 9 else IllegalGeneration
            raise missing(f"there is no group {group_id!r}")
        if entry.consumer is not None:
            self._check_consumer(entry.consumer, commit)
            return entry
        group = entry.classic
        assert group is not None
        code = check_commit(group, commit.member_id, commit.instance_id, commit.generation)
        if code:
            raise from_code(code, f"commit to group {group_id!r}")
        member = group.members.get(commit.member_id)
        if member is not None:
            group.refresh(member, self._runtime.clock.monotonic())
        return entry

    def _check_consumer(self, group: ConsumerGroup, commit: Commit) -> None:
        topics = self._runtime.topics
        found = ((topics.find(name.topic), name.partition) for name in commit.positions)
        partitions = [(info.topic_id, number) for info, number in found if info is not None]
        consumer_commits.check_commit(group, commit.member_id, commit.generation, partitions, version=commit.version)

    def _stamp(self, commit: Commit) -> Callable[[TopicPartition, Position], CommittedOffset]:
        now = self._runtime.clock.time_ms()
        expire_ms = min(now + commit.retention_ms, _LATEST_MS) if commit.retention_ms >= 0 else -1
        topics = self._runtime.topics

        def stamped(partition: TopicPartition, position: Position) -> CommittedOffset:
            topic = topics.find(partition.topic)
            topic_id = ZERO_UUID if topic is None else topic.topic_id
            return CommittedOffset(position.offset, position.leader_epoch, position.metadata, now, expire_ms, topic_id)

        return stamped

    def _write(
        self,
        group_id: str,
        commit: Commit,
        offsets: Mapping[TopicPartition, CommittedOffset],
        records: Sequence[KeyValue],
    ) -> int:
        if not offsets:
            return NONE
        try:
            entry = self._committing(group_id, commit)  # the group may have changed since the first step
            self._groups.write(entry.partition, records)
        except UnknownServerError:  # what a coordinator makes of a batch that is too large
            return InvalidCommitOffsetSize.code
        except BrokerError as error:
            return error.code
        entry.offsets.update(offsets)
        return NONE

    def fetch(
        self, group_id: str, *, member_id: str | None = None, member_epoch: int = -1
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """What the group has committed, which may change later; raises as the registry does.

        A member of a consumer group that names itself has to be there, at that epoch.
        """
        entry = self._groups.find(group_id)
        if entry is not None and entry.consumer is not None:
            consumer_commits.check_fetch(entry.consumer, member_id, member_epoch)
        return entry.offsets if entry is not None else {}

    def delete(self, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """OffsetDelete: an error code for each; topics that members read keep their offsets. Raises for the group."""
        if not group_id:
            raise InvalidGroupId("a group has a name")
        entry = self._groups.find(group_id)
        if entry is None:
            raise GroupIdNotFound(f"there is no group {group_id!r}")
        reads = _topics_read(entry)
        codes = {partition: GroupSubscribedToTopic.code if reads(partition.topic) else NONE for partition in partitions}
        gone = [partition for partition, code in codes.items() if code == NONE and partition in entry.offsets]
        self._groups.write_tombstones(entry, gone, group=False)
        return codes

    def expire(self) -> int:
        """Delete offsets that are past their retention, and groups that nothing is left of; how many offsets went."""
        config = self._runtime.group_config
        retention_ms = config.offsets_retention_minutes * 60_000
        now_ms = self._runtime.clock.time_ms()

        def is_over(entry: GroupEntry) -> list[TopicPartition]:
            group = entry.group
            if isinstance(group, ConsumerGroup):
                return list(consumer_commits.expired(group, entry.offsets, now_ms=now_ms, retention_ms=retention_ms))
            return list(
                expired(group, entry.offsets, now_ms=now_ms, retention_ms=retention_ms, state_ms=entry.state_ms)
            )

        return self._drop(is_over, idle_groups=True)

    def topics_deleted(self, topics: Iterable[str]) -> int:
        """Forget the offsets of topics that do not exist any more; how many offsets went."""
        names = frozenset(topics)
        return self._drop(lambda entry: [name for name in entry.offsets if name.topic in names], idle_groups=False)

    def _drop(self, choose: Callable[[GroupEntry], list[TopicPartition]], *, idle_groups: bool) -> int:
        dropped = 0
        for entry in self._groups:
            gone = choose(entry)
            is_last = idle_groups and len(gone) == len(entry.offsets) and is_deserted(entry)
            try:
                self._groups.write_tombstones(entry, gone, group=is_last)
            except BrokerError as error:  # the next round tries again
                _log.warning("group %.200r: old offsets could not be deleted: %s", entry.group_id, error)
                continue
            dropped += len(gone)
        return dropped


def _topics_read(entry: GroupEntry) -> Callable[[str], bool]:
    """Whether members of the group may be reading a topic; raises for a group whose members do who knows what."""
    group = entry.group
    if isinstance(group, ConsumerGroup):
        read = group.subscribed_topics()
        return lambda topic: topic in read
    if group.state is DEAD:
        raise GroupIdNotFound(f"there is no group {group.group_id!r}")
    if group.state is not EMPTY and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise NonEmptyGroup(f"group {group.group_id!r} has members")
    topics = subscribed_topics(group)
    return lambda topic: is_subscribed(group, topics, topic)
