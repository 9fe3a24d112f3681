"""Encode and decode records of `__consumer_offsets`: committed offsets and groups, in Kafka's formats.

As in Kafka 4.3, OffsetCommitValue 4 (1 for a commit with its own retention) and GroupMetadataValue 3 are written, and
every version is read. A record without a value is a tombstone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pyclient.broker_embedded.groups.consumer.log_format import ConsumerGroupRecord
from pyclient.broker_embedded.groups.consumer.log_format import decode as decode_consumer
from pyclient.broker_embedded.groups.events import GroupSnapshot, MemberSnapshot
from pyclient.protocol import codec
from pyclient.protocol.fields import ZERO_UUID
from pyclient.protocol.messages.group_log import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from pyclient.varint import Buffer

_OFFSET_VERSION: Final = 4
_OFFSET_VERSION_WITH_RETENTION: Final = 1
_GROUP_VERSION: Final = 3

KeyValue = tuple[bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A position committed at `commit_ms`; `expire_ms` is -1 unless the commit set its own retention.

    `topic_id` is the topic's id at that time, zeros if the record has none.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = -1
    topic_id: UUID = ZERO_UUID


class OffsetRecord(NamedTuple):
    """A committed offset in the log; None is a tombstone."""

    group_id: str
    partition: TopicPartition
    committed: CommittedOffset | None


class GroupRecord(NamedTuple):
    """A group in the log, with the time of its last state change (epoch ms); None is a tombstone."""

    group_id: str
    snapshot: GroupSnapshot | None
    state_ms: int = -1


def encode_offset(record: OffsetRecord) -> KeyValue:
    """Return the key and value of a committed offset."""
    key = OffsetCommitKey(group=record.group_id, topic=record.partition.topic, partition=record.partition.partition)
    committed = record.committed
    if committed is None:
        return codec.encode_versioned(key, 0), None
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_ms,
        expire_timestamp=committed.expire_ms,
        topic_id=committed.topic_id,
    )
    version = _OFFSET_VERSION if committed.expire_ms < 0 else _OFFSET_VERSION_WITH_RETENTION
    return codec.encode_versioned(key, 0), codec.encode_versioned(value, version)


def encode_group(record: GroupRecord) -> KeyValue:
    """Return the key and value of a group."""
    key = codec.encode_versioned(GroupMetadataKey(group=record.group_id), 0)
    snapshot = record.snapshot
    if snapshot is None:
        return key, None
    value = GroupMetadataValue(
        protocol_type=snapshot.protocol_type,
        generation=snapshot.generation,
        protocol=snapshot.protocol_name,
        leader=snapshot.leader,
        current_state_timestamp=record.state_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in snapshot.members
        ],
    )
    return key, codec.encode_versioned(value, _GROUP_VERSION)


LogRecord = OffsetRecord | GroupRecord | ConsumerGroupRecord
"""The record types that `decode` returns."""


def decode(key: Buffer, value: Buffer | None) -> LogRecord | None:
    """Decode a record; return None for a type that is not supported (share and streams groups).

    Raise `ProtocolError` for malformed bytes, `UnsupportedVersion` for a value of an unknown version.
    """
    kind = codec.peek_version(key)
    if kind == GroupMetadataKey.api_key:
        return _decode_group(codec.decode_versioned(GroupMetadataKey, key).group, value)
    if kind == OffsetCommitKey.api_key:
        current = codec.decode_versioned(OffsetCommitKey, key)
        return _decode_offset(current.group, TopicPartition(current.topic, current.partition), value)
    if kind == LegacyOffsetCommitKey.api_key:
        legacy = codec.decode_versioned(LegacyOffsetCommitKey, key)
        return _decode_offset(legacy.group, TopicPartition(legacy.topic, legacy.partition), value)
    return decode_consumer(kind, key, value)


def _decode_offset(group_id: str, partition: TopicPartition, value: Buffer | None) -> OffsetRecord:
    if value is None:
        return OffsetRecord(group_id, partition, None)
    read = codec.decode_versioned(OffsetCommitValue, value)
    committed = CommittedOffset(
        read.offset, read.leader_epoch, read.metadata, read.commit_timestamp, read.expire_timestamp, read.topic_id
    )
    return OffsetRecord(group_id, partition, committed)


def _decode_group(group_id: str, value: Buffer | None) -> GroupRecord:
    if value is None:
        return GroupRecord(group_id, None)
    read = codec.decode_versioned(GroupMetadataValue, value)
    snapshot = GroupSnapshot(
        protocol_type=read.protocol_type,
        generation=read.generation,
        protocol_name=read.protocol,
        leader=read.leader,
        members=tuple(
            MemberSnapshot(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout,
                session_timeout_ms=member.session_timeout,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in read.members
        ),
    )
    return GroupRecord(group_id, snapshot, read.current_state_timestamp)
