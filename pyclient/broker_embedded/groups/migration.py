"""Online migration of groups from classic to consumer group, and back (group.consumer.migration.policy)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.groups.consumer.classic_members import (
    CONSUMER,
    decode_assignment,
    encode_assignment,
    read_subscription,
)
from pyclient.broker_embedded.groups.consumer.model import (
    ClassicProtocol,
    CurrentAssignment,
    CurrentRecord,
    EpochRecord,
    MemberMetadata,
    MemberRecord,
    RegexRecord,
    TargetEpochRecord,
    TargetRecord,
)
from pyclient.broker_embedded.groups.events import GroupSnapshot, MemberSnapshot, Protocol
from pyclient.errors import GroupIdNotFound, InconsistentGroupProtocol, ProtocolError, UnsupportedVersion

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pyclient.broker_embedded.groups.consumer.events import Limits
    from pyclient.broker_embedded.groups.consumer.model import Member as ConsumerMember
    from pyclient.broker_embedded.groups.consumer.model import Record, Target
    from pyclient.broker_embedded.groups.consumer.state import ConsumerGroup
    from pyclient.broker_embedded.groups.consumer.topics import Topics
    from pyclient.broker_embedded.groups.state import ClassicGroup, Member

_CANNOT_UPGRADE: Final = "Cannot upgrade classic group {} to consumer group"
_UNKNOWN_TIME: Final = 0  # time of the target assignment: the next one need not wait for the interval, as in Kafka


def check_upgrade(group: ClassicGroup, policy: str, limits: Limits) -> None:
    """Raise GroupIdNotFound, with Kafka's message, if the group cannot be converted to a consumer group."""
    reason = None
    if policy not in ("bidirectional", "upgrade"):
        reason = "online upgrade is disabled"
    elif group.protocol_type != CONSUMER:
        reason = "the group does not use the consumer embedded protocol"
    elif len(group.members) > limits.max_size:
        reason = "the group size exceeds the consumer group maximum size"
    if reason is not None:
        raise GroupIdNotFound(f"{_CANNOT_UPGRADE.format(group.group_id)} because {reason}.")


def upgrade(group: ClassicGroup, topics: Topics) -> list[Record]:
    """Return the records that convert a classic group to a consumer group; members keep their last assignment."""
    try:
        members = [_to_consumer_member(group, member, topics) for member in group.members.values()]
    except (ProtocolError, UnsupportedVersion, InconsistentGroupProtocol):
        reason = "the embedded consumer protocol is malformed."
        raise GroupIdNotFound(f"{_CANNOT_UPGRADE.format(group.group_id)} because {reason}") from None
    records: list[Record] = [MemberRecord(member_id, metadata) for member_id, metadata, _ in members]
    records.append(EpochRecord(group.generation))
    records += [TargetRecord(member_id, target) for member_id, _, target in members]
    records.append(TargetEpochRecord(group.generation, _UNKNOWN_TIME))
    epoch = group.generation
    for member_id, _, target in members:
        assigned = {topic_id: dict.fromkeys(partitions, epoch) for topic_id, partitions in target.items()}
        current = CurrentAssignment(epoch=epoch, previous_epoch=epoch, assigned=assigned)
        records.append(CurrentRecord(member_id, current))
    return records


def _to_consumer_member(group: ClassicGroup, member: Member, topics: Topics) -> tuple[str, MemberMetadata, Target]:
    name = group.protocol_name or member.protocols[0].name
    subscription = read_subscription(member.metadata(name))
    protocols = tuple((protocol.name, bytes(protocol.metadata)) for protocol in member.protocols)
    metadata = MemberMetadata(
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=tuple(sorted(set(subscription.topics))),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicProtocol(member.session_timeout_ms, protocols),
    )
    target, user_data = decode_assignment(member.assignment, topics)
    if user_data:  # the server-side assignors would drop the data of a custom assignor
        raise GroupIdNotFound(
            f"{_CANNOT_UPGRADE.format(group.group_id)} because an unsupported custom assignor is in use. Please refer "
            "to the documentation or switch to a default assignor before re-attempting the upgrade."
        )
    return member.member_id, metadata, target


def may_downgrade(group: ConsumerGroup, removed: Collection[str], policy: str, max_size: int) -> bool:
    """Return True if all remaining members are classic, and policy and size allow a classic group."""
    remaining = [member for member_id, member in group.members.items() if member_id not in removed]
    if not remaining or any(member.metadata.classic is None for member in remaining):
        return False
    return policy in ("bidirectional", "downgrade") and len(remaining) <= max_size


def downgrade(group: ConsumerGroup, removed: Collection[str], topics: Topics) -> tuple[list[Record], GroupSnapshot]:
    """Return the tombstones of a consumer group, and the classic group of its remaining members."""
    records: list[Record] = []
    for member_id in group.members:
        records += [CurrentRecord(member_id, None), TargetRecord(member_id, None), MemberRecord(member_id, None)]
    records += [RegexRecord(regex, None) for regex in group.regexes]
    records += [TargetEpochRecord(None), EpochRecord(None)]
    remaining = [member for member_id, member in group.members.items() if member_id not in removed]
    name = _common_protocol(remaining)
    snapshot = GroupSnapshot(
        protocol_type=CONSUMER,
        generation=group.epoch,
        protocol_name=name,
        leader=remaining[0].member_id,
        members=tuple(_to_classic_member(group, member, name, topics) for member in remaining),
    )
    return records, snapshot


def _common_protocol(members: Iterable[ConsumerMember]) -> str:
    """Return the first member's first protocol that all members support; joining ensures that there is one."""
    names = [[name for name, _ in member.metadata.classic.protocols] for member in members if member.metadata.classic]
    return next(name for name in names[0] if all(name in other for other in names))


def _to_classic_member(group: ConsumerGroup, member: ConsumerMember, name: str, topics: Topics) -> MemberSnapshot:
    metadata = member.metadata
    assert metadata.classic is not None
    subscription = dict(metadata.classic.protocols)[name]
    return MemberSnapshot(
        member_id=member.member_id,
        instance_id=metadata.instance_id,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        rebalance_timeout_ms=metadata.rebalance_timeout_ms,
        session_timeout_ms=metadata.classic.session_timeout_ms,
        subscription=subscription,
        assignment=encode_assignment(group.target_of(member), subscription, topics),
    )


def restore_protocols(classic: ClassicGroup, group: ConsumerGroup) -> None:
    """Set all protocols of the members of a group restored from a snapshot, which has only the elected protocol."""
    for member_id, member in classic.members.items():
        metadata = group.members[member_id].metadata.classic
        assert metadata is not None
        classic.set_protocols(member, tuple(Protocol(name, data) for name, data in metadata.protocols))
