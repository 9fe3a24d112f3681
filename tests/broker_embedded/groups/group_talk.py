"""People who talk to a group coordinator, one connection each, and the record of what they were told."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

from pyclient.protocol import codec
from pyclient.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from pyclient.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pyclient.protocol.messages.describe_groups import DescribeGroupsRequest
from pyclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from pyclient.protocol.messages.heartbeat import HeartbeatRequest
from pyclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pyclient.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pyclient.protocol.messages.list_groups import ListGroupsRequest
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pyclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyclient.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from pyclient.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from pyclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker_embedded.groups.raw import Names, RawConnection

Record = list[list[Any]]
T = TypeVar("T", bound="Talk")


class Talk:
    """A scene on one cluster: people with a connection each, and the record of what they were told."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = bootstrap_servers
        self._people: dict[str, RawConnection] = {}
        self.topic, self.other = f"t-{uuid.uuid4().hex}", f"u-{uuid.uuid4().hex}"
        self.group = f"g-{uuid.uuid4().hex}"
        self._names = Names(topic=self.topic, other=self.other, group=self.group)
        self.generation = 0
        self.record: Record = []

    def connection(self, who: str) -> RawConnection:
        if who not in self._people:
            self._people[who] = RawConnection(self._servers, client_id=who)
        return self._people[who]

    def close(self) -> None:
        for connection in self._people.values():
            connection.close()

    def note(self, label: str, answer: Any) -> Any:
        self.record.append([label, self._names.plain(answer)])
        return answer

    def prepare(self) -> None:
        """Two topics, and the coordinator found."""
        topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[])
                  for name in (self.topic, self.other)]  # fmt: skip
        admin = self.connection("admin")
        created = admin.ask(CreateTopicsRequest(topics=topics), 5)
        assert [topic.error_code for topic in created.topics] == [0, 0]
        wanted = [MetadataRequestTopic(name=name) for name in (self.topic, self.other)]
        while any(topic.error_code for topic in admin.ask(MetadataRequest(topics=wanted), 1).topics):
            pass  # a real broker hears of them a little later
        while admin.ask(FindCoordinatorRequest(key=self.group), 1).error_code:
            pass  # a real Kafka makes __consumer_offsets first
        while admin.ask(OffsetFetchRequest(group_id=self.group, topics=None), 2).error_code:
            pass  # and then reads it

    def subscription(self, *topics: str) -> bytes:
        return codec.encode_versioned(ConsumerProtocolSubscription(topics=list(topics or (self.topic,))), 0)

    def join(
        self,
        who: str,
        member_id: str = "",
        version: int = 3,
        *protocols: str,
        wait: bool = True,
        metadata: bytes | None = None,
        session: int = 30_000,
        **more: Any,
    ) -> Any:
        chosen = self.subscription() if metadata is None else metadata
        request = JoinGroupRequest(
            group_id=more.pop("group_id", self.group),
            session_timeout_ms=session,
            rebalance_timeout_ms=-1 if version == 0 else 60_000,
            member_id=member_id,
            protocol_type=more.pop("protocol_type", "consumer"),
            protocols=[JoinGroupRequestProtocol(name=name, metadata=chosen) for name in protocols or ("range",)],
            **more,
        )
        self.connection(who).send(request, version)
        return self.answer(who, f"join v{version}") if wait else None

    def answer(self, who: str, label: str) -> Any:
        return self.note(f"{who}: {label}", self.connection(who).receive())

    def sync(
        self, who: str, member_id: str, generation: int, version: int = 3, *, wait: bool = True, **more: Any
    ) -> Any:
        parts = more.pop("parts", {})
        request = SyncGroupRequest(
            group_id=more.pop("group_id", self.group),
            generation_id=generation,
            member_id=member_id,
            assignments=[SyncGroupRequestAssignment(member_id=name, assignment=part) for name, part in parts.items()],
            **more,
        )
        self.connection(who).send(request, version)
        return self.answer(who, f"sync v{version}") if wait else None

    def ask(self, who: str, label: str, request: Any, version: int) -> Any:
        return self.note(f"{who}: {label} v{version}", self.connection(who).ask(request, version))

    def heartbeat(self, who: str, member_id: str, generation: int, version: int = 3, **more: Any) -> Any:
        group_id = more.pop("group_id", self.group)
        request = HeartbeatRequest(group_id=group_id, generation_id=generation, member_id=member_id, **more)
        return self.ask(who, "heartbeat", request, version)

    def leave(self, who: str, *members: tuple[str, str | None], version: int = 3) -> Any:
        identities = [MemberIdentity(member_id=member_id, group_instance_id=name) for member_id, name in members]
        return self.ask(who, "leave", LeaveGroupRequest(group_id=self.group, members=identities), version)

    def leave_alone(self, who: str, member_id: str, version: int = 1) -> Any:
        return self.ask(who, "leave", LeaveGroupRequest(group_id=self.group, member_id=member_id), version)

    def commit(self, who: str, version: int = 7, *, metadata: str | None = "note", **more: Any) -> Any:
        position = {"committed_offset": 5, "committed_metadata": metadata}
        if version >= 6:
            position["committed_leader_epoch"] = 0
        partitions = [OffsetCommitRequestPartition(partition_index=index, **position) for index in (0, 7)]
        topics = [
            OffsetCommitRequestTopic(name=name, partitions=partitions) for name in (self.topic, self.other, "missing")
        ]
        request = OffsetCommitRequest(group_id=more.pop("group_id", self.group), topics=topics, **more)
        return self.ask(who, "commit", request, version)

    def fetch(self, who: str, version: int = 7, *, every: bool = False, group_id: str | None = None) -> Any:
        group_id = self.group if group_id is None else group_id
        wanted = {self.topic: [0, 1], "missing": [0]}
        if version >= 8:
            topics = (
                None if every else [OffsetFetchRequestTopics(name=n, partition_indexes=p) for n, p in wanted.items()]
            )
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics)])
        else:
            old = None if every else [OffsetFetchRequestTopic(name=n, partition_indexes=p) for n, p in wanted.items()]
            request = OffsetFetchRequest(group_id=group_id, topics=old)
        return self.ask(who, "fetch", request, version)

    def describe(self, who: str = "admin", version: int = 4, **more: Any) -> Any:
        return self.ask(who, "describe", DescribeGroupsRequest(groups=[self.group], **more), version)

    def list(self, who: str) -> Any:
        """ListGroups in every version, this scene's group only."""
        for version in range(5):
            for states in ((), ("Stable",), ("empty", "dead")) if version == 4 else ((),):
                answer = self.connection(who).ask(ListGroupsRequest(states_filter=[*states]), version)
                answer.groups = [group for group in answer.groups if group.group_id == self.group]
                self.note(f"{who}: list v{version} {states}", answer)

    def offset_delete(self, who: str) -> Any:
        partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in (0, 1, 7)]
        topics = [OffsetDeleteRequestTopic(name=name, partitions=partitions) for name in (self.topic, self.other)]
        topics.append(OffsetDeleteRequestTopic(name="missing", partitions=partitions))
        return self.ask(who, "offset delete", OffsetDeleteRequest(group_id=self.group, topics=topics), 0)

    def wait_for(self, state: str, members: int) -> None:
        """Until the group is in that state with so many members; how often one has to ask is not noted."""
        admin = self.connection("admin")
        deadline = time.monotonic() + 60
        while True:
            group = admin.ask(DescribeGroupsRequest(groups=[self.group]), 4).groups[0]
            if (group.group_state, len(group.members)) == (state, members):
                return
            assert time.monotonic() < deadline, f"the group is {group.group_state} with {len(group.members)} members"

    def stable(self, *people: str, **names: str) -> dict[str, str]:
        """Everybody in, one after the other, and a stable group; the member ids. `names` are group.instance.ids."""
        ids: dict[str, str] = {}
        for who in people:
            self.join(who, "", 5 if who in names else 3, wait=False, **_static(names.get(who)))
            if ids:
                self.wait_for("PreparingRebalance", len(ids) + 1)
            for other, member_id in ids.items():
                self.join(other, member_id, 5 if other in names else 3, wait=False, **_static(names.get(other)))
            joined = {other: self.answer(other, "join") for other in (*ids, who)}
            ids[who] = joined[who].member_id
            self.generation = joined[who].generation_id
            self.share(ids, joined[who].leader)
        return ids

    def share(self, ids: dict[str, str], leader: str) -> None:
        """Everybody asks for their part of the assignment, the leader last."""
        people = sorted(ids, key=lambda who: ids[who] == leader)
        for who in people:
            parts = {member_id: f"part of {name}".encode() for name, member_id in ids.items()}
            self.sync(who, ids[who], self.generation, wait=False, parts=parts if ids[who] == leader else {})
        for who in people:
            self.answer(who, "sync")


def _static(name: str | None) -> dict[str, str]:
    return {} if name is None else {"group_instance_id": name}


def told(talk: T, scene: Callable[[T], None]) -> Record:
    """What everybody was told in a scene, in order."""
    try:
        talk.prepare()
        scene(talk)
    finally:
        talk.close()
    return talk.record
