"""Requests of the classic protocol to consumer groups (KIP-848): JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyclient.broker_embedded.groups.consumer import classic_members
from pyclient.broker_embedded.groups.consumer.membership import known_static
from pyclient.broker_embedded.groups.events import JoinResult, LeaveResult, SyncResult
from pyclient.errors import (
    BrokerError,
    InconsistentGroupProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.groups.consumer.model import CurrentAssignment, Member, Record
    from pyclient.broker_embedded.groups.consumer.state import ConsumerGroup
    from pyclient.broker_embedded.groups.consumer_groups import ConsumerGroups
    from pyclient.broker_embedded.groups.coordinator_runtime import CoordinatorRuntime
    from pyclient.broker_embedded.groups.events import Heartbeat, Join, Leave, MemberIdentity, Sync
    from pyclient.broker_embedded.groups.registry import GroupEntry


_log = logging.getLogger(__name__)


class ClassicInConsumer:
    """Serves members of the classic protocol in consumer groups. No request is parked."""

    def __init__(self, consumers: ConsumerGroups, runtime: CoordinatorRuntime) -> None:
        self._consumers = consumers
        self._runtime = runtime

    def join(self, entry: GroupEntry, group: ConsumerGroup, event: Join) -> JoinResult:
        """Serve JoinGroup: advance the member's assignment, which it receives with SyncGroup."""
        try:
            return self._join(entry, group, event)
        except BrokerError as error:
            return JoinResult(error=error.code, member_id="")

    def _join(self, entry: GroupEntry, group: ConsumerGroup, event: Join) -> JoinResult:
        if self._runtime.group_config.group_consumer_migration_policy == "disabled":
            raise InconsistentGroupProtocol(f"group {group.group_id} accepts no members of the classic protocol")
        limits = self._consumers.limits(group.group_id)
        classic_members.check_protocols(group, event)
        if event.needs_known_id and not event.member_id and event.instance_id is None:
            return JoinResult(error=MemberIdRequired.code, member_id=event.fresh_id)
        records: list[Record] = []
        topics, now_ms = self._runtime.topics, self._runtime.clock.time_ms()
        member, current = classic_members.join(group, event, topics, limits, now_ms, records)
        replaced = group.static_member(event.instance_id or "")
        self._consumers.write(entry, group, records)
        group.topics_seen = topics.version
        if replaced is not None and replaced.metadata.classic is None and self._downgrade(entry, group):
            return _join_result(member, current, event)
        self._consumers.start_session(group, member.member_id, event.session_timeout_ms)
        group.rejoin_deadlines[member.member_id] = self._rejoin_deadline(member)
        return _join_result(member, current, event)

    def _downgrade(self, entry: GroupEntry, group: ConsumerGroup) -> bool:
        """Convert to a classic group, without a rebalance, after its last consumer member was replaced."""
        try:
            return self._consumers.downgrade(entry, group, removed=()) is not None
        except BrokerError as error:
            _log.warning("group %.200r: could not convert to a classic group: %s", group.group_id, error)
            return False

    def _rejoin_deadline(self, member: Member) -> float:
        return self._runtime.clock.monotonic() + member.metadata.rebalance_timeout_ms / 1000

    def sync(self, group: ConsumerGroup, event: Sync) -> SyncResult:
        """Serve SyncGroup with the member's current assignment."""
        try:
            member = classic_members.require_member(group, event.member_id, event.instance_id, event.generation)
            assignment = classic_members.synced(group, member, event, self._runtime.topics)
        except RebalanceInProgress as error:
            group.rejoin_deadlines.setdefault(event.member_id, self._rejoin_deadline(group.members[event.member_id]))
            return SyncResult(error=error.code)
        except BrokerError as error:
            return SyncResult(error=error.code)
        group.rejoin_deadlines.pop(event.member_id, None)
        self._restart_session(group, member)
        return SyncResult(protocol_type=event.protocol_type, protocol_name=event.protocol_name, assignment=assignment)

    def heartbeat(self, group: ConsumerGroup, event: Heartbeat) -> int:
        """Serve Heartbeat; return an error code: REBALANCE_IN_PROGRESS asks the member to rejoin."""
        try:
            member = classic_members.require_member(group, event.member_id, event.instance_id, event.generation)
        except BrokerError as error:
            return error.code
        self._restart_session(group, member)
        if not classic_members.must_rejoin(group, member):
            return 0
        group.rejoin_deadlines.setdefault(event.member_id, self._rejoin_deadline(member))
        return RebalanceInProgress.code

    def _restart_session(self, group: ConsumerGroup, member: Member) -> None:
        classic = member.metadata.classic
        assert classic is not None
        self._consumers.start_session(group, member.member_id, classic.session_timeout_ms)

    def leave(self, entry: GroupEntry, group: ConsumerGroup, event: Leave) -> LeaveResult:
        """Serve LeaveGroup for the named members of either protocol."""
        results: list[tuple[MemberIdentity, int]] = []
        removed: dict[str, Member] = {}
        for identity in event.members:
            try:
                member = _leaving_member(group, identity)
            except BrokerError as error:
                results.append((identity, error.code))
            else:
                removed[member.member_id] = member
                results.append((identity, 0))
        if removed:
            try:
                self._consumers.remove(entry, group, list(removed.values()))
            except BrokerError as error:
                return LeaveResult(error.code)
        return LeaveResult(members=tuple(results))


def _join_result(member: Member, current: CurrentAssignment, event: Join) -> JoinResult:
    return JoinResult(
        member_id=member.member_id,
        generation=current.epoch,
        protocol_type=classic_members.CONSUMER,
        protocol_name=event.protocols[0].name,
    )


def _leaving_member(group: ConsumerGroup, identity: MemberIdentity) -> Member:
    """Return the member that leaves; with an instance id only, the static member that an administrator removes."""
    member: Member | None
    if identity.instance_id is None:
        member = group.members.get(identity.member_id)
    elif identity.member_id:
        member = known_static(group, identity.instance_id, identity.member_id)
    else:
        member = group.static_member(identity.instance_id)
    if member is None:
        raise UnknownMemberId(f"group {group.group_id} has no member {identity}")
    return member
