"""Harness for scenarios with members of a consumer group (KIP-848): requests and answers as plain values."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pyclient.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from pyclient.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from pyclient.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from pyclient.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pyclient.protocol.messages.delete_groups import DeleteGroupsRequest
from pyclient.protocol.messages.list_groups import ListGroupsRequest
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pyclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyclient.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.broker_embedded.groups.group_harness import GroupHarness
from tests.waiting import until


class ConsumerHarness(GroupHarness):
    """Harness with `topic` of 4 partitions and `other` of 2. Members are named by their ids."""

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(bootstrap_servers)
        self.ids: dict[UUID, str] = {}
        self.held: dict[str, dict[str, list[int]]] = {}

    def prepare(self) -> None:
        super().prepare()
        self.grow(self.topic, 4)
        self.learn({self.topic: 4, self.other: 2})

    def learn(self, sizes: dict[str, int]) -> None:
        """Wait until the coordinator, which learns of them last, knows the topics with so many partitions."""
        everything = {self.id_of(topic): list(range(partitions)) for topic, partitions in sizes.items()}
        probe = "probe-" + self.group

        def knows() -> bool:
            answer = self.enter("probe", *sizes, group_id=probe, quiet=True)
            assert answer.error_code == 0, answer.error_message
            return everything == {part.topic_id: sorted(part.partitions) for part in answer.assignment.topic_partitions}

        until(knows)
        self.beat("probe", -1, group_id=probe, quiet=True)

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions and wait until the broker has them."""
        wanted = CreatePartitionsTopic(name=topic, count=partitions, assignments=None)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=10_000, validate_only=False)
        assert self.connection("admin").ask(request, 2).results[0].error_code == 0
        until(lambda: len(self._metadata(topic).partitions) == partitions)

    def create(self, topic: str, partitions: int = 1) -> None:
        """Create a topic and wait until the broker has it."""
        new = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
        assert self.connection("admin").ask(CreateTopicsRequest(topics=[new]), 5).topics[0].error_code == 0
        until(lambda: self._metadata(topic).error_code == 0)

    def _metadata(self, topic: str) -> Any:
        answer = self.connection("admin").ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 10)
        self.ids[answer.topics[0].topic_id] = topic
        return answer.topics[0]

    def id_of(self, topic: str) -> UUID:
        """Return the topic's id."""
        self._metadata(topic)
        return next(topic_id for topic_id, name in self.ids.items() if name == topic)

    def plain(self, value: Any) -> Any:
        """Return the value as JSON values, with random names replaced by fixed ones."""
        if isinstance(value, str):
            known = {self.topic: "<topic>", self.topic[:-1]: "<topic->", self.other: "<other>", self.group: "<group>"}
            for name, same in known.items():
                value = value.replace(name, same)
            return value
        if isinstance(value, UUID):
            return self.plain(self.ids.get(value, "a topic id"))
        if isinstance(value, (list, tuple)):
            return [self.plain(item) for item in value]
        if isinstance(value, dict):
            return {self.plain(name): self.plain(item) for name, item in value.items()}
        if hasattr(value, "__slots__"):
            return {name: self.plain(getattr(value, name)) for name in value.__slots__ if name != "throttle_time_ms"}
        return value

    def record_answer(self, label: str, answer: Any) -> Any:
        """Append an answer to the record."""
        self.record.append([label, self.plain(answer)])
        return answer

    def parts(self, assignment: Any) -> dict[str, list[int]] | None:
        """Return an assignment as {topic: partitions}."""
        if assignment is None:
            return None
        return dict(
            sorted((self.plain(part.topic_id), sorted(part.partitions)) for part in assignment.topic_partitions)
        )

    def beat(
        self,
        member: str,
        epoch: int,
        *,
        version: int = 1,
        owns: dict[str, list[int]] | None = None,
        quiet: bool = False,
        says: bool = True,
        **more: Any,
    ) -> Any:
        """Send a heartbeat of `member` on its own connection; `quiet` leaves the answer out of the record, and
        `says=False` the error message."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=more.pop("group_id", self.group),
            member_id=more.pop("member_id", member),
            member_epoch=epoch,
            topic_partitions=None
            if owns is None
            else [
                ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=self.id_of(topic), partitions=partitions)
                for topic, partitions in owns.items()
            ],
            **more,
        )
        answer = self.connection(member).ask(request, version)
        if answer.assignment is not None:
            self.held[member] = {
                self.ids[part.topic_id]: sorted(part.partitions) for part in answer.assignment.topic_partitions
            }
        if not quiet:
            fields = {
                "error": answer.error_code,
                "says": self.plain(answer.error_message) if says else None,
                "member": "generated" if answer.member_id not in (None, "", member) else answer.member_id,
                "epoch": answer.member_epoch,
                "interval": answer.heartbeat_interval_ms,
                "assignment": self.parts(answer.assignment),
            }
            self.record.append([f"{member}: epoch {epoch}", fields])
        return answer

    def enter(self, member: str, *topics: str, **more: Any) -> Any:
        """Send the first heartbeat, with all fields."""
        more.setdefault("subscribed_topic_names", list(topics or (self.topic,)))
        more.setdefault("rebalance_timeout_ms", 60_000)
        more.setdefault("owns", {})
        return self.beat(member, 0, **more)

    def group_is(self, version: int = 1, group_id: str | None = None, **more: Any) -> Any:
        """Describe the group (ConsumerGroupDescribe) into the record."""
        request = ConsumerGroupDescribeRequest(
            group_ids=[group_id or self.group],
            include_authorized_operations=more.pop("include_authorized_operations", False),
        )
        [group] = self.connection("admin").ask(request, version).groups
        group.members.sort(key=lambda member: member.instance_id or member.member_id)
        for member in group.members:
            for assignment in (member.assignment, member.target_assignment):
                for part in assignment.topic_partitions:
                    part.partitions.sort()
                assignment.topic_partitions.sort(key=lambda part: part.topic_name)
            member.subscribed_topic_names.sort()
            if member.member_id not in self.clients:
                member.member_id = "generated"
        return self.record_answer(f"group v{version}", group)

    def list_types(self) -> None:
        """Send ListGroups 5 with filters by type and state."""
        for types, states in (
            ((), ()),
            (("consumer",), ()),
            (("CLASSIC",), ()),
            ((), ("stable",)),
            (("consumer",), ("Empty",)),
        ):
            request = ListGroupsRequest(types_filter=list(types), states_filter=list(states))
            answer = self.connection("admin").ask(request, 5)
            answer.groups = [group for group in answer.groups if group.group_id == self.group]
            self.record_answer(f"list {types} {states}", answer)

    def commit_as(
        self, member: str, epoch: int, *, version: int = 9, topic: str | None = None, partition: int = 0, **more: Any
    ) -> Any:
        """Commit one partition; `label` names a member whose id the broker generated."""
        name = topic or self.topic
        label = more.pop("label", member)
        part = OffsetCommitRequestPartition(partition_index=partition, committed_offset=7, committed_metadata="note")
        wanted = (
            OffsetCommitRequestTopic(topic_id=more.pop("topic_id", None) or self.id_of(name), partitions=[part])
            if version >= 10
            else OffsetCommitRequestTopic(name=name, partitions=[part])
        )
        request = OffsetCommitRequest(
            group_id=more.pop("group_id", self.group),
            generation_id_or_member_epoch=epoch,
            member_id=member,
            topics=[wanted],
            **more,
        )
        return self.record_answer(
            f"{label or 'no member'}: commit v{version} at {epoch}", self._ask(label, request, version)
        )

    def fetch_as(
        self, member: str | None, epoch: int, *, version: int = 9, every: bool = False, ids: list[UUID] | None = None
    ) -> Any:
        """Fetch the offsets of the group."""
        topics: list[OffsetFetchRequestTopics] | None
        if version >= 10:
            topics = [
                OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0, 9])
                for topic_id in ids or [self.id_of(self.topic)]
            ]
        else:
            topics = [OffsetFetchRequestTopics(name=name, partition_indexes=[0, 9]) for name in (self.topic, "missing")]
        group = OffsetFetchRequestGroup(
            group_id=self.group, member_id=member, member_epoch=epoch, topics=None if every else topics
        )
        answer = self._ask(member or "", OffsetFetchRequest(groups=[group]), version)
        for found in answer.groups:
            found.topics.sort(key=lambda topic: (topic.name, str(self.plain(topic.topic_id))))
        return self.record_answer(f"{member or 'no member'}: fetch v{version} at {epoch}", answer)

    def _ask(self, member: str, request: Any, version: int) -> Any:
        return self.connection(member or "no member").ask(request, version)

    def delete(self) -> Any:
        """Delete the scenario's group."""
        answer = self.connection("admin").ask(DeleteGroupsRequest(groups_names=[self.group]), 2)
        return self.record_answer("delete", answer)

    def described(self, member: str) -> Any:
        [group] = (
            self.connection("admin")
            .ask(ConsumerGroupDescribeRequest(group_ids=[self.group], include_authorized_operations=False), 1)
            .groups
        )
        return group, next(found for found in group.members if found.member_id == member)

    def epoch(self, member: str) -> int:
        """Return the member's epoch."""
        return int(self.described(member)[1].member_epoch)

    def epoch_of_group(self) -> int:
        """Return the group's epoch."""
        request = ConsumerGroupDescribeRequest(group_ids=[self.group], include_authorized_operations=False)
        return int(self.connection("admin").ask(request, 1).groups[0].group_epoch)

    def settled(self, member: str) -> bool:
        """Send heartbeats with the owned partitions; return True if the group is stable after two in a row."""
        for _ in range(2):
            self.beat(member, self.epoch(member), owns=self.held[member], quiet=True)
            group, found = self.described(member)
            if group.group_state != "Stable" or self.parts(found.assignment) != self.parts(found.target_assignment):
                return False
        return True

    def reads(self, member: str, *topics: str) -> None:
        """Wait until the member is reconciled with these topics, then record the members."""
        until(lambda: self.settled(member) and self.held[member].keys() == set(topics))
        self._members_are()

    def _members_are(self) -> None:
        """Record the members' partitions without epochs: the number of epochs to resolve a pattern varies."""
        [group] = (
            self.connection("admin")
            .ask(ConsumerGroupDescribeRequest(group_ids=[self.group], include_authorized_operations=False), 1)
            .groups
        )
        fields = [
            [
                member.member_id,
                member.subscribed_topic_names,
                member.subscribed_topic_regex,
                self.held[member.member_id],
            ]
            for member in group.members
        ]
        self.record_answer("members", fields)
