"""Groups with members that change their kind: classic to consumer group, and back (group.consumer.migration.policy)."""

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
_LONG_AGO: Final = 0  # when the assignment was made: the first of the new kind need not wait, as in Kafka


def check_upgrade(group: ClassicGroup, policy: str, limits: Limits) -> None:
    """Raise GroupIdNotFound, with Kafka's words, when a consumer of the new protocol may not enter."""
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
    """The records that make a consumer group out of a classic one, each member with what it was last assigned."""
    try:
        members = [_as_consumer(group, member, topics) for member in group.members.values()]
    except (ProtocolError, UnsupportedVersion, InconsistentGroupProtocol):
        reason = "the embedded consumer protocol is malformed."
        raise GroupIdNotFound(f"{_CANNOT_UPGRADE.format(group.group_id)} because {reason}") from None
    records: list[Record] = [MemberRecord(member_id, metadata) for member_id, metadata, _ in members]
    records.append(EpochRecord(group.generation))
    records += [TargetRecord(member_id, target) for member_id, _, target in members]
    records.append(TargetEpochRecord(group.generation, _LONG_AGO))
    epoch = group.generation
    for member_id, _, target in members:
        assigned = {topic_id: dict.fromkeys(partitions, epoch) for topic_id, partitions in target.items()}
        current = CurrentAssignment(epoch=epoch, previous_epoch=epoch, assigned=assigned)
        records.append(CurrentRecord(member_id, current))
    return records


def _as_consumer(group: ClassicGroup, member: Member, topics: Topics) -> tuple[str, MemberMetadata, Target]:
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
    if user_data:  # the server-side assignors would drop what a custom assignor keeps there
        raise GroupIdNotFound(
            f"{_CANNOT_UPGRADE.format(group.group_id)} because an unsupported custom assignor is in use. Please refer "
            "to the documentation or switch to a default assignor before re-attempting the upgrade."
        )
    return member.member_id, metadata, target


def may_downgrade(group: ConsumerGroup, gone: Collection[str], policy: str, max_size: int) -> bool:
    """Whether only classic members are left when some go, and the group may be a classic one then."""
    left = [member for member_id, member in group.members.items() if member_id not in gone]
    if not left or any(member.metadata.classic is None for member in left):
        return False
    return policy in ("bidirectional", "downgrade") and len(left) <= max_size


def downgrade(group: ConsumerGroup, gone: Collection[str], topics: Topics) -> tuple[list[Record], GroupSnapshot]:
    """The tombstones of a consumer group, and the classic group that stands in its place without those that go."""
    records: list[Record] = []
    for member_id in group.members:
        records += [CurrentRecord(member_id, None), TargetRecord(member_id, None), MemberRecord(member_id, None)]
    records += [RegexRecord(regex, None) for regex in group.regexes]
    records += [TargetEpochRecord(None), EpochRecord(None)]
    left = [member for member_id, member in group.members.items() if member_id not in gone]
    name = _common_protocol(left)
    snapshot = GroupSnapshot(
        protocol_type=CONSUMER,
        generation=group.epoch,
        protocol_name=name,
        leader=left[0].member_id,
        members=tuple(_as_classic(group, member, name, topics) for member in left),
    )
    return records, snapshot


def _common_protocol(members: Iterable[ConsumerMember]) -> str:
    """The first protocol of the first member that all have; a member that has none in common could not join."""
    names = [[name for name, _ in member.metadata.classic.protocols] for member in members if member.metadata.classic]
    return next(name for name in names[0] if all(name in other for other in names))


def _as_classic(group: ConsumerGroup, member: ConsumerMember, name: str, topics: Topics) -> MemberSnapshot:
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


def give_protocols(classic: ClassicGroup, group: ConsumerGroup) -> None:
    """Tell a group that was made of a snapshot all the protocols of its members: the log keeps the chosen one only."""
    for member_id, member in classic.members.items():
        known = group.members[member_id].metadata.classic
        assert known is not None
        classic.set_protocols(member, tuple(Protocol(name, data) for name, data in known.protocols))
