"""What clients say to a group coordinator, scene by scene: a real Kafka and ours must answer alike.

`kafka_answers.json` has what an Apache Kafka 4.3.1 answered; `make test-kafka` checks that it still does, and with
PYCLIENT_RECORD=1 writes the file anew.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyclient.protocol import codec
from pyclient.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from pyclient.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pyclient.protocol.messages.delete_groups import DeleteGroupsRequest
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
ANSWERS = Path(__file__).with_name("kafka_answers.json")


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


def strangers(talk: Talk) -> None:
    for version in range(5):
        talk.heartbeat("a", "who", 1, version)
        talk.heartbeat("a", "", -1, version, group_id="")
    for version in range(6):
        talk.sync("a", "who", 1, version)
        talk.sync("a", "", 1, version, group_id="")
    for version in range(10):
        talk.join("a", "who", version)
        talk.join("a", "", version, group_id="")
    for version in range(3):
        talk.leave_alone("a", "who", version)
    for version in range(3, 6):
        talk.leave("a", ("who", None), ("", "static"), ("both", "static"), ("", None), version=version)
    for version in range(6):
        talk.describe("a", version)
    talk.describe("a", 5, include_authorized_operations=True)
    for version in range(3):
        talk.ask("a", "delete", DeleteGroupsRequest(groups_names=[talk.group, ""]), version)
    talk.offset_delete("a")


def bad_joins(talk: Talk) -> None:
    for session in (5_999, 6_000, 1_800_000, 1_800_001, -1, 0):
        talk.join("a", "", 4, session=session)
    talk.join("a", "", 5, protocol_type="")
    talk.join("b", "", 5, protocol_type="", metadata=b"")
    ids = talk.stable("a")
    talk.join("b", "", 5, "other")
    talk.join("b", "", 5, protocol_type="connect")
    talk.join("b", "", 5, protocol_type="")
    talk.join("a", ids["a"], 5, "other", "range", protocol_type="connect")
    talk.sync("a", ids["a"], 1, 5, protocol_type="connect", protocol_name="range")
    talk.sync("a", ids["a"], 1, 5, protocol_type="consumer", protocol_name="other")
    talk.sync("a", ids["a"], 1, 5, protocol_type="consumer", protocol_name="range")
    talk.sync("a", ids["a"], 2, 5)


def one_member(talk: Talk) -> None:
    """Every version of a member's life, alone."""
    for version in range(10):
        joined = talk.join("a", "", version)
        if version >= 4:
            joined = talk.join("a", joined.member_id, version)
        talk.describe()
        talk.heartbeat("a", joined.member_id, joined.generation_id, min(version, 4))
        talk.join("a", joined.member_id, version)
        talk.commit("a", generation_id_or_member_epoch=joined.generation_id, member_id=joined.member_id)
        sync = min(version, 5)
        named = {"protocol_type": "consumer", "protocol_name": "range"} if sync == 5 else {}
        parts = {joined.member_id: b"everything"}
        talk.sync("a", joined.member_id, joined.generation_id, sync, parts=parts, **named)
        talk.describe(version=min(version, 5))
        talk.sync("a", joined.member_id, joined.generation_id, sync)
        talk.sync("a", joined.member_id, joined.generation_id, sync, **named)
        talk.heartbeat("a", joined.member_id, joined.generation_id + 1, min(version, 4))
        talk.commit("a", generation_id_or_member_epoch=joined.generation_id, member_id=joined.member_id)
        if version < 3:
            talk.leave_alone("a", joined.member_id, version)
        else:
            talk.leave("a", (joined.member_id, None), version=min(version, 5))
        talk.describe()
        talk.heartbeat("a", joined.member_id, joined.generation_id)
        talk.commit("a", generation_id_or_member_epoch=joined.generation_id, member_id=joined.member_id)
    talk.ask("a", "delete", DeleteGroupsRequest(groups_names=[talk.group]), 2)
    talk.fetch("a", every=True)


def rebalances(talk: Talk) -> None:
    ids = talk.stable("a", "b")
    talk.join("b", ids["b"])
    talk.join("b", ids["b"], 3, metadata=talk.subscription(talk.other), wait=False)
    talk.wait_for("PreparingRebalance", 2)
    talk.describe()
    talk.heartbeat("a", ids["a"], talk.generation)
    talk.sync("a", ids["a"], talk.generation)
    talk.commit("a", generation_id_or_member_epoch=talk.generation, member_id=ids["a"])
    talk.commit("a")
    joined = talk.join("a", ids["a"])
    talk.answer("b", "join")
    talk.generation = joined.generation_id
    talk.describe()
    talk.join("b", ids["b"], 3, metadata=talk.subscription(talk.other))
    talk.heartbeat("b", ids["b"], talk.generation)
    talk.heartbeat("b", ids["b"], talk.generation - 1)
    talk.commit("b", generation_id_or_member_epoch=talk.generation, member_id=ids["b"])
    talk.sync("b", ids["b"], talk.generation, wait=False)
    talk.join("c", "", 3, wait=False)
    talk.answer("b", "sync")
    talk.wait_for("PreparingRebalance", 3)
    talk.join("a", ids["a"], wait=False)
    talk.join("b", ids["b"], wait=False)
    joined = {who: talk.answer(who, "join") for who in "abc"}
    ids["c"], talk.generation = joined["c"].member_id, joined["a"].generation_id
    talk.share(ids, joined["a"].leader)
    talk.leave("a", (ids["a"], None), ("who", None), (ids["b"], None))
    talk.heartbeat("c", ids["c"], talk.generation)
    joined = talk.join("c", ids["c"])
    talk.sync("c", ids["c"], joined.generation_id)
    talk.join("c", ids["c"])


def votes(talk: Talk) -> None:
    first = talk.join("a", "", 3, "sticky", "range", "mine")
    talk.join("b", "", 3, "range", "sticky", wait=False)
    talk.wait_for("PreparingRebalance", 2)
    talk.join("c", "", 3, "range", "sticky", wait=False)
    talk.wait_for("PreparingRebalance", 3)
    talk.join("a", first.member_id, 3, "sticky", "range", "mine", wait=False)
    for who in "abc":
        talk.answer(who, "join")


def known_ids(talk: Talk) -> None:
    given = talk.join("a", "", 4)
    talk.heartbeat("a", given.member_id, -1)
    talk.heartbeat("a", given.member_id, 0)
    talk.sync("a", given.member_id, 0)
    talk.commit("a", member_id=given.member_id)
    joined = talk.join("a", given.member_id, 9)
    talk.sync("a", joined.member_id, joined.generation_id, 4, parts={joined.member_id: b"x"})
    second = talk.join("b", "", 9)
    talk.leave("b", (second.member_id, "static"))
    talk.leave("b", (second.member_id, None))
    talk.join("b", second.member_id, 9)


def static_members(talk: Talk) -> None:
    ids = talk.stable("a", "b", a="one", b="two")
    old = ids["b"]
    for version in (5, 6, 7, 8, 9):
        talk.join("b", "", version, group_instance_id="two")
        joined = talk.join("b", "", version, metadata=talk.subscription(talk.other), group_instance_id="two")
        talk.sync("b", joined.member_id, talk.generation, 3, group_instance_id="two")
        talk.describe()
    ids["b"] = joined.member_id
    talk.heartbeat("b", old, talk.generation, group_instance_id="two")
    talk.heartbeat("b", old, talk.generation)
    talk.heartbeat("b", ids["b"], talk.generation, group_instance_id="three")
    talk.heartbeat("b", ids["b"], talk.generation, group_instance_id="two")
    talk.sync("b", old, talk.generation, 3, group_instance_id="two")
    talk.join("b", old, 5, group_instance_id="two")
    talk.join("b", ids["b"], 5, group_instance_id="three")
    talk.commit("b", generation_id_or_member_epoch=talk.generation, member_id=old, group_instance_id="two")
    talk.commit("b", generation_id_or_member_epoch=talk.generation, member_id=ids["b"], group_instance_id="two")
    talk.leave("b", (old, "two"), (ids["b"], "three"))
    for version in (8, 9):
        joined = talk.join("a", "", version, group_instance_id="one")
        talk.sync("a", joined.member_id, talk.generation, 4, group_instance_id="one")
    ids["a"] = joined.member_id
    talk.join("b", "", 9, "sticky", group_instance_id="two")
    talk.join("b", "", 9, "range", "sticky", metadata=b"x", group_instance_id="two")
    talk.leave("admin", ("", "two"), ("", "nobody"))
    talk.heartbeat("a", ids["a"], talk.generation, group_instance_id="one")
    joined = talk.join("a", ids["a"], 9, group_instance_id="one")
    talk.join("a", "", 9, group_instance_id="one")
    talk.describe()


def static_change_of_protocol(talk: Talk) -> None:
    first = talk.join("a", "", 5, "range", "sticky", group_instance_id="one")
    talk.sync("a", first.member_id, 1, group_instance_id="one")
    second = talk.join("a", "", 9, "sticky", group_instance_id="one")
    talk.sync("a", second.member_id, 2, group_instance_id="one")
    talk.describe()
    talk.heartbeat("a", first.member_id, 2, group_instance_id="one")


def offsets(talk: Talk) -> None:
    for version in range(1, 10):
        talk.fetch("a", version)
        if version >= 2:
            talk.fetch("a", version, every=True)
    for version in range(2, 10):
        talk.commit("a", version)
        talk.commit("a", version, group_id=f"{talk.group}-other", generation_id_or_member_epoch=0, member_id="who")
        talk.commit("a", version, metadata=None, member_id="whoever")
        talk.commit("a", version, metadata="x" * 4097)
        talk.fetch("a", version)
        talk.fetch("a", version, every=True)
    talk.commit("a", 4, retention_time_ms=86_400_000)
    talk.commit("a", 7, group_id="")
    talk.fetch("a", 1)
    talk.describe()
    talk.list("a")
    ids = talk.stable("b")
    talk.commit("a")
    talk.commit("b", generation_id_or_member_epoch=1, member_id=ids["b"])
    talk.commit("b", generation_id_or_member_epoch=2, member_id=ids["b"])
    talk.commit("b", generation_id_or_member_epoch=-1, member_id=ids["b"])
    talk.commit("b", generation_id_or_member_epoch=1, member_id="")
    talk.commit("b", generation_id_or_member_epoch=1, member_id=ids["b"], group_instance_id="static")
    talk.offset_delete("b")
    talk.ask("b", "delete", DeleteGroupsRequest(groups_names=[talk.group]), 2)
    talk.list("b")
    talk.leave("b", (ids["b"], None))
    talk.list("b")
    talk.offset_delete("b")
    talk.fetch("b", 9, every=True)
    talk.ask("b", "delete", DeleteGroupsRequest(groups_names=[talk.group]), 2)
    talk.list("b")
    talk.describe()


def garbage_subscriptions(talk: Talk) -> None:
    joined = talk.join("a", "", 3, metadata=b"\0")
    talk.sync("a", joined.member_id, 1, parts={joined.member_id: b""})
    talk.commit("a", generation_id_or_member_epoch=1, member_id=joined.member_id)
    talk.offset_delete("a")
    talk.leave("a", (joined.member_id, None))
    joined = talk.join("a", "", 3, protocol_type="connect")
    talk.sync("a", joined.member_id, 3, parts={joined.member_id: b""})
    talk.offset_delete("a")
    talk.describe()


def finding_coordinators(talk: Talk) -> None:
    for version in range(4):
        talk.ask("a", "find", FindCoordinatorRequest(key=talk.group), version)
        talk.ask("a", "find nobody", FindCoordinatorRequest(key=""), version)
    talk.ask("a", "find", FindCoordinatorRequest(coordinator_keys=[talk.group, "", "x"]), 4)
    talk.ask("a", "find none", FindCoordinatorRequest(coordinator_keys=[]), 4)


SCENES: tuple[Callable[[Talk], None], ...] = (
    strangers,
    bad_joins,
    one_member,
    rebalances,
    votes,
    known_ids,
    static_members,
    static_change_of_protocol,
    offsets,
    garbage_subscriptions,
    finding_coordinators,
)


def play(scene: Callable[[Talk], None], bootstrap_servers: str) -> Record:
    """What everybody was told, in order."""
    talk = Talk(bootstrap_servers)
    try:
        talk.prepare()
        scene(talk)
    finally:
        talk.close()
    return talk.record
