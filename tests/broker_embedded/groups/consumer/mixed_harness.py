"""Harness for scenarios with classic members and members of KIP-848 in one group."""

from __future__ import annotations

from typing import Any

from pyclient.protocol import codec
from pyclient.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from pyclient.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from pyclient.protocol.messages.describe_groups import DescribeGroupsRequest
from pyclient.protocol.messages.heartbeat import HeartbeatRequest
from pyclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pyclient.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pyclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker_embedded.groups.consumer.harness import ConsumerHarness


class MixedHarness(ConsumerHarness):
    """Consumer harness with the requests of classic members; only their relevant fields are recorded."""

    def classic_join(self, client: str, member_id: str, *topics: str, owned: dict[str, list[int]] | None = None,
                     generation: int = -1, **more: Any) -> Any:  # fmt: skip
        """Send JoinGroup of a classic consumer that owns `owned`."""
        parts = [ConsumerProtocolSubscriptionTopicPartition(topic=t, partitions=p) for t, p in (owned or {}).items()]
        subscription = ConsumerProtocolSubscription(
            topics=list(topics or (self.topic,)), owned_partitions=parts, generation_id=generation
        )
        protocols = more.pop("protocols", ("range",))
        metadata = more.pop("metadata", codec.encode_versioned(subscription, 3))
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=more.pop("session", 30_000),
            rebalance_timeout_ms=more.pop("rebalance", 60_000),
            member_id=member_id,
            protocol_type=more.pop("protocol_type", "consumer"),
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name in protocols],
            **more,
        )
        answer = self._ask(client, request, 9)
        fields = [
            answer.error_code,
            answer.generation_id,
            answer.protocol_type,
            answer.protocol_name,
            answer.leader == "",
        ]
        self.record.append([f"{client}: classic join", [*fields, len(answer.members), answer.member_id == member_id]])
        return answer

    def classic_sync(
        self,
        client: str,
        member_id: str,
        generation: int,
        parts: dict[str, dict[str, list[int]]] | None = None,
        **more: Any,
    ) -> Any:
        """Send SyncGroup; `parts` is the leader's assignment."""
        assignments = [
            SyncGroupRequestAssignment(
                member_id=name,
                assignment=codec.encode_versioned(
                    ConsumerProtocolAssignment(
                        assigned_partitions=[
                            ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=partitions)
                            for topic, partitions in part.items()
                        ]
                    ),
                    3,
                ),
            )
            for name, part in (parts or {}).items()
        ]
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=generation,
            member_id=member_id,
            protocol_type=more.pop("protocol_type", "consumer"),
            protocol_name=more.pop("protocol_name", "range"),
            assignments=assignments,
            **more,
        )
        answer = self._ask(client, request, 5)
        data = bytes(answer.assignment)
        read = codec.decode_versioned(ConsumerProtocolAssignment, data).assigned_partitions if data else []
        held = dict(sorted((self.plain(part.topic), sorted(part.partitions)) for part in read))
        self.record.append(
            [f"{client}: classic sync", [answer.error_code, answer.protocol_type, answer.protocol_name, held]]
        )
        return answer

    def classic_beat(self, client: str, member_id: str, generation: int, **more: Any) -> Any:
        """Send Heartbeat of a classic consumer."""
        request = HeartbeatRequest(group_id=self.group, generation_id=generation, member_id=member_id, **more)
        answer = self._ask(client, request, 4)
        self.record.append([f"{client}: classic heartbeat at {generation}", answer.error_code])
        return answer

    def classic_leave(self, client: str, *members: tuple[str, str | None]) -> None:
        """Send LeaveGroup."""
        named = [MemberIdentity(member_id=member_id, group_instance_id=instance) for member_id, instance in members]
        answer = self._ask(client, LeaveGroupRequest(group_id=self.group, members=named), 5)
        self.record.append([f"{client}: classic leave", [answer.error_code, [m.error_code for m in answer.members]]])

    def classic_group(self, version: int = 6) -> None:
        """Record the state and the number of members (DescribeGroups)."""
        [group] = self._ask("admin", DescribeGroupsRequest(groups=[self.group]), version).groups
        fields = [group.error_code, group.group_state, group.protocol_type, group.protocol_data, len(group.members)]
        self.record.append(["classic group", fields])

    def members_by_kind(self) -> None:
        """Record the group and its members without generated ids."""
        [group] = (
            self.connection("admin")
            .ask(ConsumerGroupDescribeRequest(group_ids=[self.group], include_authorized_operations=False), 1)
            .groups
        )
        fields = [group.error_code, group.group_state, group.group_epoch, group.assignment_epoch]
        members = sorted(
            [
                each.member_type,
                each.client_id,
                each.instance_id,
                each.member_epoch,
                self.parts(each.assignment),
                self.parts(each.target_assignment),
            ]
            for each in group.members
        )
        self.record_answer("members by kind", [*fields, members])
