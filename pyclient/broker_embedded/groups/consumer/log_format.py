"""Encode and decode the records of a consumer group in `__consumer_offsets`, in Kafka's formats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyclient.broker_embedded.groups.consumer.model import (
    ClassicProtocol,
    CurrentAssignment,
    CurrentRecord,
    EpochRecord,
    MemberMetadata,
    MemberRecord,
    MemberState,
    Record,
    RegexRecord,
    ResolvedRegex,
    TargetEpochRecord,
    TargetRecord,
)
from pyclient.protocol import codec
from pyclient.protocol.messages import group_log as wire

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pyclient.broker_embedded.groups.consumer.model import Assigned, Target
    from pyclient.varint import Buffer


class ConsumerGroupRecord(NamedTuple):
    """A record with the id of its group."""

    group_id: str
    record: Record


def encode(group_id: str, record: Record) -> tuple[bytes, bytes | None]:
    """Return a record's key and value; the value of a tombstone is None."""
    key, value = _ENCODERS[type(record)](group_id, record)
    return codec.encode_versioned(key, 0), None if value is None else codec.encode_versioned(value, 0)


def decode(kind: int, key: Buffer, value: Buffer | None) -> ConsumerGroupRecord | None:
    """Decode a record of that type; return None if it is not one of a consumer group, or no longer read by 4.x."""
    decoder = _DECODERS.get(kind)
    if decoder is None:
        return None
    read_key = codec.decode_versioned(wire.KEYS[kind], key)
    read_value = None if value is None else codec.decode_versioned(wire.VALUES[kind], value)
    return ConsumerGroupRecord(read_key.group_id, decoder(read_key, read_value))  # type: ignore[attr-defined]


def _encode_epoch(group_id: str, record: EpochRecord) -> tuple[Any, Any]:
    key = wire.ConsumerGroupMetadataKey(group_id=group_id)
    if record.epoch is None:
        return key, None
    return key, wire.ConsumerGroupMetadataValue(epoch=record.epoch, metadata_hash=record.metadata_hash)


def _encode_member(group_id: str, record: MemberRecord) -> tuple[Any, Any]:
    key = wire.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=record.member_id)
    metadata = record.metadata
    if metadata is None:
        return key, None
    classic = metadata.classic
    return key, wire.ConsumerGroupMemberMetadataValue(
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=list(metadata.topics),
        subscribed_topic_regex=metadata.regex,
        rebalance_timeout_ms=metadata.rebalance_timeout_ms,
        server_assignor=metadata.assignor,
        classic_member_metadata=None
        if classic is None
        else wire.ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[wire.ClassicProtocol(name=name, metadata=data) for name, data in classic.protocols],
        ),
    )


def _encode_target_epoch(group_id: str, record: TargetEpochRecord) -> tuple[Any, Any]:
    key = wire.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
    if record.epoch is None:
        return key, None
    return key, wire.ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=record.epoch, assignment_timestamp=record.made_ms
    )


def _encode_target(group_id: str, record: TargetRecord) -> tuple[Any, Any]:
    key = wire.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=record.member_id)
    if record.partitions is None:
        return key, None
    topics = [
        wire.TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
        for topic_id, partitions in record.partitions.items()
    ]
    return key, wire.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics)


def _encode_current(group_id: str, record: CurrentRecord) -> tuple[Any, Any]:
    key = wire.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=record.member_id)
    current = record.current
    if current is None:
        return key, None
    return key, wire.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=current.state,
        assigned_partitions=_encode_assigned(current.assigned),
        partitions_pending_revocation=_encode_assigned(current.revoking),
    )


def _encode_assigned(assigned: Assigned) -> list[wire.TopicPartitions]:
    return [
        wire.TopicPartitions(topic_id=topic_id, partitions=list(epochs), assignment_epochs=list(epochs.values()))
        for topic_id, epochs in assigned.items()
    ]


def _encode_regex(group_id: str, record: RegexRecord) -> tuple[Any, Any]:
    key = wire.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=record.regex)
    found = record.resolved
    if found is None:
        return key, None
    return key, wire.ConsumerGroupRegularExpressionValue(
        topics=list(found.topics), version=found.version, timestamp=found.resolved_ms
    )


_ENCODERS: Final[dict[type[Record], Callable[[str, Any], tuple[Any, Any]]]] = {
    EpochRecord: _encode_epoch,
    MemberRecord: _encode_member,
    TargetEpochRecord: _encode_target_epoch,
    TargetRecord: _encode_target,
    CurrentRecord: _encode_current,
    RegexRecord: _encode_regex,
}


def _decode_epoch(_key: Any, value: wire.ConsumerGroupMetadataValue | None) -> Record:
    return EpochRecord(None) if value is None else EpochRecord(value.epoch, value.metadata_hash)


def _decode_member(
    key: wire.ConsumerGroupMemberMetadataKey, value: wire.ConsumerGroupMemberMetadataValue | None
) -> Record:
    if value is None:
        return MemberRecord(key.member_id, None)
    classic = value.classic_member_metadata
    protocols = () if classic is None else tuple((each.name, each.metadata) for each in classic.supported_protocols)
    metadata = MemberMetadata(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=tuple(sorted(set(value.subscribed_topic_names))),
        regex=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=None if classic is None else ClassicProtocol(classic.session_timeout_ms, protocols),
    )
    return MemberRecord(key.member_id, metadata)


def _decode_target_epoch(_key: Any, value: wire.ConsumerGroupTargetAssignmentMetadataValue | None) -> Record:
    if value is None:
        return TargetEpochRecord(None)
    return TargetEpochRecord(value.assignment_epoch, value.assignment_timestamp)


def _decode_target(
    key: wire.ConsumerGroupTargetAssignmentMemberKey, value: wire.ConsumerGroupTargetAssignmentMemberValue | None
) -> Record:
    if value is None:
        return TargetRecord(key.member_id, None)
    target: Target = {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}
    return TargetRecord(key.member_id, target)


def _decode_current(
    key: wire.ConsumerGroupCurrentMemberAssignmentKey, value: wire.ConsumerGroupCurrentMemberAssignmentValue | None
) -> Record:
    if value is None:
        return CurrentRecord(key.member_id, None)
    current = CurrentAssignment(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=_member_state(value.state),
        assigned=_decode_assigned(value.assigned_partitions, value.member_epoch),
        revoking=_decode_assigned(value.partitions_pending_revocation, value.member_epoch),
    )
    return CurrentRecord(key.member_id, current)


def _member_state(number: int) -> MemberState:
    try:
        return MemberState(number)
    except ValueError:  # written by a later release
        return MemberState.UNKNOWN


def _decode_assigned(topics: list[wire.TopicPartitions], member_epoch: int) -> Assigned:
    """Decode assigned partitions; records of releases before 4.3 have no assignment epochs: use the member epoch."""
    assigned: dict[Any, dict[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs or ()
        if len(epochs) != len(topic.partitions):
            epochs = [member_epoch] * len(topic.partitions)
        assigned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return assigned


def _decode_regex(
    key: wire.ConsumerGroupRegularExpressionKey, value: wire.ConsumerGroupRegularExpressionValue | None
) -> Record:
    if value is None:
        return RegexRecord(key.regular_expression, None)
    return RegexRecord(key.regular_expression, ResolvedRegex(tuple(value.topics), value.version, value.timestamp))


_DECODERS: Final[dict[int, Callable[[Any, Any], Record]]] = {
    wire.ConsumerGroupMetadataKey.api_key: _decode_epoch,
    wire.ConsumerGroupMemberMetadataKey.api_key: _decode_member,
    wire.ConsumerGroupTargetAssignmentMetadataKey.api_key: _decode_target_epoch,
    wire.ConsumerGroupTargetAssignmentMemberKey.api_key: _decode_target,
    wire.ConsumerGroupCurrentMemberAssignmentKey.api_key: _decode_current,
    wire.ConsumerGroupRegularExpressionKey.api_key: _decode_regex,
}
