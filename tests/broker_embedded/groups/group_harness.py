"""Clients of a group coordinator, one connection each, and the record of the answers they received."""

from __future__ import annotations

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
from tests.waiting import until

Record = list[list[Any]]
T = TypeVar("T", bound="GroupHarness")


class GroupHarness:
    """Runs a scenario on one cluster: clients with a connection each, and the record of their answers."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = bootstrap_servers
        self.clients: dict[str, RawConnection] = {}
        self.topic, self.other = f"t-{uuid.uuid4().hex}", f"u-{uuid.uuid4().hex}"
        self.group = f"g-{uuid.uuid4().hex}"
        self._names = Names(topic=self.topic, other=self.other, group=self.group)
        self.generation = 0
        self.record: Record = []

    def connection(self, client: str) -> RawConnection:
        if client not in self.clients:
            self.clients[client] = RawConnection(self._servers, client_id=client)
        return self.clients[client]

    def close(self) -> None:
        for connection in self.clients.values():
            connection.close()

    def note(self, label: str, answer: Any) -> Any:
        self.record.append([label, self._names.plain(answer)])
        return answer

    def prepare(self) -> None:
        """Create two topics and find the coordinator."""
        topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[])
                  for name in (self.topic, self.other)]  # fmt: skip
        admin = self.connection("admin")
        created = admin.ask(CreateTopicsRequest(topics=topics), 5)
        assert [topic.error_code for topic in created.topics] == [0, 0]
        wanted = [MetadataRequestTopic(name=name) for name in (self.topic, self.other)]
        while any(topic.error_code for topic in admin.ask(MetadataRequest(topics=wanted), 1).topics):
            pass  # a Kafka broker learns of them a little later
        while admin.ask(FindCoordinatorRequest(key=self.group), 1).error_code:
            pass  # Kafka creates __consumer_offsets first
        while admin.ask(OffsetFetchRequest(group_id=self.group, topics=None), 2).error_code:
            pass  # and then loads it

    def subscription(self, *topics: str) -> bytes:
        return codec.encode_versioned(ConsumerProtocolSubscription(topics=list(topics or (self.topic,))), 0)

    def join(
        self,
        client: str,
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
        self.connection(client).send(request, version)
        return self.answer(client, f"join v{version}") if wait else None

    def answer(self, client: str, label: str) -> Any:
        return self.note(f"{client}: {label}", self.connection(client).receive())

    def sync(
        self, client: str, member_id: str, generation: int, version: int = 3, *, wait: bool = True, **more: Any
    ) -> Any:
        parts = more.pop("parts", {})
        request = SyncGroupRequest(
            group_id=more.pop("group_id", self.group),
            generation_id=generation,
            member_id=member_id,
            assignments=[SyncGroupRequestAssignment(member_id=name, assignment=part) for name, part in parts.items()],
            **more,
        )
        self.connection(client).send(request, version)
        return self.answer(client, f"sync v{version}") if wait else None

    def ask(self, client: str, label: str, request: Any, version: int) -> Any:
        return self.note(f"{client}: {label} v{version}", self.connection(client).ask(request, version))

    def heartbeat(self, client: str, member_id: str, generation: int, version: int = 3, **more: Any) -> Any:
        group_id = more.pop("group_id", self.group)
        request = HeartbeatRequest(group_id=group_id, generation_id=generation, member_id=member_id, **more)
        return self.ask(client, "heartbeat", request, version)

    def leave(self, client: str, *members: tuple[str, str | None], version: int = 3) -> Any:
        identities = [MemberIdentity(member_id=member_id, group_instance_id=name) for member_id, name in members]
        return self.ask(client, "leave", LeaveGroupRequest(group_id=self.group, members=identities), version)

    def leave_alone(self, client: str, member_id: str, version: int = 1) -> Any:
        return self.ask(client, "leave", LeaveGroupRequest(group_id=self.group, member_id=member_id), version)

    def commit(self, client: str, version: int = 7, *, metadata: str | None = "note", **more: Any) -> Any:
        position = {"committed_offset": 5, "committed_metadata": metadata}
        if version >= 6:
            position["committed_leader_epoch"] = 0
        partitions = [OffsetCommitRequestPartition(partition_index=index, **position) for index in (0, 7)]
        topics = [
            OffsetCommitRequestTopic(name=name, partitions=partitions) for name in (self.topic, self.other, "missing")
        ]
        request = OffsetCommitRequest(group_id=more.pop("group_id", self.group), topics=topics, **more)
        return self.ask(client, "commit", request, version)

    def fetch(self, client: str, version: int = 7, *, every: bool = False, group_id: str | None = None) -> Any:
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
        return self.ask(client, "fetch", request, version)

    def describe(self, client: str = "admin", version: int = 4, **more: Any) -> Any:
        return self.ask(client, "describe", DescribeGroupsRequest(groups=[self.group], **more), version)

    def list(self, client: str) -> Any:
        """Send ListGroups in every version, this scenario's group only."""
        for version in range(5):
            for states in ((), ("Stable",), ("empty", "dead")) if version == 4 else ((),):
                answer = self.connection(client).ask(ListGroupsRequest(states_filter=[*states]), version)
                answer.groups = [group for group in answer.groups if group.group_id == self.group]
                self.note(f"{client}: list v{version} {states}", answer)

    def offset_delete(self, client: str) -> Any:
        partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in (0, 1, 7)]
        topics = [OffsetDeleteRequestTopic(name=name, partitions=partitions) for name in (self.topic, self.other)]
        topics.append(OffsetDeleteRequestTopic(name="missing", partitions=partitions))
        return self.ask(client, "offset delete", OffsetDeleteRequest(group_id=self.group, topics=topics), 0)

    def wait_for(self, state: str, members: int) -> None:
        """Wait until the group is in that state with so many members; the requests are not recorded."""
        admin = self.connection("admin")

        def described() -> Any:
            return admin.ask(DescribeGroupsRequest(groups=[self.group]), 4).groups[0]

        until(lambda: (group := described()).group_state == state and len(group.members) == members, described)

    def stable(self, *clients: str, **names: str) -> dict[str, str]:
        """Join the clients one after the other; return the member ids of the stable group. `names` are instance ids."""
        ids: dict[str, str] = {}
        for client in clients:
            self.join(client, "", 5 if client in names else 3, wait=False, **_static(names.get(client)))
            if ids:
                self.wait_for("PreparingRebalance", len(ids) + 1)
            for other, member_id in ids.items():
                self.join(other, member_id, 5 if other in names else 3, wait=False, **_static(names.get(other)))
            joined = {other: self.answer(other, "join") for other in (*ids, client)}
            ids[client] = joined[client].member_id
            self.generation = joined[client].generation_id
            self.share(ids, joined[client].leader)
        return ids

    def share(self, ids: dict[str, str], leader: str) -> None:
        """Sync all members, the leader last."""
        clients = sorted(ids, key=lambda client: ids[client] == leader)
        for client in clients:
            parts = {member_id: f"part of {name}".encode() for name, member_id in ids.items()}
            self.sync(client, ids[client], self.generation, wait=False, parts=parts if ids[client] == leader else {})
        for client in clients:
            self.answer(client, "sync")


def _static(name: str | None) -> dict[str, str]:
    return {} if name is None else {"group_instance_id": name}


def run_scenario(harness: T, scenario: Callable[[T], None]) -> Record:
    """Return the answers that the clients received in a scenario, in order."""
    try:
        harness.prepare()
        scenario(harness)
    finally:
        harness.close()
    return harness.record
